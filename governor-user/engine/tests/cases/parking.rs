//! Requests that wait, and clients that do not.

use crate::world::{SESSION, World, is_parked, policy};
use governor_engine::id::{KeyId, LeaseId, RequestId};
use governor_engine::io::{Input, Origin, Output, Reason};
use governor_engine::policy::FairShare;
use governor_engine::time::{Duration, Instant};

/// One slot, streams of a second, and clients that ask one after another this often and leave three seconds later, each
/// with its key: how many finish and how many are refused.
fn serve(clients: u64, every_millis: u64, until_millis: u64) -> (u32, u32) {
    let mut world = World::new(policy(&[1]));
    let mut running: Option<(LeaseId, u64)> = None;
    let (mut finished, mut refused) = (0, 0);
    for now in (0..until_millis).step_by(10) {
        let mut seen = world.at(now);
        if let Some((lease, end)) = running
            && end == now
        {
            finished += 1;
            running = None;
            seen.extend(world.release(lease));
        }
        if now % every_millis == 0 && now / every_millis < clients {
            let deadline = Instant::ZERO.after(Duration::from_millis(now + 3_000));
            let key = KeyId(u128::from(now / every_millis % 20));
            seen.extend(world.ask(|acquire| (acquire.key, acquire.deadline) = (Some(key), Some(deadline))));
        }
        for output in seen {
            if let Output::Began(grant) = &output {
                running = Some((grant.lease, now + 1_000));
            }
            refused += u32::from(matches!(output, Output::Refused { .. }));
        }
    }
    assert_eq!(running, None, "what was begun has ended");
    (finished, refused)
}

#[test]
fn no_work_is_spent_on_clients_that_will_be_gone() {
    assert_eq!(serve(10, 100, 6_000), (3, 7));
}

#[test]
fn more_arrivals_do_not_make_fewer_completions() {
    // Twenty seconds of one slot: no more than twenty streams and the three that were waiting can end.
    for every_millis in [500, 100, 50, 20] {
        let (finished, _) = serve(20_000 / every_millis, every_millis, 25_000);
        assert!((18..=23).contains(&finished), "{finished} finished at one arrival in {every_millis} ms");
    }
}

#[test]
fn each_bound_of_waiting_names_its_numbers() {
    let mut policy = policy(&[20]);
    (policy.pools[0].max_parked_per_key, policy.node.max_parked) = (2, 8);
    let mut world = World::new(policy.clone());
    for key in 0..20 {
        world.held_for(key);
    }
    let refused = |world: &mut World, key| {
        let outputs = world.ask_for(key);
        let [Output::Refused { decision, .. }] = &outputs[..] else { panic!("{outputs:?}") };
        (decision.reason, decision.origin, decision.numbers.limit, decision.numbers.limited)
    };
    assert!((0..2).all(|_| is_parked(&world.ask_for(1))));
    assert_eq!(refused(&mut world, 1), (Reason::KeyQueueFull, Origin::Key, 2, 2));
    assert!((30..36).all(|key| is_parked(&world.ask_for(key))));
    assert_eq!(refused(&mut world, 40), (Reason::QueueFull, Origin::Node, 8, 8));

    // A bound that is set is the bound, also at run time.
    policy.pools[0].max_waiting = Some(5);
    world.put(Input::PolicyChanged(Box::new(policy)));
    assert_eq!(refused(&mut world, 40), (Reason::QueueFull, Origin::Pool, 5, 8));
}

#[test]
fn a_pool_lets_as_many_wait_as_it_has_ordinary_slots_unless_set() {
    let mut policy = policy(&[20]);
    policy.pools[0].fair_share = FairShare::Off;
    policy.pools[0].members[0].reserve = 2;
    for (set, most) in [(None, 18), (Some(0), 0), (Some(40), 40)] {
        policy.pools[0].max_waiting = set;
        let mut world = World::new(policy.clone());
        for key in 0..18 {
            world.held_for(key);
        }
        let waiting = (100..200).filter(|key| is_parked(&world.ask_for(*key))).count();
        assert_eq!(waiting, most, "{set:?}");
    }
}

#[test]
fn cancelling_a_parked_request_leaves_the_active_lease_alone() {
    let mut world = World::new(policy(&[1]));
    world.held_for(1);
    assert!(is_parked(&world.ask_for(1)));
    assert!(world.put(Input::Cancel { session: SESSION, request: RequestId(2) }).is_empty());
    assert_eq!((world.in_flight(), world.engine.snapshot().pools[0].parked), (1, 0));
}
