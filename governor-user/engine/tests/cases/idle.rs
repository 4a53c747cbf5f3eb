//! Holders that are idle, nested work, and clients that are gone.

use crate::world::{SESSION, World, ended, is_parked, lease, policy, shed};
use governor_engine::id::{LeaseId, OrgId, RequestId, SessionId, TrafficId};
use governor_engine::io::{
    Acquire, EndCause, Held, Input, Level, Origin, Output, Parent, Priority, Reason, RejectReason, Work,
};
use governor_engine::policy::{Mode, TrafficPolicy};
use governor_engine::time::Duration;

fn resume(world: &mut World, lease: LeaseId, max_wait: Option<Duration>) -> Vec<Output> {
    world.next += 1;
    world.put(Input::Resume { session: SESSION, request: RequestId(world.next), lease, max_wait })
}

fn granted(outputs: &[Output]) -> Vec<u32> {
    let request = |output: &Output| output.grant().map(|grant| grant.request.0);
    outputs.iter().filter_map(request).collect()
}

fn child_of(parent: LeaseId) -> impl Fn(&mut Acquire) {
    move |acquire| acquire.parent = Some(Parent::Child(parent))
}

#[test]
fn a_suspended_lease_gives_its_slot_to_who_waits_and_asks_for_one_when_it_resumes() {
    let mut world = World::new(policy(&[1]));
    let idle = world.held_for(1);
    assert!(is_parked(&world.ask_for(2)));
    let next = world.put(Input::Suspend { session: SESSION, lease: idle });
    let busy = lease(&next);
    assert_eq!((world.in_flight(), world.engine.snapshot().node_counted), (1, 1));

    // Refused it is suspended still, and may ask again.
    assert_eq!(shed(&resume(&mut world, idle, Some(Duration::ZERO))), (Reason::PoolExhausted, Origin::Pool, 429));
    assert!(is_parked(&resume(&mut world, idle, None)));
    let back = world.release(busy);
    assert_eq!(lease(&back), idle, "under its own id");
    assert!(world.engine.leases().iter().all(|view| !view.suspended));
    assert_eq!(world.granted(), 3, "a slot was granted again");

    // What is not suspended cannot be resumed.
    let again = resume(&mut world, idle, None);
    assert!(matches!(again[..], [Output::Rejected { why: RejectReason::NoSuchLease, .. }]), "{again:?}");
}

#[test]
fn a_suspended_lease_that_ends_gives_no_slot_back_a_second_time() {
    let mut world = World::new(policy(&[1]));
    let idle = world.held_for(1);
    world.put(Input::Suspend { session: SESSION, lease: idle });
    let busy = world.held_for(2);
    assert!(is_parked(&world.ask_for(3)));
    assert!(world.release(idle).is_empty(), "there was nothing to give");
    assert_eq!(granted(&world.release(busy)), [world.next]);
}

#[test]
fn a_child_may_use_the_reserve_and_is_never_parked_behind_its_parent() {
    let mut policy = policy(&[2]);
    policy.pools[0].members[0].reserve = 1;
    let mut world = World::new(policy);
    let parent = world.held_for(1);
    assert!(is_parked(&world.ask_for(1)), "an ordinary request waits");
    lease(&world.ask(child_of(parent)));
    assert_eq!(shed(&world.ask(child_of(parent))), (Reason::PoolExhausted, Origin::Pool, 429));
}

#[test]
fn a_child_of_critical_work_is_shed_by_no_level() {
    let mut policy = policy(&[8]);
    policy.node.shed_mode = Mode::Enforce;
    let mut world = World::new(policy);
    let parent = lease(&world.ask(|acquire| acquire.priority = Priority::Critical));
    let low = lease(&world.ask(|acquire| acquire.priority = Priority::Sheddable));
    world.put(Input::OverloadChanged { level: Level::Overloaded });
    let sheddable = |parent| {
        move |acquire: &mut Acquire| {
            (acquire.parent, acquire.priority) = (Some(Parent::Child(parent)), Priority::Sheddable);
        }
    };
    // The rank is handed down.
    let child = lease(&world.ask(sheddable(parent)));
    lease(&world.ask(sheddable(child)));
    assert_eq!(shed(&world.ask(sheddable(low))), (Reason::Overload, Origin::Node, 529));
    let critical = |acquire: &mut Acquire| {
        (acquire.parent, acquire.priority) = (Some(Parent::Child(low)), Priority::Critical);
    };
    lease(&world.ask(critical));
    // A parent of another org, or of another session, raises nothing.
    let foreign = world.ask(|acquire| {
        sheddable(parent)(acquire);
        acquire.org = Some(OrgId(1));
    });
    assert_eq!(shed(&foreign), (Reason::Overload, Origin::Node, 529));
    let foreign = world.ask(|acquire| {
        sheddable(parent)(acquire);
        acquire.session = SessionId(2);
    });
    assert_eq!(shed(&foreign), (Reason::Overload, Origin::Node, 529));
}

