//! Members that fail, cool, drain or keep a reserve.

use crate::world::{POOL, World, is_parked, lease, member, policy, shed};
use governor_engine::id::{KeyId, MemberId};
use governor_engine::io::{Acquire, Input, Kind, MemberNews, Origin, Output, Reason};
use governor_engine::policy::Override;
use governor_engine::snapshot::MemberState;
use governor_engine::time::{Duration, Instant};

#[test]
fn a_member_that_fails_cools_briefly_and_one_stays_selectable() {
    let mut policy = policy(&[4, 4, 4, 4, 4]);
    policy.pools[0].exhausted_status = 529;
    policy.pools[0].max_wait = Duration::ZERO;
    let mut world = World::new(policy);
    for failing in 0..5 {
        world.report(failing, MemberNews::Overloaded);
        world.report(failing, MemberNews::Overloaded);
    }
    // All fail: the one that is back first takes what there is, and beyond that the answer is about everybody.
    assert_eq!(world.engine.capacity(POOL), Some(4));
    assert!((0..4).all(|key| member(&world.ask_for(key)) == 0));
    assert_eq!(shed(&world.ask_for(9)), (Reason::PoolExhausted, Origin::Pool, 529));
    world.at(10_000);
    assert_eq!(world.engine.capacity(POOL), Some(20));
}

#[test]
fn figures_count_the_failing_member_that_stays_selectable() {
    let mut policy = policy(&[4, 4, 4]);
    policy.pools[0].members[2].draining = true;
    policy.pools[0].max_wait = Duration::ZERO;
    let mut world = World::new(policy);
    let figures = |world: &World| world.engine.pool_figures(POOL).unwrap();
    let held = world.held_for(1);
    world.report(0, MemberNews::Overloaded);
    let one = figures(&world);
    assert_eq!((one.members, one.usable, one.failing, one.cooling), (3, 2, 1, 1));
    world.report(1, MemberNews::Overloaded);
    let all = figures(&world);
    assert_eq!((all.usable, all.failing, all.cooling), (2, 2, 1));
    assert_eq!((all.failures, all.recoveries), (2, 0));
    let ends: Vec<_> = world.engine.snapshot().pools[0].members.iter().map(|row| row.cooling_until.is_some()).collect();
    assert_eq!(ends, [true, true, false]);
    world.at(2_500);
    world.release(held);
    assert_eq!((figures(&world).ended, figures(&world).held), (1, Duration::from_millis(2_500)));
}

#[test]
fn only_refusals_for_want_of_a_slot_are_refusals_of_the_pool() {
    let mut policy = policy(&[1]);
    policy.pools[0].max_wait = Duration::ZERO;
    let mut world = World::new(policy);
    world.held_for(1);
    assert_eq!(shed(&world.ask_for(2)).0, Reason::PoolExhausted);
    let suspended = Override { suspend: true, ..Override::default() };
    world.put(Input::Override { key: KeyId(3), with: Some(suspended) });
    assert_eq!(shed(&world.ask_for(3)).0, Reason::Suspended);
    assert_eq!(world.engine.pool_figures(POOL).unwrap().refused, 1);
}

#[test]
fn the_oldest_parked_request_of_a_pool_is_known() {
    let mut world = World::new(policy(&[1]));
    assert!(world.engine.oldest_parked().is_empty());
    world.held_for(1);
    world.at(300);
    assert!(is_parked(&world.ask_for(2)));
    world.at(900);
    assert!(is_parked(&world.ask_for(3)));
    assert_eq!(world.engine.oldest_parked(), [(POOL, Instant::ZERO.after(Duration::from_millis(300)))].into());
}

#[test]
fn success_of_running_streams_does_not_end_a_cool_down_and_up_does() {
    let mut world = World::new(policy(&[4, 4]));
    let running = world.held_for(1);
    world.report(0, MemberNews::RateLimited { until: Some(Instant::ZERO.after(Duration::from_secs(120))) });
    world.release(running);
    world.at(119_999);
    assert_eq!(member(&world.ask_for(1)), 1);
    world.report(0, MemberNews::Up);
    assert_eq!(member(&world.ask_for(1)), 0);
}

