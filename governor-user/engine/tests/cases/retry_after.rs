//! When refused clients are told to come back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use governor_engine::io::{MemberNews, Output};
use governor_engine::policy::Policy;
use governor_engine::time::{Duration, Instant};

use crate::world::{World, policy};

/// Nobody waits, so that whoever finds no slot is refused.
fn impatient(slots: &[u32]) -> Policy {
    let mut policy = policy(slots);
    policy.pools[0].max_wait = Duration::ZERO;
    policy
}

fn told(outputs: &[Output]) -> Duration {
    match outputs {
        [Output::Shed { decision, .. }] => decision.retry_after,
        other => panic!("not one refusal: {other:?}"),
    }
}

/// A full pool whose slots come back ten times a second for as long as the drain is measured.
fn draining() -> World {
    let mut world = World::new(impatient(&[100]));
    let mut held: VecDeque<_> =
        (0..100).map(|_| world.ask(|_| {})).map(|granted| crate::world::lease(&granted)).collect();
    for tick in 1..=400_u64 {
        world.at(tick * 100);
        let oldest = held.pop_front().expect("the pool is full");
        world.release(oldest);
        held.push_back(crate::world::lease(&world.ask(|_| {})));
    }
    world
}

#[test]
fn the_time_until_the_upstream_is_back_is_told_in_whole_seconds_rounded_up() {
    for (millis, seconds) in [(1, 1), (400, 1), (1_000, 1), (12_200, 13), (120_000, 120)] {
        let mut world = World::new(impatient(&[1]));
        world.report(0, MemberNews::RateLimited { until: Some(Instant::ZERO.after(Duration::from_millis(millis))) });
        assert_eq!(told(&world.ask_for(1)), Duration::from_secs(seconds), "back in {millis} ms");
    }
}

#[test]
fn a_crowd_that_is_refused_in_one_instant_is_spread_over_the_time_it_takes_to_drain() {
    let mut world = draining();
    let mut crowd: BTreeMap<u64, u32> = BTreeMap::new();
    for _ in 0..100 {
        let after = told(&world.ask(|_| {}));
        assert!(after.subsec_nanos() == 0 && after >= Duration::from_secs(1), "{after:?}");
        *crowd.entry(after.as_secs()).or_default() += 1;
    }
    assert!(crowd.len() >= 8, "distinct values: {crowd:?}");
    // Ten of them each second, and up to a quarter more for some.
    assert!(crowd.keys().all(|after| (1..=13).contains(after)), "{crowd:?}");
}

#[test]
fn beyond_the_longest_time_that_is_told_a_crowd_is_still_spread() {
    let mut world = draining();
    let last: BTreeSet<u64> = (0..2_000).map(|_| told(&world.ask(|_| {})).as_secs()).skip(1_000).collect();
    assert!(last.len() >= 8 && last.iter().all(|after| (60..=75).contains(after)), "{last:?}");
}

#[test]
fn a_second_is_told_while_nothing_is_known() {
    let mut world = World::new(impatient(&[1]));
    world.held_for(1);
    assert_eq!(told(&world.ask_for(2)), Duration::from_secs(1));
}
