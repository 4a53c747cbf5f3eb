//! Floors, weights and orgs under `max-min`.

use crate::world::{World, is_parked, lease, policy, shed};
use governor_engine::id::{ClassId, KeyId, OrgId};
use governor_engine::io::{Acquire, Output, Reason};
use governor_engine::policy::{ClassPolicy, Entitlement, FairShare, Headroom, KeyPolicy, OrgPolicy, Policy};
use governor_engine::time::Duration;

/// `max-min` without headroom.
fn max_min(slots: &[u32]) -> Policy {
    let mut policy = policy(slots);
    policy.pools[0].fair_share = FairShare::MaxMin { headroom: Headroom::Slots(0) };
    policy
}

fn floor(floor: u32) -> Entitlement {
    Entitlement { floor: Some(floor), ..Entitlement::default() }
}

fn granted(outputs: &[Output]) -> Vec<u32> {
    let request = |output: &Output| output.grant().map(|grant| grant.request.0);
    outputs.iter().filter_map(request).collect()
}

#[test]
fn a_guarantee_is_claimed_with_the_first_freed_slots_and_the_rest_is_max_min() {
    const A: u128 = 1;
    const B: u128 = 2;
    const C: u128 = 3;
    let mut policy = max_min(&[10]);
    policy.pools[0].max_wait = Duration::from_secs(600);
    policy.keys = [A, B].map(|key| KeyPolicy { key: KeyId(key), entitlement: floor(2) }).into();
    let mut world = World::new(policy);
    // Alone it may use everything.
    let mut held: Vec<_> = (0..10).map(|_| (A, world.held_for(A))).collect();
    let mut asked = std::collections::BTreeMap::new();
    for key in [A, A, A, B, B, B, B, B, C] {
        assert!(is_parked(&world.ask_for(key)));
        asked.insert(world.next, key);
    }
    let mut turns = vec![];
    for second in 1..=8 {
        world.at(second * 1_000);
        let at = held.iter().position(|(key, _)| *key == A).expect("it holds some");
        let outputs = world.release(held.remove(at).1);
        for output in &outputs {
            let Output::Began(grant) = output else { panic!("{output:?}") };
            let key = asked[&grant.request.0];
            turns.push(key);
            held.push((key, grant.lease));
        }
        // Its demand is endless.
        drop(world.ask_for(A));
        asked.insert(world.next, A);
    }
    assert_eq!(turns[..2], [B, B], "the guarantee first: {turns:?}");
    assert!(turns[..4].contains(&C), "nobody waits for more than four: {turns:?}");
    let holds = |of: u128| held.iter().filter(|(key, _)| *key == of).count();
    assert_eq!((holds(C), holds(A) + holds(B)), (1, 9));
    assert!((4..=5).contains(&holds(A)), "A holds {}", holds(A));
}

#[test]
fn an_org_that_was_idle_gets_its_share_on_return_and_no_burst_above_it() {
    let mut world = World::new(max_min(&[12]));
    let of = |key: u128, org: u128| {
        move |acquire: &mut Acquire| (acquire.key, acquire.org) = (Some(KeyId(key)), Some(OrgId(org)))
    };
    let held: Vec<_> = (0..12).map(|n| lease(&world.ask(of(n % 2, n % 2)))).collect();
    // Ten at once, from ten keys.
    for key in 10..20 {
        assert!(is_parked(&world.ask(of(key, 9))));
    }
    for org in [0, 1, 0, 1, 0, 1] {
        assert!(is_parked(&world.ask(of(org, org))));
    }
    for lease in held.into_iter().take(8) {
        world.release(lease);
    }
    let snapshot = world.engine.snapshot();
    let back = snapshot.pools[0].orgs.iter().find(|org| org.org == OrgId(9)).expect("it is there");
    // A third each, however many keys it comes with.
    assert_eq!((back.in_flight, back.share), (4, Some(4)), "{back:?}");
}

#[test]
fn time_gives_nothing_back_and_a_guarantee_gets_the_very_next_slot() {
    let mut policy = max_min(&[4]);
    policy.orgs = vec![OrgPolicy { org: OrgId(2), entitlement: floor(1) }];
    let mut world = World::new(policy);
    let of = |org: u128| move |acquire: &mut Acquire| (acquire.key, acquire.org) = (Some(KeyId(org)), Some(OrgId(org)));
    let streams: Vec<_> = (0..4).map(|_| lease(&world.ask(of(1)))).collect();

    world.at(2_000);
    assert!(is_parked(&world.ask(of(1))) && is_parked(&world.ask(of(2))));
    // Nothing is refilled: both wait until their patience ends and are refused, one for its share and one for the pool.
    let refused = world.at(32_000);
    let reasons: Vec<_> = refused.iter().map(|output| shed(std::slice::from_ref(output)).0).collect();
    assert_eq!((reasons, world.in_flight()), (vec![Reason::FairShare, Reason::PoolExhausted], 4));

    world.at(60_000);
    assert!(is_parked(&world.ask(of(1))) && is_parked(&world.ask(of(2))));
    let theirs = world.next;
    world.at(80_000);
    assert_eq!(granted(&world.release(streams[0])), [theirs], "the very next slot");
    // Streams without an end can be found by their age.
    let oldest = world.engine.leases().into_iter().min_by_key(|lease| lease.granted).expect("they run");
    assert_eq!(oldest.lease, streams[1]);
}

#[test]
fn weights_decide_what_two_greedy_keys_get() {
    let mut policy = max_min(&[12]);
    let twice = Entitlement { weight: Some(2), ..Entitlement::default() };
    policy.keys = vec![KeyPolicy { key: KeyId(2), entitlement: twice }];
    let mut world = World::new(policy);
    let mut held: Vec<_> = (0..12).map(|_| world.held_for(1)).collect();
    for _ in 0..8 {
        assert!(is_parked(&world.ask_for(2)));
        assert!(is_parked(&world.ask_for(1)));
    }
    while held.len() > 4 {
        world.release(held.remove(0));
    }
    let keys = world.engine.snapshot().pools[0].keys.clone();
    let holds: Vec<_> = keys.iter().map(|key| (key.key.expect("it names one").0, key.in_flight)).collect();
    assert_eq!(holds, [(1, 4), (2, 8)]);
}

#[test]
fn who_waits_without_a_key_keeps_its_turn_when_its_org_gets_another_class() {
    let mut policy = policy(&[1]);
    let entitlement = Entitlement { weight: Some(4), ..Entitlement::default() };
    policy.classes = vec![ClassPolicy { name: "heavy".to_owned(), entitlement }];
    let mut world = World::new(policy);
    let held = world.held_for(7);
    assert!(is_parked(&world.ask(|acquire| (acquire.key, acquire.org) = (None, Some(OrgId(1))))));
    assert!(is_parked(&world.ask(|acquire| acquire.key = None)));
    world.ask(|acquire| {
        (acquire.key, acquire.org, acquire.class) = (Some(KeyId(1)), Some(OrgId(1)), Some(ClassId(0)));
    });
    assert_eq!(granted(&world.release(held)), [2], "the one that waits longest");
}