#[test]
fn when_all_cool_after_429_a_near_reset_is_waited_for_and_a_far_one_is_told() {
    let mut world = World::new(policy(&[4]));
    let reset = |seconds| MemberNews::RateLimited { until: Some(Instant::ZERO.after(Duration::from_secs(seconds))) };
    world.report(0, reset(20));
    assert!(is_parked(&world.ask_for(1)));
    world.report(0, reset(120));
    let outputs = world.ask_for(2);
    assert_eq!(shed(&outputs), (Reason::AllCooling, Origin::Upstream, 429));
    let [Output::Refused { decision, .. }] = &outputs[..] else { panic!() };
    assert!((120..=132).contains(&decision.retry_after.as_secs()), "{decision:?}");
}

#[test]
fn re_attached_work_may_use_the_reserve_of_its_own_member_only() {
    let mut policy = policy(&[2, 2]);
    policy.pools[0].members.iter_mut().for_each(|member| member.reserve = 1);
    let mut world = World::new(policy);
    world.held_for(1);
    world.held_for(2);
    let attach = |acquire: &mut Acquire| (acquire.kind, acquire.sticky) = (Kind::Reattach, Some(MemberId(1)));
    assert_eq!(member(&world.ask(attach)), 1);
    assert!(is_parked(&world.ask(attach)));
    assert!(is_parked(&world.ask_for(3)), "the other member's reserve is not for ordinary work");
}

#[test]
fn a_draining_member_shows_it_and_takes_nothing() {
    let mut policy = policy(&[4, 4]);
    policy.pools[0].members[0].draining = true;
    let mut world = World::new(policy);
    assert_eq!(member(&world.ask_for(1)), 1);
    assert_eq!(world.engine.snapshot().pools[0].members[0].state, MemberState::Draining);
}

#[test]
fn members_that_fail_are_everybodys_529_and_a_key_over_its_share_is_its_own_429() {
    let mut policy = policy(&[4, 4, 4, 4, 4]);
    (policy.pools[0].exhausted_status, policy.pools[0].max_wait) = (529, Duration::ZERO);
    let mut world = World::new(policy);
    let member_2 = |acquire: &mut Acquire| acquire.candidates = vec![MemberId(2)];
    let running: Vec<_> = (0..4).map(|_| lease(&world.ask(member_2))).collect();

    // Eight fresh requests fail on one member while its streams run on and end well.
    (0..8).for_each(|_| drop(world.report(2, MemberNews::Overloaded)));
    running.into_iter().for_each(|lease| drop(world.release(lease)));
    assert_eq!(shed(&world.ask(member_2)), (Reason::PoolExhausted, Origin::Pool, 529));
    assert_ne!(member(&world.ask_for(1)), 2);

    // No ramp: eight failures cool no longer than one.
    world.at(10_000);
    assert_eq!(member(&world.ask(member_2)), 2);

    // A 429 takes only its own member out, until its reset.
    world.report(3, MemberNews::RateLimited { until: Some(Instant::ZERO.after(Duration::from_secs(130))) });
    assert_eq!(world.engine.capacity(POOL), Some(16));
    world.at(129_999);
    assert_eq!(world.engine.capacity(POOL), Some(16));
    world.at(130_000);
    assert_eq!(world.engine.capacity(POOL), Some(20));

    // Of twenty slots a key beside another may hold ten while the pool is congested.
    for key in [[1; 13].as_slice(), &[2; 2]].concat() {
        world.held_for(key);
    }
    assert_eq!(shed(&world.ask_for(1)), (Reason::FairShare, Origin::Key, 429));
    assert!(matches!(&world.ask_for(2)[..], [Output::Began(_)]));
}