#[test]
fn a_hop_shares_the_lease_of_its_parent_and_a_parent_of_another_session_is_none() {
    let mut world = World::new(policy(&[1]));
    let parent = world.held_for(1);
    for _ in 0..5 {
        let hop = world.ask(|acquire| acquire.parent = Some(Parent::Hop(parent)));
        let [Output::Passed { context, .. }] = &hop[..] else { panic!("{hop:?}") };
        assert!(context.member.is_some());
    }
    assert_eq!((world.in_flight(), world.engine.snapshot().totals.hops), (1, 5));
    let foreign = |acquire: &mut Acquire| {
        (acquire.session, acquire.parent) = (SessionId(2), Some(Parent::Hop(parent)));
    };
    assert!(is_parked(&world.ask(foreign)), "judged as if it named no parent");
    // With its lease the parent is gone.
    world.put(Input::Suspend { session: SESSION, lease: parent });
    let late = world.ask(|acquire| acquire.parent = Some(Parent::Hop(parent)));
    assert!(is_parked(&late), "{late:?}");
}

#[test]
fn a_client_that_is_gone_is_announced_and_its_slot_comes_back_after_the_grace() {
    let mut policy = policy(&[2]);
    policy.node.reclaim_grace = Duration::from_secs(10);
    let mut world = World::new(policy);
    let ends = lease(&world.ask(|acquire| acquire.ends_with_client = true));
    let stays = lease(&world.ask(|_| {}));
    assert!(is_parked(&world.ask_for(1)));
    for lease in [ends, stays] {
        let told = world.put(Input::ClientGone { session: SESSION, work: Work::Lease(lease) });
        assert!(matches!(told[..], [Output::ClientGone { lease: of, .. }] if of == lease), "{told:?}");
        // Once is enough.
        assert!(world.put(Input::ClientGone { session: SESSION, work: Work::Lease(lease) }).is_empty());
    }
    // A renewal does not keep it: its upstream call may run on, its client is gone.
    world.at(9_999);
    world.put(Input::Renew { session: SESSION, lease: ends, idle: None });
    assert_eq!(world.in_flight(), 2);
    let outputs = world.at(10_000);
    assert_eq!(ended(&outputs[0]), Some((ends, EndCause::Reclaimed)));
    assert_eq!((granted(&outputs), world.engine.snapshot().totals.reclaimed), (vec![world.next], 1));
}

#[test]
fn who_takes_a_lease_over_hears_that_its_client_is_gone() {
    let mut world = World::new(policy(&[1]));
    let held = world.held_for(1);
    world.put(Input::ClientGone { session: SESSION, work: Work::Lease(held) });
    world.put(Input::SessionLost { session: SESSION });
    let heir = SessionId(SESSION.0 + 1);
    let again = || Input::Register(Held { session: heir, lease: held, ..Held::default() });
    let first = world.put(again());
    let [Output::Registered { new: Some(new), .. }, Output::ClientGone { context, lease }] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!((new.lease, new.from, context.session, *lease), (held, Some(SESSION), heir, held));
    let second = world.put(again());
    let own = |order: &Output| matches!(order, Output::Registered { new: Some(new), .. } if new.from == Some(heir));
    assert!(second.len() == 1 && own(&second[0]), "{second:?}");
}

#[test]
fn a_slot_of_one_whose_client_is_gone_goes_to_the_next_in_line_in_the_same_step() {
    let mut world = World::new(policy(&[1]));
    let held = world.held_for(1);
    assert!(is_parked(&world.ask_for(2)) && is_parked(&world.ask_for(3)));
    let gone = RequestId(2);
    let over = world.put(Input::ClientGone { session: SESSION, work: Work::Request(gone) });
    assert_eq!(over, [Output::Rejected { session: SESSION, request: gone, why: RejectReason::ClientGone }]);
    assert_eq!(granted(&world.release(held)), [3]);
}

#[test]
fn a_kind_of_traffic_cannot_fill_the_pool() {
    let mut policy = policy(&[4]);
    policy.pools[0].traffic = vec![TrafficPolicy { name: "media".to_owned(), slots: 2 }];
    let mut world = World::new(policy);
    let media = |acquire: &mut Acquire| acquire.traffic = Some(TrafficId(0));
    let held: Vec<_> = (0..2).map(|_| lease(&world.ask(media))).collect();
    assert!(is_parked(&world.ask(media)));
    let waiting = world.next;
    // Text finds its slots, past the media that wait.
    lease(&world.ask(|_| {}));
    let impatient =
        world.ask(|acquire| (acquire.traffic, acquire.max_wait) = (Some(TrafficId(0)), Some(Duration::ZERO)));
    let [Output::Refused { decision, .. }] = &impatient[..] else { panic!("{impatient:?}") };
    let numbers = (decision.numbers.limit, decision.numbers.limited);
    assert_eq!((decision.reason, decision.origin, numbers), (Reason::SubCapacity, Origin::Pool, (2, 2)));
    assert_eq!(granted(&world.release(held[0])), [waiting]);
}

#[test]
fn under_overload_a_keys_newest_request_is_served_first() {
    for (shed_mode, first) in [(Mode::Enforce, 4), (Mode::Observe, 2)] {
        let mut policy = policy(&[1]);
        policy.node.shed_mode = shed_mode;
        let mut world = World::new(policy);
        let held = world.held_for(1);
        for _ in 0..3 {
            assert!(is_parked(&world.ask_for(1)));
        }
        world.put(Input::OverloadChanged { level: Level::Overloaded });
        assert_eq!(granted(&world.release(held)), [first], "{shed_mode:?}");
    }
}
