//! Leases: every way they end, and what late operations do to them.

use crate::world::{POOL, SESSION, World, ended, is_parked, lease, member, policy};
use governor_engine::id::{KeyId, LeaseId, MemberId, RequestId, SessionId, SiteId};
use governor_engine::io::{EndCause, Held, Input, Kind, Output, Registration, RejectReason, Work};
use governor_engine::time::Duration;

#[test]
fn every_ending_gives_the_slot_back_exactly_once() {
    let mut world = World::new(policy(&[2]));
    for round in 0..10_000_u32 {
        let lease = world.held_for(1);
        match round % 4 {
            0 => drop(world.release(lease)),
            1 => drop(world.put(Input::Revoke { lease })),
            2 => drop(world.put(Input::SessionGone { session: SESSION })),
            _ => {
                world.put(Input::Cancel { session: SESSION, request: RequestId(world.next) });
                world.release(lease);
                world.release(lease);
            }
        }
        assert_eq!(world.in_flight(), 0, "round {round}");
    }
}

#[test]
fn a_second_release_touches_nothing_and_is_counted() {
    let mut world = World::new(policy(&[3]));
    let first = world.held_for(1);
    world.release(first);
    world.release(first);
    world.release(LeaseId(99));
    assert_eq!((world.in_flight(), world.engine.snapshot().totals.unknown), (0, 2));

    let held: Vec<_> = (0..3).map(|_| world.held_for(1)).collect();
    assert!(!held.contains(&first), "ids are never reused");
    assert!(is_parked(&world.ask_for(1)));
    let revoked = world.put(Input::Renew { session: SESSION, lease: first, idle: None });
    assert_eq!(revoked, [Output::UnknownLease { session: SESSION, lease: first }]);
    world.put(Input::Release { session: SessionId(2), lease: held[0] });
    assert_eq!(world.in_flight(), 3, "another's lease is not touched");
}

#[test]
fn a_refused_lease_moves_once_and_keeps_its_id() {
    let mut world = World::new(policy(&[4, 4]));
    let held = world.held_for(1);
    let moved = world.put(Input::Move { session: SESSION, request: RequestId(50), lease: held });
    assert_eq!((lease(&moved), member(&moved)), (held, 1));
    let again = world.put(Input::Move { session: SESSION, request: RequestId(51), lease: held });
    let why = RejectReason::NoSuchLease;
    assert_eq!(again, [Output::Rejected { session: SESSION, request: RequestId(51), why }]);
    assert_eq!(world.in_flight(), 1);
    assert_eq!(world.granted(), 1, "a move is no grant");
}

#[test]
fn a_lease_that_moves_waits_in_front_for_what_is_left_of_its_wait() {
    let mut world = World::new(policy(&[1, 1]));
    let moving = world.held_for(1);
    let other = world.held_for(2);
    assert!(is_parked(&world.ask_for(3)));
    world.at(1_000);
    assert!(is_parked(&world.put(Input::Move { session: SESSION, request: RequestId(50), lease: moving })));
    let woken = world.release(other);
    let Some(Output::Moved { grant: first, from }) = woken.first() else { panic!("{woken:?}") };
    assert_eq!((first.request, first.lease, first.context.member), (RequestId(50), moving, Some(MemberId(1))));
    assert_eq!(*from, Some(MemberId(0)));
    // The slot it left behind went to the one that waited.
    assert_eq!((woken.len(), world.in_flight(), world.granted()), (2, 2, 3));
}

#[test]
fn a_lost_session_keeps_its_leases_for_the_grace_and_can_register_them() {
    let mut world = World::new(policy(&[2]));
    let (kept, lost) = (world.held_for(1), world.held_for(1));
    world.put(Input::SessionLost { session: SESSION });
    world.at(4_000);
    let held = Held {
        session: SessionId(2),
        lease: kept,
        pool: POOL,
        key: Some(KeyId(1)),
        member: Some(MemberId(0)),
        kind: Kind::Ordinary,
        age: Duration::from_secs(4),
        ..Held::default()
    };
    let answer = world.put(Input::Register(held.clone()));
    let same = |new: &Registration| (new.lease, new.context.session, new.from) == (kept, SessionId(2), Some(SESSION));
    assert!(matches!(&answer[..], [Output::Registered { new: Some(new), .. }] if same(new)), "{answer:?}");
    world.at(5_000);
    let left: Vec<_> = world.engine.leases().iter().map(|view| (view.lease, view.session)).collect();
    assert_eq!(left, [(kept, SessionId(2))]);

    // One that is not live any more is entered anew, whether it fits or not.
    for age in 0..2 {
        world.put(Input::Register(Held { lease: lost, age: Duration::from_secs(age), ..held.clone() }));
    }
    assert_eq!(world.in_flight(), 3);
    assert!(is_parked(&world.ask_for(2)));
}

#[test]
fn every_end_of_a_lease_is_counted_under_its_own_cause() {
    let mut policy = policy(&[9]);
    (policy.node.lease_ttl, policy.node.reclaim_grace) = (Duration::from_secs(10), Duration::from_secs(10));
    let mut world = World::new(policy);
    let released = world.held_for(1);
    world.release(released);
    let revoked = world.held_for(1);
    world.put(Input::Revoke { lease: revoked });
    world.put(Input::Revoke { lease: revoked });
    world.put(Input::Renew { session: SESSION, lease: revoked, idle: None });
    world.held_for(1);
    // Its grace and its time are over in the same instant: it was a leak.
    let site = SiteId(7);
    let leaked = lease(&world.ask(|acquire| (acquire.ends_with_client, acquire.site) = (true, site)));
    world.put(Input::ClientGone { session: SESSION, work: Work::Lease(leaked) });
    let ends = world.at(10_000);
    assert!(ends.iter().any(|order| ended(order) == Some((leaked, EndCause::Reclaimed))));
    world.held_for(1);
    world.put(Input::SessionGone { session: SESSION });
    let totals = world.engine.snapshot().totals;
    let by_cause =
        [totals.released, totals.revoked, totals.expired, totals.reclaimed, totals.session_gone, totals.unknown];
    assert_eq!(by_cause, [1, 1, 1, 1, 1, 2]);
    assert_eq!(totals.lost, [(SiteId::default(), 1, 0), (site, 0, 1)]);
}
