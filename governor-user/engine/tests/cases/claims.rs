//! Leases that a proxy claims to hold and that are not live: nothing proves them, so what they can count is bounded.

use crate::world::{POOL, SESSION, World, lease, policy};
use governor_engine::id::{KeyId, LeaseId, SessionId};
use governor_engine::io::{Held, Input, Output};

/// A claim of another session; the lease it got.
fn claim(world: &mut World, lease: u64, restored: bool) -> Option<LeaseId> {
    let held = Held {
        session: SessionId(2),
        lease: LeaseId(lease),
        pool: POOL,
        key: Some(KeyId(9)),
        restored,
        ..Held::default()
    };
    match &world.put(Input::Register(held))[..] {
        [Output::Registered { new, .. }] => new.map(|new| new.lease),
        outputs => panic!("{outputs:?}"),
    }
}

#[test]
fn forged_leases_count_up_to_the_pools_slots() {
    let mut world = World::new(policy(&[3, 2]));
    world.held_for(1);
    let believed = (0..1_000).filter(|n| claim(&mut world, *n, false).is_some()).count();
    assert_eq!((believed, world.in_flight()), (5, 6));
    assert_eq!(world.engine.snapshot().totals.claims_refused, 995);
    // What ends makes room again, and nothing of it stays counted.
    world.put(Input::SessionGone { session: SessionId(2) });
    assert_eq!(world.in_flight(), 1);
    assert!(claim(&mut world, 1, false).is_some());
}

#[test]
fn suspended_claims_take_no_room_from_running_ones_and_have_a_bound_of_their_own() {
    let mut world = World::new(policy(&[1]));
    let register = |world: &mut World, lease, suspended| {
        let held = Held { session: SessionId(2), lease: LeaseId(lease), pool: POOL, suspended, ..Held::default() };
        matches!(world.put(Input::Register(held))[..], [Output::Registered { new: Some(_), .. }, ..])
    };
    let suspended = (0..5_000).filter(|n| register(&mut world, *n, true)).count();
    assert_eq!((suspended, world.in_flight()), (1_024, 0));
    assert_eq!((register(&mut world, 5_000, false), register(&mut world, 5_001, false)), (true, false));
    world.put(Input::SessionGone { session: SessionId(2) });
    assert!(register(&mut world, 0, true));
}

#[test]
fn an_unlimited_pool_believes_as_many_as_the_node_may_count() {
    let mut policy = policy(&[]);
    (policy.pools[0].unlimited, policy.node.cap) = (true, 7);
    let mut world = World::new(policy);
    assert_eq!((0..100).filter(|n| claim(&mut world, *n, false).is_some()).count(), 7);
}

#[test]
fn what_the_daemon_had_recorded_is_no_claim() {
    let mut world = World::new(policy(&[2]));
    let restored = (0..10).filter(|n| claim(&mut world, *n, true).is_some()).count();
    assert_eq!((restored, world.in_flight()), (10, 10));
    assert!(claim(&mut world, 10, false).is_some(), "recorded leases use up no room of claims");
}

#[test]
fn a_revoked_lease_is_not_registered_again() {
    let mut world = World::new(policy(&[4]));
    let revoked = world.held_for(1);
    world.put(Input::Revoke { lease: revoked });
    assert_eq!(claim(&mut world, revoked.0, false), None);
    // Nor one that this run has never handed out.
    assert_eq!(claim(&mut world, revoked.0 + 1, false), None);
    // One that ended with its session may run still.
    let ended = lease(&world.ask(|acquire| acquire.session = SESSION));
    world.put(Input::SessionGone { session: SESSION });
    assert!(claim(&mut world, ended.0, false).is_some());
}
