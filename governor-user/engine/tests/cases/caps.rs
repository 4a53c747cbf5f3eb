//! Limits of keys, orgs and classes, and refusals by the overload level: all at once, and all or nothing.

use crate::world::{SESSION, World, is_parked, lease, policy, shed};
use governor_engine::id::{ClassId, KeyId, LeaseId, OrgId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, Level, MemberNews, Origin, Output, Priority, Reason, Work};
use governor_engine::policy::{ClassPolicy, Entitlement, FairShare, KeyPolicy, Mode, OrgPolicy, Override, Policy};
use governor_engine::time::{Duration, Instant};

fn capped(cap: u32) -> Entitlement {
    Entitlement { cap: Some(cap), ..Entitlement::default() }
}

/// Caps that act, and no share rule that a test would have to think of.
fn enforced(slots: &[u32]) -> Policy {
    let mut policy = policy(slots);
    policy.node.caps_mode = Mode::Enforce;
    policy.node.shed_mode = Mode::Enforce;
    policy.pools[0].fair_share = FairShare::Off;
    policy
}

fn of(key: u128, org: u128) -> impl Fn(&mut Acquire) {
    move |acquire| (acquire.key, acquire.org) = (Some(KeyId(key)), Some(OrgId(org)))
}

/// Key 1 may have two.
fn two_slots() -> World {
    let mut policy = enforced(&[10]);
    policy.keys = vec![KeyPolicy { key: KeyId(1), entitlement: capped(2) }];
    World::new(policy)
}

#[test]
fn a_key_of_two_slots_is_never_locked_by_how_its_requests_end() {
    let mut world = two_slots();
    // The client resets the stream, its proxy releases.
    let a = world.held_for(1);
    world.put(Input::ClientGone { session: SESSION, work: Work::Lease(a) });
    world.release(a);
    let b = world.held_for(1);
    let c = world.held_for(1);
    assert_eq!(shed(&world.ask_for(1)), (Reason::KeyCap, Origin::Key, 429));
    // The upstream answers 504: the member is reported, the slot released.
    world.report(0, MemberNews::Overloaded);
    world.release(b);
    let d = world.held_for(1);
    // The request turns out malformed: never sent, released.
    world.release(c);
    let e = world.held_for(1);
    for lease in [d, e] {
        world.release(lease);
    }
    let endings: [fn(&mut World, LeaseId); 5] = [
        |world, lease| drop(world.release(lease)),
        |world, lease| drop((world.report(0, MemberNews::Overloaded), world.release(lease))),
        |world, _| drop(world.put(Input::SessionGone { session: SESSION })),
        |world, lease| drop(world.put(Input::Revoke { lease })),
        |world, lease| drop((world.release(lease), world.release(lease))),
    ];
    for round in 0..10_000 {
        let lease = world.held_for(1);
        endings[round % endings.len()](&mut world, lease);
    }
    assert_eq!(world.in_flight(), 0);
    lease(&world.ask_for(1));
    lease(&world.ask_for(1));
    assert_eq!(shed(&world.ask_for(1)), (Reason::KeyCap, Origin::Key, 429));
}

#[test]
fn several_limits_are_taken_together_or_not_at_all() {
    let mut policy = enforced(&[5]);
    policy.keys = vec![KeyPolicy { key: KeyId(1), entitlement: capped(10) }];
    policy.orgs = vec![OrgPolicy { org: OrgId(7), entitlement: capped(1) }];
    let mut world = World::new(policy);
    let first = lease(&world.ask(of(1, 7)));
    for _ in 0..50 {
        assert_eq!(shed(&world.ask(of(1, 7))), (Reason::OrgCap, Origin::Org, 429));
    }
    let snapshot = world.engine.snapshot();
    let (pool, org) = (&snapshot.pools[0], &snapshot.orgs[0]);
    assert_eq!((snapshot.node_counted, pool.in_flight, pool.keys[0].in_flight, org.counted), (1, 1, 1, 1));
    world.release(first);
    lease(&world.ask(of(1, 7)));
}

