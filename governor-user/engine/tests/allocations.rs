//! Once warm, a grant allocates nothing, and a lease takes at most 256 bytes.

#[path = "../benches/counting.rs"]
mod counting;
#[path = "../benches/crowd.rs"]
mod crowd;

use counting::{Counting, bytes, calls};
use crowd::{Crowd, Rule};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Turns until every table has the room it needs.
const WARM_UP: u32 = 5_000;
/// Two steps of the engine each, so that at most one of its checks falls among them.
const TURNS: u32 = 500;
/// In a debug build the engine checks itself after one step in 1,024, and the check allocates.
const CHECKS: usize = if cfg!(debug_assertions) { 1 } else { 0 };

#[test]
fn a_grant_to_who_holds_least_allocates_nothing() {
    for rule in Rule::ALL {
        let mut crowd = Crowd::active(rule, 200);
        assert_allocates_nothing(rule, || crowd.acquire_and_release());
    }
}

#[test]
fn a_grant_to_who_waits_longest_allocates_nothing() {
    for rule in Rule::ALL {
        let mut crowd = Crowd::waiting(rule, 200);
        assert_allocates_nothing(rule, || crowd.release_and_wait());
    }
}

#[test]
fn a_lease_takes_at_most_256_bytes() {
    const LEASES: u32 = 100_000;
    let before = bytes();
    let crowd = Crowd::holding(LEASES, 10);
    let each = (bytes() - before) / i64::from(LEASES);
    drop(crowd);
    assert!(each <= 256, "{each} bytes");
}

fn assert_allocates_nothing(rule: Rule, mut turn: impl FnMut()) {
    (0..WARM_UP).for_each(|_| turn());
    let turns: Vec<u64> = (0..TURNS)
        .map(|_| {
            let before = calls();
            turn();
            calls() - before
        })
        .collect();
    let allocating: Vec<(usize, u64)> = turns.into_iter().enumerate().filter(|(_, calls)| *calls > 0).collect();
    assert!(allocating.len() <= CHECKS, "{}: allocations by turn: {allocating:?}", rule.name());
}
