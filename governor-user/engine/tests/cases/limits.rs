//! Limits that refuse at once, and what passes them.

use governor_engine::io::{Input, Kind, Origin, Output, Reason};

use crate::world::{World, is_parked, policy, shed};

#[test]
fn the_node_cap_refuses_at_once_and_exempt_work_passes() {
    let mut policy = policy(&[1]);
    policy.node.cap = 2;
    let mut world = World::new(policy);
    world.held_for(1);
    assert!(is_parked(&world.ask_for(2)));
    assert_eq!(shed(&world.ask_for(3)), (Reason::NodeCap, Origin::Node, 529));
    let exempt = world.ask(|acquire| acquire.kind = Kind::Exempt);
    assert!(matches!(&exempt[..], [Output::Grant(grant)] if grant.lease.is_none()));
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
fn a_pool_without_slots_has_no_gate() {
    let mut world = World::new(policy(&[0]));
    for _ in 0..100 {
        let outputs = world.ask_for(1);
        assert!(matches!(&outputs[..], [Output::Grant(grant)] if grant.member.is_none()));
    }
    assert_eq!(world.in_flight(), 100);
}
