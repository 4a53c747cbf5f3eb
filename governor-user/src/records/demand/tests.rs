//! What recorded demand is worth after facts were lost.

use super::{Demand, Fact, SETTLED, recorded};
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::time::Instant;
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

const NOW: Instant = Instant(1_000_000_000);

/// Grants more than the writer holds back while the disk refuses.
const BURST: u64 = 500_000;

/// Adds grants of these leases, and flushes as the driver does.
fn grants(demand: &mut Demand, leases: RangeInclusive<u64>) {
    for n in leases {
        if demand.needs_opening() {
            demand.opened(7, NOW);
        }
        demand.granted(SessionId(n), RequestId(1), LeaseId(n), NOW);
        if n % 20_000 == 0 {
            demand.flush();
        }
    }
    demand.flush();
}

#[test]
fn a_segment_that_lost_facts_ends_and_the_next_one_stands_by_itself() {
    let state = tempfile::tempdir().unwrap();
    // A file where the folder is to be: the disk refuses.
    fs::write(state.path().join("demand"), "").unwrap();
    // No segment ends because it is full.
    let mut demand = Demand::open(state.path(), 1 << 30);
    grants(&mut demand, 1..=BURST);
    let mut lost = demand.health().unwrap().lost;
    assert!(lost > 0, "the disk refused more than is held back");
    fs::remove_file(state.path().join("demand")).unwrap();
    // The writer may still be giving up some of what it holds back.
    let mut flushes = 0;
    while flushes <= SETTLED {
        demand.flush();
        std::thread::sleep(Duration::from_millis(1));
        let before = std::mem::replace(&mut lost, demand.health().unwrap().lost);
        flushes = if before == lost { flushes + 1 } else { 0 };
    }
    grants(&mut demand, BURST + 1..=BURST + 3);
    drop(demand);
    let segment = recorded(state.path()).unwrap().pop().unwrap();
    assert!(matches!(segment[0], Fact::Opened { .. }), "{:?}", segment[0]);
    let leases: Vec<u64> = segment
        .iter()
        .filter_map(|fact| {
            let Fact::Granted { l, .. } = fact else { return None };
            Some(*l)
        })
        .collect();
    assert_eq!(leases, [BURST + 1, BURST + 2, BURST + 3], "what was recorded before the loss is in another segment");
}
