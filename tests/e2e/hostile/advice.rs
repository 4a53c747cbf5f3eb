//! `GET /v1/advise` on a long record: one replay at a time, in bounded memory.

use super::figure;
use super::memory_kib;
use crate::world::pool;
use governor_engine::id::{KeyId, LeaseId, PoolId, RequestId, SessionId};
use governor_engine::io::Acquire;
use governor_engine::time::Instant;
use governor_user::records::demand::Demand;
use support::programs::daemon::Setup;

/// Requests in the record, one each millisecond.
const REQUESTS: u32 = 20_000;

/// The record begins so many seconds before the question, which is about its last 1,000 requests: replaying all of them ten times
/// takes an unoptimised build longer than a test may take, reading them does not.
const SINCE: u64 = 300;
const ASKED: u64 = SINCE - 19;

/// What advice may take.
const MOST_KIB: u64 = 64 * 1024;

#[test]
fn advice_is_worked_out_once_at_a_time_in_bounded_memory() {
    let daemon = {
        let mut daemon = Setup::new(&pool(1, 50, "")).start();
        daemon.halt();
        let mut demand = Demand::open(&daemon.state_dir(), 64 << 20);
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() - SINCE;
        for n in 0..REQUESTS {
            let now = Instant(u64::from(n) * 1_000_000);
            if demand.needs_opening() {
                demand.opened(wall + u64::from(n) / 1000, now);
            }
            let (session, request) = (SessionId(1), RequestId(n));
            let key = Some(KeyId(u128::from(n % 5000)));
            demand.asked(&Acquire { session, request, pool: PoolId(0), key, ..Acquire::default() }, "chat", now);
            demand.granted(session, request, LeaseId(n.into()), now);
            if let Some(ended) = n.checked_sub(40) {
                demand.ended(LeaseId(ended.into()), now);
            }
            if n % 512 == 0 {
                demand.flush();
                while demand.health().is_some_and(|health| health.written + 4000 < u64::from(n)) {
                    std::thread::yield_now();
                }
            }
        }
        drop(demand);
        daemon.restart().unwrap();
        daemon
    };
    let before = memory_kib(&daemon, "VmHWM");
    let daemon = &daemon;
    let begun = std::time::Instant::now();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let ask = || daemon.request("GET", &format!("/v1/advise?last_seconds={ASKED}"), None).0;
        let asked: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let (took, peak) = (begun.elapsed(), memory_kib(daemon, "VmHWM"));
    figure(&format!(
        "three questions for advice over {REQUESTS} requests: answers {codes:?} in {took:?}; most memory {before} → {peak} KiB"
    ));
    assert!(codes.contains(&200) && codes.iter().all(|code| [200, 429].contains(code)), "{codes:?}");
    assert!(peak - before < MOST_KIB, "it takes {} KiB", peak - before);
}
