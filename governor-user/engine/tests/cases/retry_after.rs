//! When refused clients are told to come back.

use crate::world::{World, policy};
use governor_engine::io::{MemberNews, Output};
use governor_engine::policy::{FairShare, Policy};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Nobody waits, so that whoever finds no slot is refused.
fn impatient(slots: &[u32]) -> Policy {
    let mut policy = policy(slots);
    policy.pools[0].max_wait = Duration::ZERO;
    policy
}

fn told(outputs: &[Output]) -> Duration {
    match outputs {
        [Output::Refused { decision, .. }] => decision.retry_after,
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

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_reset_that_an_upstream_named_is_told_and_no_client_comes_before_it() {
    for (back, least, most) in [(1, 1_000, 1_250), (12_200, 12_200, 15_250), (120_000, 120_000, 132_000)] {
        let mut world = World::new(impatient(&[1]));
        world.report(0, MemberNews::RateLimited { until: Some(Instant::ZERO.after(millis(back))) });
        let crowd: BTreeSet<_> = (0..100).map(|_| told(&world.ask_for(1))).collect();
        assert!(crowd.iter().all(|told| (millis(least)..=millis(most)).contains(told)), "{back} ms: {crowd:?}");
        assert!(crowd.len() > 70, "{back} ms: {crowd:?}");
    }
}

#[test]
fn a_crowd_refused_in_one_instant_is_spread_over_its_drain() {
    let mut world = draining();
    let mut crowd: BTreeMap<u128, u32> = BTreeMap::new();
    let mut values = BTreeSet::new();
    for _ in 0..300 {
        let told = told(&world.ask(|_| {}));
        values.insert(told);
        *crowd.entry(told.as_millis() / 1_000).or_default() += 1;
    }
    assert!(values.len() > 280, "distinct values: {}", values.len());
    // Some ten each second, and up to a quarter later for some: 300 take 30 s.
    assert!(crowd.iter().all(|(after, count)| (1..=38).contains(after) && *count <= 20), "{crowd:?}");
}

#[test]
fn beyond_the_longest_time_that_is_told_a_crowd_is_still_spread() {
    let mut world = draining();
    let last: Vec<_> = (0..2_000).map(|_| told(&world.ask(|_| {}))).skip(1_000).collect();
    assert!(last.iter().all(|after| (millis(48_000)..=millis(60_000)).contains(after)), "{last:?}");
    assert!(last.iter().collect::<BTreeSet<_>>().len() > 900);
}

#[test]
fn a_crowd_is_spread_from_a_second_up_while_nothing_is_known() {
    let mut world = World::new(impatient(&[1]));
    world.held_for(1);
    let crowd: Vec<_> = (0..300).map(|_| told(&world.ask_for(2))).collect();
    assert_eq!(crowd[0], millis(1_000));
    assert_eq!(crowd.iter().collect::<BTreeSet<_>>().len(), 300, "{crowd:?}");
    assert!(crowd.iter().all(|told| *told <= millis(5_000)), "{crowd:?}");
}

#[test]
fn a_key_over_its_share_waits_for_its_own_leases_or_a_loose_pool() {
    let mut policy = impatient(&[100]);
    policy.pools[0].fair_share = FairShare::EqualSplit { threshold: 80 };
    let mut world = World::new(policy);
    // One lease ends each second.
    for second in 1..=40 {
        let lease = world.held_for(3);
        world.at(second * 1_000);
        world.release(lease);
    }
    for key in [[1; 60].as_slice(), &[2; 30]].concat() {
        world.held_for(key);
    }
    // Of 90, 11 must end until it is loose; for its share of 50, 11 of its own 60, which is every third of 2 ends.
    let told = told(&world.ask_for(1));
    assert!((millis(11_000)..=millis(13_750)).contains(&told), "{told:?}");
}