#[test]
fn what_waits_counts_against_a_cap_like_what_runs() {
    let mut policy = enforced(&[1]);
    policy.keys = vec![KeyPolicy { key: KeyId(1), entitlement: capped(2) }];
    let mut world = World::new(policy);
    world.held_for(1);
    assert!(is_parked(&world.ask_for(1)));
    assert_eq!(shed(&world.ask_for(1)), (Reason::KeyCap, Origin::Key, 429));
}

#[test]
fn a_key_that_is_limited_to_two_holds_two_however_few_connections_it_uses() {
    let mut world = two_slots();
    let held: Vec<_> = (0..2).map(|_| world.held_for(1)).collect();
    for _ in 0..3 {
        assert_eq!(shed(&world.ask_for(1)), (Reason::KeyCap, Origin::Key, 429));
    }
    assert_eq!(world.in_flight(), 2);
    world.release(held[0]);
    assert_eq!(world.in_flight(), 1);
    world.put(Input::SessionGone { session: SESSION });
    assert_eq!(world.in_flight(), 0);
}

/// Org 7 is of a class with a ceiling of two; there is a higher class.
fn tiered() -> World {
    let mut policy = enforced(&[10]);
    let class = |name: &str, cap| ClassPolicy { name: name.to_owned(), entitlement: capped(cap) };
    policy.classes = vec![class("base", 2), class("trusted", 4), class("free", 0)];
    policy.node.default_class = Some("base".to_owned());
    // Longer than any tier holds.
    policy.node.lease_ttl = Duration::from_secs(7_200);
    World::new(policy)
}

fn asks(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::TierAsk { org: OrgId(7), .. })).count()
}

fn tier_is(session: SessionId, class: Option<ClassId>, seconds: u64) -> Input {
    Input::TierIs { session, org: OrgId(7), class, ttl: Duration::from_secs(seconds) }
}

#[test]
fn the_tier_is_asked_for_only_at_the_base_ceiling_and_can_only_raise_it() {
    let mut world = tiered();
    assert_eq!(asks(&world.ask(of(1, 7))), 0);
    // The second reaches the ceiling and is granted without waiting for an answer; the third is refused meanwhile.
    let second = world.ask(of(2, 7));
    assert!(asks(&second) == 1 && matches!(second.last(), Some(Output::Began(_))), "{second:?}");
    assert_eq!(shed(&world.ask(of(1, 7))), (Reason::ClassCap, Origin::Org, 429));

    world.put(tier_is(SESSION, Some(ClassId(1)), 60));
    for key in [1, 2] {
        lease(&world.ask(of(key, 7)));
    }
    assert_eq!(shed(&world.ask(of(1, 7))), (Reason::ClassCap, Origin::Org, 429));

    // After its time the answer is asked for again. A failed look-up means the base; nothing that runs is cut.
    world.at(60_000);
    assert_eq!(asks(&world.ask(of(1, 7))), 1);
    world.put(tier_is(SESSION, None, 60));
    assert_eq!((shed(&world.ask(of(1, 7))).0, world.in_flight()), (Reason::ClassCap, 4));
}

#[test]
fn a_tier_is_believed_once_of_the_asked_session() {
    let mut world = tiered();
    let raise = |session| tier_is(session, Some(ClassId(1)), 4_000_000);
    // No question is pending.
    world.put(raise(SESSION));
    lease(&world.ask(of(1, 7)));
    assert_eq!(asks(&world.ask(of(2, 7))), 1);
    world.put(raise(SessionId(2)));
    assert_eq!(shed(&world.ask(of(1, 7))).0, Reason::ClassCap);
    world.put(raise(SESSION));
    lease(&world.ask(of(1, 7)));
    // A second answer to the one question does not count.
    world.put(tier_is(SESSION, None, 60));
    lease(&world.ask(of(2, 7)));
    assert_eq!(world.engine.snapshot().totals.tier_answers_ignored, 3);
    // It holds for an hour at most, whatever time it names.
    world.at(3_599_999);
    assert_eq!(asks(&world.ask(of(1, 7))), 0);
    world.at(3_600_000);
    assert_eq!(asks(&world.ask(of(1, 7))), 1);
}

