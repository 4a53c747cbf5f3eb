//! Storms of connections and refusals from several processes at once, held against the kernel's own counts: no hook misses
//! one, and those without a twin are never found running when they are called.

use crate::world::{eventually, listener, namespace, plane, sees, tiers_of_programs};
use aya::programs::{ProgramInfo, loaded_programs};
use governor_observation::{HookEvent, ListenerView};
use std::{collections::BTreeSet, fs, os::fd::AsFd, os::fd::AsRawFd, thread};
use support::machine::netns::Netns;
use support::machine::nstat;
use support::programs::peer::Peer;

const CLIENTS: u32 = 4;
const CONNECTIONS_EACH: u32 = 100;
const REFUSED_EACH: u32 = 25;

/// Programs on functions that run with softirqs off throughout, as far as the kernel keeps their names.
const WITHOUT_TWIN: [&str; 6] =
    ["enqueue_handsha", "enqueue_other", "enqueue_moved", "refuse_syn", "refuse_ack", "refuse_ack_v6"];

#[test]
fn a_storm_is_counted_to_the_last_connection() {
    let _machine = support::alone();
    for tier in tiers_of_programs() {
        let Some(namespace) = namespace() else { return };
        let earlier: BTreeSet<u32> = loaded_programs().flatten().map(|program| program.id()).collect();
        let Some(plane) = plane(tier) else { return };
        if !sees(&plane.observations().borrow(), HookEvent::Enqueue) {
            continue;
        }
        let ours = || loaded_programs().flatten().filter(|program| !earlier.contains(&program.id()));
        let mut server = Peer::start(&namespace);

        // Room for all: at the limit the kernel tests a moment after the hook, and another processor may come in between.
        let all = CLIENTS * CONNECTIONS_EACH;
        let port = server.listen("127.0.0.1", all);
        server.begin_accepting("many", port, all);
        by_all(&namespace, |client| assert_eq!(client.connect("127.0.0.1", port, CONNECTIONS_EACH), CONNECTIONS_EACH));
        server.finish_accepting();
        eventually(&plane, "every connection", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| {
                let waits = row.sojourn.as_ref().map(|sojourn| sojourn.count);
                (row.enqueued_total, row.accepted_total) == (Some(all.into()), Some(all.into()))
                    && waits.is_none_or(|waits| waits == u64::from(all))
            })
        });
        assert_eq!(nstat::counters(&namespace, &["TcpPassiveOpens", "TcpExtListenOverflows"]), [u64::from(all), 0]);

        let full = server.listen("127.0.0.1", 1);
        let mut early = Peer::start(&namespace);
        assert_eq!(early.connect("127.0.0.1", full, 2), 2);
        eventually(&plane, "a full queue", |seen| {
            listener(seen, &namespace, full).is_some_and(|row| row.is_full() == Some(true))
        });
        by_all(&namespace, |client| client.begin("127.0.0.1", full, REFUSED_EACH));
        // The clients are gone, so nothing tries again.
        eventually(&plane, "every refusal, or since when none was missed", |seen| {
            let oracle = nstat::counters(&namespace, &["TcpExtListenOverflows"])[0];
            let rows = [port, full].map(|port| listener(seen, &namespace, port));
            let refused = rows.iter().flatten().filter_map(|row| row.overflows_total).sum::<u64>();
            let missed = |row: &ListenerView| row.overflows_total.is_none() || row.overflows_since_seconds.is_some();
            rows.iter().all(Option::is_some) && (refused == oracle || rows.iter().flatten().any(missed))
        });

        for program in ours() {
            let name = program.name_as_str().unwrap_or_default().to_owned();
            if WITHOUT_TWIN.contains(&name.as_str()) {
                assert_eq!(misses(&program), Some(0), "{name} was called while it ran");
            }
        }
    }
}

/// Has as many clients do this at the same time, each a process of its own that then ends.
fn by_all(namespace: &Netns, work: impl Fn(&mut Peer) + Sync) {
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| work(&mut Peer::start(namespace)));
        }
    });
}

/// How often the kernel left a program out because it was running on the same processor; `None` where it does not say.
fn misses(program: &ProgramInfo) -> Option<u64> {
    let descriptor = program.fd().ok()?;
    let said = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd())).ok()?;
    said.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}
