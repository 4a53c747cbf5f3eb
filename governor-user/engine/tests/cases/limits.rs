//! Limits that refuse at once, and what passes them.

use crate::world::{World, is_parked, policy, shed};
use governor_engine::id::MemberId;
use governor_engine::io::{Input, Kind, Origin, Output, Reason};
use governor_engine::policy::{MemberPolicy, PolicyError};
use governor_engine::snapshot::MemberState;
use governor_engine::time::Duration;

#[test]
fn the_node_cap_refuses_at_once_and_exempt_work_passes() {
    let mut policy = policy(&[1]);
    policy.node.cap = 2;
    let mut world = World::new(policy);
    world.held_for(1);
    assert!(is_parked(&world.ask_for(2)));
    assert_eq!(shed(&world.ask_for(3)), (Reason::NodeCap, Origin::Node, 529));
    let exempt = world.ask(|acquire| acquire.kind = Kind::Exempt);
    assert!(matches!(&exempt[..], [Output::Passed { .. }]));
}

#[test]
fn bypass_grants_everything_and_what_exceeds_must_fit_before_the_next_grant() {
    let mut world = World::new(policy(&[1]));
    world.held_for(1);
    world.ask_for(2);
    assert_eq!(world.put(Input::Bypass { on: true }).len(), 1);
    let last = world.held_for(3);
    world.put(Input::Bypass { on: false });
    assert!(is_parked(&world.ask_for(4)));
    assert!(world.release(last).is_empty());
    assert_eq!(world.engine.snapshot().totals.bypassed, 2);
}

#[test]
fn a_pool_whose_members_are_off_grants_nothing() {
    let mut policy = policy(&[1, 0]);
    let mut world = World::new(policy.clone());
    world.held_for(1);
    assert!(is_parked(&world.ask_for(2)));
    policy.pools[0].members[0].slots = 0;
    assert!(world.put(Input::PolicyChanged(Box::new(policy.clone()))).is_empty(), "nothing is released");
    assert!(is_parked(&world.ask_for(3)));
    let at_once = world.ask(|acquire| acquire.max_wait = Some(Duration::ZERO));
    assert_eq!(shed(&at_once), (Reason::PoolExhausted, Origin::Pool, 429));
    let again = world.ask(|acquire| (acquire.kind, acquire.sticky) = (Kind::Reattach, Some(MemberId(1))));
    assert!(is_parked(&again), "not even the reserve");
    assert_eq!(world.engine.snapshot().pools[0].members[1].state, MemberState::Off);
    // On again, who waits goes.
    policy.pools[0].members[1].slots = 2;
    assert_eq!(world.put(Input::PolicyChanged(Box::new(policy))).len(), 2);
}

#[test]
fn a_pool_that_is_declared_unlimited_has_no_gate() {
    let mut policy = policy(&[]);
    policy.pools[0].unlimited = true;
    let mut world = World::new(policy.clone());
    for _ in 0..100 {
        let outputs = world.ask_for(1);
        assert!(matches!(&outputs[..], [Output::Began(grant)] if grant.context.member.is_none()));
    }
    assert_eq!(world.in_flight(), 100);
    // With members it would not be clear what bounds it.
    policy.pools[0].members = vec![MemberPolicy { name: "m".to_owned(), ..MemberPolicy::default() }];
    assert!(matches!(policy.check(), Err(PolicyError::UnlimitedWithMembers { .. })));
}
