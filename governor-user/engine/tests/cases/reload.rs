//! Policies that replace one another.

use crate::world::{POOL, SESSION, World, ended, is_parked, policy};
use governor_engine::Engine;
use governor_engine::id::RequestId;
use governor_engine::io::{EndCause, Input, Output, RejectReason};
use governor_engine::policy::{FairShare, Policy, PolicyError};
use governor_engine::time::Duration;

#[test]
fn a_reload_keeps_running_leases_and_wakes_who_fits() {
    let mut world = World::new(policy(&[4]));
    let held: Vec<_> = (0..4).map(|_| world.held_for(1)).collect();
    assert!(world.put(Input::PolicyChanged(Box::new(policy(&[4])))).is_empty());
    assert!(is_parked(&world.ask_for(1)));
    assert!(is_parked(&world.ask_for(1)));
    world.put(Input::PolicyChanged(Box::new(policy(&[2]))));
    assert_eq!((world.in_flight(), world.engine.capacity(POOL)), (4, Some(2)));
    let granted: usize = held[..3].iter().map(|lease| world.release(*lease).len()).sum();
    assert_eq!((granted, world.in_flight()), (1, 2));

    let mut broken = policy(&[9]);
    broken.pools[0].fair_share = FairShare::EqualSplit { threshold: 0 };
    world.put(Input::PolicyChanged(Box::new(broken)));
    assert_eq!((world.engine.capacity(POOL), world.engine.snapshot().totals.policies_refused), (Some(2), 1));

    let woken = world.put(Input::PolicyChanged(Box::new(policy(&[4]))));
    assert!(matches!(&woken[..], [Output::Began(_)]), "{woken:?}");
}

#[test]
fn a_pool_that_leaves_the_policy_revokes_its_leases() {
    let mut world = World::new(policy(&[1]));
    let held = world.held_for(1);
    world.ask_for(2);
    let outputs = world.put(Input::PolicyChanged(Box::new(Policy { pools: vec![], ..policy(&[]) })));
    let why = RejectReason::UnknownPool;
    assert_eq!(ended(&outputs[0]), Some((held, EndCause::PoolGone)));
    assert_eq!(outputs[1..], [Output::Rejected { session: SESSION, request: RequestId(2), why }]);
}

#[test]
fn a_policy_that_makes_no_sense_is_named() {
    let with = |change: fn(&mut Policy)| {
        let mut policy = policy(&[1, 1]);
        change(&mut policy);
        Engine::new(policy, 1).err()
    };
    assert_eq!(with(|_| {}), None);
    let pool = || "pool".to_owned();
    assert_eq!(
        with(|policy| policy.pools[0].fair_share = FairShare::EqualSplit { threshold: 101 }),
        Some(PolicyError::Threshold { pool: pool(), threshold: 101 })
    );
    assert_eq!(
        with(|policy| policy.pools.push(policy.pools[0].clone())),
        Some(PolicyError::DuplicatePool { pool: pool() })
    );
    assert_eq!(
        with(|policy| policy.pools[0].members[1].name = "m0".to_owned()),
        Some(PolicyError::DuplicateMember { pool: pool(), member: "m0".to_owned() })
    );
    assert_eq!(
        with(|policy| policy.pools[0].exhausted_status = 503),
        Some(PolicyError::ExhaustedStatus { pool: pool(), status: 503 })
    );
    assert_eq!(with(|policy| policy.node.lease_ttl = Duration::ZERO), Some(PolicyError::NoLeaseTtl));
}
