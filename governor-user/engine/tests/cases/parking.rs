//! Requests that wait, and clients that do not.

use governor_engine::id::{LeaseId, RequestId};
use governor_engine::io::{Input, Output};
use governor_engine::time::{Duration, Instant};

use crate::world::{SESSION, World, is_parked, policy};

#[test]
fn no_work_is_spent_on_clients_that_will_be_gone() {
    let mut world = World::new(policy(&[1]));
    let mut running: Option<(LeaseId, u64)> = None;
    let (mut finished, mut refused) = (0, 0);
    for tick in 0..60_u64 {
        let now = tick * 100;
        let mut seen = world.at(now);
        if let Some((lease, end)) = running
            && end == now
        {
            finished += 1;
            running = None;
            seen.extend(world.release(lease));
        }
        if tick < 10 {
            let deadline = Instant::ZERO.after(Duration::from_millis(now + 3_000));
            seen.extend(world.ask(|acquire| acquire.deadline = Some(deadline)));
        }
        for output in seen {
            if let Output::Grant(grant) = &output {
                running = grant.lease.map(|lease| (lease, now + 1_000));
            }
            refused += u32::from(matches!(output, Output::Shed { .. }));
        }
    }
    assert_eq!((finished, refused, running), (3, 7, None));
}

#[test]
fn cancelling_a_parked_request_leaves_the_active_lease_alone() {
    let mut world = World::new(policy(&[1]));
    world.held_for(1);
    assert!(is_parked(&world.ask_for(1)));
    assert!(world.put(Input::Cancel { session: SESSION, request: RequestId(2) }).is_empty());
    assert_eq!((world.in_flight(), world.engine.snapshot().pools[0].parked), (1, 0));
}
