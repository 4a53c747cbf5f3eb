//! What recorded demand is worth after facts were lost.

use super::{Demand, Fact, recorded};
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::time::Instant;
use std::fs;
use std::path::Path;

const NOW: Instant = Instant(1_000_000_000);

/// More than the writer holds back while the disk refuses.
const BURST: u64 = 100_000;

/// Adds grants, and flushes as the driver does.
fn grants(demand: &mut Demand, count: u64) {
    for n in 1..=count {
        if demand.needs_opening() {
            demand.opened(7, NOW);
        }
        demand.granted(SessionId(n), RequestId(1), LeaseId(n), NOW);
        if n % 500 == 0 {
            demand.flush();
        }
    }
    demand.flush();
}

fn lost(demand: &Demand) -> u64 {
    demand.health().unwrap().lost
}

fn last_segment(state: &Path) -> Vec<Fact> {
    recorded(state).unwrap().pop().unwrap()
}

#[test]
fn a_segment_that_lost_facts_ends_and_the_next_one_stands_by_itself() {
    let state = tempfile::tempdir().unwrap();
    // A file where the folder is to be: the disk refuses.
    fs::write(state.path().join("demand"), "").unwrap();
    let mut demand = Demand::open(state.path(), 64 << 20);
    while lost(&demand) == 0 {
        grants(&mut demand, BURST);
    }
    fs::remove_file(state.path().join("demand")).unwrap();
    // Nothing is lost any more: what was lost is counted, and the next fact begins a segment.
    let mut settled = lost(&demand);
    while !demand.needs_opening() {
        std::thread::yield_now();
        demand.flush();
        settled = lost(&demand);
    }
    grants(&mut demand, 3);
    assert_eq!(lost(&demand), settled);
    drop(demand);
    let facts = last_segment(state.path());
    assert!(matches!(facts[0], Fact::Opened { .. }), "{:?}", facts[0]);
    let granted = facts.iter().filter(|fact| matches!(fact, Fact::Granted { .. })).count();
    assert_eq!(granted, 3, "what was recorded before the loss is in another segment");
}