#[test]
fn a_ceiling_of_zero_is_no_limit_and_an_absent_class_means_the_default() {
    let mut world = tiered();
    for _ in 0..8 {
        lease(&world.ask(|acquire| (acquire.org, acquire.class) = (Some(OrgId(9)), Some(ClassId(2)))));
    }
    for key in [1, 2] {
        world.ask(of(key, 7));
    }
    assert_eq!(shed(&world.ask(of(1, 7))), (Reason::ClassCap, Origin::Org, 429));
}

#[test]
fn an_observed_cap_refuses_nobody_and_records_what_it_would_have_done() {
    let mut policy = enforced(&[5]);
    policy.node.caps_mode = Mode::Observe;
    policy.orgs = vec![OrgPolicy { org: OrgId(7), entitlement: capped(1) }];
    let mut world = World::new(policy);
    world.ask(of(1, 7));
    let outputs = world.ask(of(1, 7));
    let [Output::WouldHave { decision }, Output::Began(_)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((decision.reason, decision.numbers.limit, decision.numbers.limited), (Reason::OrgCap, 1, 1));
}

#[test]
fn under_overload_the_lowest_goes_first_and_probes_always_pass() {
    let mut world = World::new(enforced(&[1]));
    world.held_for(1);
    let with = |priority| move |acquire: &mut Acquire| acquire.priority = priority;
    let overload = (Reason::Overload, Origin::Node, 529);

    world.put(Input::OverloadChanged { level: Level::High });
    assert_eq!(shed(&world.ask(with(Priority::Sheddable))), overload);
    assert!(is_parked(&world.ask(with(Priority::Normal))));

    world.put(Input::OverloadChanged { level: Level::Overloaded });
    assert_eq!(shed(&world.ask(with(Priority::Normal))), overload);
    assert!(is_parked(&world.ask(with(Priority::Critical))));
    // Liveness and admin calls take no slot, meet no limit, and are counted.
    for _ in 0..3 {
        let probe = world.ask(|acquire| acquire.kind = Kind::Exempt);
        assert!(matches!(&probe[..], [Output::Passed { .. }]), "{probe:?}");
    }
    assert_eq!((world.engine.snapshot().exempt_total, world.in_flight()), (3, 1));
}

#[test]
fn an_override_holds_at_once_and_until_it_expires() {
    let mut world = World::new(enforced(&[10]));
    world.held_for(1);
    let until = Some(Instant::ZERO.after(Duration::from_secs(60)));
    let with = Some(Override { entitlement: capped(1), suspend: false, until });
    world.put(Input::Override { key: KeyId(1), with });
    assert_eq!(shed(&world.ask_for(1)), (Reason::KeyCap, Origin::Key, 429));
    world.at(59_999);
    assert_eq!(shed(&world.ask_for(1)).0, Reason::KeyCap);
    world.at(60_000);
    lease(&world.ask_for(1));
}

#[test]
fn a_key_that_is_suspended_is_refused_where_it_waits_too_and_what_it_runs_goes_on() {
    let mut world = World::new(enforced(&[1]));
    let running = world.held_for(1);
    assert!(is_parked(&world.ask_for(1)));
    let outputs =
        world.put(Input::Override { key: KeyId(1), with: Some(Override { suspend: true, ..Override::default() }) });
    assert_eq!(shed(&outputs), (Reason::Suspended, Origin::Key, 403));
    assert_eq!(shed(&world.ask_for(1)), (Reason::Suspended, Origin::Key, 403));
    assert_eq!(world.in_flight(), 1);
    world.release(running);
    lease(&world.ask_for(2));
}
