//! Sessions that hold or claim very many leases: what the daemon writes down about them must not stop its loop.

use super::figure;
use super::latency;
use crate::raw::Raw;
use crate::world::pool;
use governor_common::wire::KeyHash;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{Acquire, HeldLease, Request};
use std::time::{Duration, Instant};
use support::programs::daemon::Setup;

/// Leases of one attacker in the tests.
const CLAIMED: u64 = 20_000;

/// Leases really held with the smallest demand log.
const HELD: u32 = 2_100;

#[test]
fn registering_many_leases_leaves_the_others_served() {
    let lines = format!("[node]\ncap = 0\n{}", pool(1, 50_000, ""));
    let daemon = Setup::new(&lines).env("GOVERNOR_DAEMON_RECORD_MIB", "8").start();
    let mut other = Raw::greeted(&daemon.socket());
    let before = latency(&mut other, 300);
    let mut attacker = Raw::greeted(&daemon.socket());
    let begun = Instant::now();
    let mut frames = 0;
    for first in (1..=CLAIMED).step_by(500) {
        let lease = |n: u64| HeldLease {
            lease: n,
            pool: "chat".to_owned(),
            key: Some(KeyHash(u128::from(n).to_be_bytes())),
            ..HeldLease::default()
        };
        attacker.send(
            u32::try_from(first).unwrap(),
            &Request::Register { leases: (first..first + 500).map(lease).collect() },
        );
        frames += 1;
    }
    other.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let during = latency(&mut other, 300);
    for _ in 0..frames {
        while !matches!(attacker.next(), Some((_, Reply::Registered { .. }))) {}
    }
    figure(&format!(
        "{CLAIMED} leases registered in {:?}; another session: before {before}; during {during}",
        begun.elapsed()
    ));
}

#[test]
fn many_leases_and_a_small_demand_log_leave_the_others_served() {
    let lines = format!("[node]\ncap = 0\n{}", pool(1, 50_000, ""));
    let daemon = Setup::new(&lines).env("GOVERNOR_DAEMON_RECORD_MIB", "1").start();
    let mut other = Raw::greeted(&daemon.socket());
    let before = latency(&mut other, 300);
    let mut attacker = Raw::greeted(&daemon.socket());
    let begun = Instant::now();
    for id in 0..HELD {
        let key = Some(KeyHash(u128::from(id).to_be_bytes()));
        attacker.send(id, &Request::Acquire(Acquire { pool: "chat".to_owned(), key, ..Acquire::default() }));
    }
    attacker.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for _ in 0..HELD {
        while !matches!(attacker.next(), Some((_, Reply::Grant(_)))) {}
    }
    let granted = begun.elapsed();
    other.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let during = latency(&mut other, 300);
    figure(&format!("{HELD} leases granted in {granted:?}; another session: before {before}; then {during}"));
}
