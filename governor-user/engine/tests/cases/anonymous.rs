//! Requests that name no key: one identity for all of a pool, judged and bounded like a key.

use crate::world::{World, is_parked, lease, member, policy, shed};
use governor_engine::id::{KeyId, MemberId, OrgId};
use governor_engine::io::{Acquire, Input, Kind, Origin, Output, Reason};
use governor_engine::policy::{Anonymous, FairShare, Headroom, Policy};

/// Ten slots, shared by `max-min` without headroom.
fn max_min() -> Policy {
    let mut policy = policy(&[10]);
    policy.pools[0].fair_share = FairShare::MaxMin { headroom: Headroom::Slots(0) };
    policy
}

fn anonymous(_: &mut Acquire) {}

#[test]
fn a_crowd_without_a_key_leaves_a_light_key_its_slots() {
    let mut world = World::new(max_min());
    let mut held: Vec<_> = (0..10).map(|_| lease(&world.ask(anonymous))).collect();
    assert!((0..12).all(|_| is_parked(&world.ask(anonymous))), "three quarters of sixteen places");
    assert!(matches!(world.ask(anonymous)[..], [Output::Refused { .. }]));
    // Each of its streams that ends gives way to the key, until both hold as much.
    for _ in 0..3 {
        assert!(is_parked(&world.ask_for(1)));
        let woken = world.release(held.remove(0));
        assert!(matches!(&woken[..], [Output::Began(grant)] if grant.request.0 == world.next), "{woken:?}");
    }
    let view = &world.engine.snapshot().pools[0];
    let keys: Vec<_> = view.keys.iter().map(|key| (key.key, key.in_flight, key.parked)).collect();
    assert_eq!(keys, [(None, 7, 12), (Some(KeyId(1)), 3, 0)]);
    assert_eq!((view.active_keys, view.keys[0].share), (2, Some(7)), "{:?}", view.keys);
}

#[test]
fn requests_without_a_key_are_refused_by_their_share_and_their_own_bound() {
    let mut policy = max_min();
    policy.pools[0].max_parked_per_key = 2;
    let mut world = World::new(policy);
    for _ in 0..10 {
        world.ask(anonymous);
    }
    let over = world.ask(|acquire| acquire.max_wait = Some(governor_engine::time::Duration::ZERO));
    let [Output::Refused { decision, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((decision.reason, decision.origin, decision.key), (Reason::FairShare, Origin::Key, None));
    assert_eq!((decision.numbers.key_in_flight, decision.numbers.share, decision.numbers.active_keys), (10, 10, 1));
    assert!((0..2).all(|_| is_parked(&world.ask(anonymous))));
    assert_eq!(shed(&world.ask(anonymous)), (Reason::KeyQueueFull, Origin::Key, 429));
}

#[test]
fn the_last_quarter_of_the_waiting_places_is_for_keys() {
    for rule in [Anonymous::Judge, Anonymous::Bypass] {
        let mut policy = policy(&[1]);
        (policy.pools[0].anonymous, policy.pools[0].max_waiting) = (rule, Some(10));
        let mut world = World::new(policy.clone());
        world.held_for(1);
        // A quarter of ten, rounded up, is kept.
        assert!((0..7).all(|_| is_parked(&world.ask(anonymous))));
        let outputs = world.ask(anonymous);
        assert_eq!(shed(&outputs), (Reason::QueueFull, Origin::Pool, 429), "{rule:?}");
        let [Output::Refused { decision, .. }] = &outputs[..] else { panic!() };
        assert_eq!((decision.numbers.limit, decision.numbers.limited), (7, 7));
        assert!((2..5).all(|key| is_parked(&world.ask_for(key))));
        assert_eq!(shed(&world.ask_for(5)), (Reason::QueueFull, Origin::Pool, 429));

        // On the node alike.
        (policy.pools[0].max_waiting, policy.node.max_parked) = (None, 4);
        let mut world = World::new(policy);
        world.held_for(1);
        assert!((0..3).all(|_| is_parked(&world.ask(anonymous))));
        assert_eq!(shed(&world.ask(anonymous)), (Reason::QueueFull, Origin::Node, 529), "{rule:?}");
        assert!(is_parked(&world.ask_for(2)));
    }
}

#[test]
fn a_pool_may_let_requests_without_a_key_bypass_its_share() {
    for (rule, passes) in [(Anonymous::Judge, false), (Anonymous::Bypass, true)] {
        let mut policy = policy(&[10]);
        policy.pools[0].fair_share = FairShare::MaxMin { headroom: Headroom::Slots(1) };
        policy.pools[0].anonymous = rule;
        let mut world = World::new(policy);
        world.held_for(1);
        (0..8).for_each(|_| drop(world.ask(anonymous)));
        // Only the headroom is left, which is for newcomers.
        assert_eq!(is_parked(&world.ask(anonymous)), !passes, "{rule:?}");
        let view = &world.engine.snapshot().pools[0];
        let expected = if passes { (10, 1, None) } else { (9, 2, Some(8)) };
        assert_eq!((view.in_flight, view.active_keys, view.keys[0].share), expected, "{rule:?}");
    }
}

#[test]
fn switching_the_rule_keeps_every_lease_and_every_waiting_request() {
    let mut policy = max_min();
    let mut world = World::new(policy.clone());
    for _ in 0..6 {
        world.ask(anonymous);
    }
    (0..4).for_each(|_| drop(world.ask_for(1)));
    let org = |acquire: &mut Acquire| acquire.org = Some(OrgId(9));
    assert!(is_parked(&world.ask(org)) && is_parked(&world.ask(anonymous)));
    for rule in [Anonymous::Bypass, Anonymous::Judge, Anonymous::Bypass] {
        policy.pools[0].anonymous = rule;
        // The engine checks every count after the step.
        assert!(world.put(Input::PolicyChanged(Box::new(policy.clone()))).is_empty());
        let view = &world.engine.snapshot().pools[0];
        let keys: Vec<_> = view.keys.iter().map(|key| (key.key, key.in_flight, key.parked)).collect();
        assert_eq!(keys, [(None, 6, 2), (Some(KeyId(1)), 4, 0)]);
        assert_eq!(view.active_keys, if rule == Anonymous::Judge { 2 } else { 1 });
    }
}

#[test]
fn a_re_attach_without_a_key_passes_the_share_on_its_own_member() {
    let mut policy = policy(&[2, 2]);
    policy.pools[0].members.iter_mut().for_each(|member| member.reserve = 1);
    let mut world = World::new(policy);
    assert!((0..2).all(|_| matches!(world.ask(anonymous)[..], [Output::Began(_)])));
    assert!(is_parked(&world.ask(anonymous)));
    let attach = |acquire: &mut Acquire| (acquire.kind, acquire.sticky) = (Kind::Reattach, Some(MemberId(1)));
    assert_eq!(member(&world.ask(attach)), 1);
    assert!(is_parked(&world.ask(attach)), "the other member's reserve is not its");
}
