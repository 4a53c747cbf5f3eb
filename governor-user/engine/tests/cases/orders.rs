//! What operators order for members and for the node, and the bound of what proxies report.

use crate::world::{POOL, SESSION, World, is_parked, lease, member, policy, shed};
use governor_engine::id::{MemberId, RequestId};
use governor_engine::io::{Acquire, Input, Kind, MemberNews, MemberOrder, Origin, Output, Parent, Reason};
use governor_engine::snapshot::{CoolingCause, MemberState};
use governor_engine::time::{Duration, Instant};

fn order(world: &mut World, member: u32, order: MemberOrder) -> Vec<Output> {
    world.put(Input::MemberOrder { pool: POOL, member: MemberId(member), order })
}

fn after(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

const DAYS_49: u64 = 49 * 86_400;

#[test]
fn no_report_cools_a_member_longer_than_the_bound() {
    for (news, defaults) in [
        (MemberNews::RateLimited { until: Some(after(DAYS_49)) }, 30),
        (MemberNews::RateLimited { until: None }, 9_000),
        (MemberNews::Overloaded, 9_000),
    ] {
        let mut policy = policy(&[4, 4]);
        policy.pools[0].rate_limited_cooldown = Duration::from_secs(defaults);
        policy.pools[0].overloaded_cooldown = Duration::from_secs(defaults);
        let mut world = World::new(policy);
        world.report(0, news);
        assert_eq!(world.engine.capacity(POOL), Some(4), "{news:?}");
        world.at(599_999);
        assert_eq!(world.engine.capacity(POOL), Some(4), "{news:?}");
        world.at(600_000);
        assert_eq!(world.engine.capacity(POOL), Some(8), "{news:?}");
    }
}

#[test]
fn clients_of_a_pool_that_cools_are_told_no_more_than_the_bound() {
    let mut world = World::new(policy(&[4]));
    world.report(0, MemberNews::RateLimited { until: Some(after(DAYS_49)) });
    let told = |outputs: &[Output]| match outputs {
        [Output::Refused { decision, .. }] => (decision.reason, decision.retry_after),
        _ => panic!("{outputs:?}"),
    };
    // After a reset up to a quarter, at most 12 s, is added so that clients do not return together.
    let most = Duration::from_secs(612);
    let (reason, retry_after) = told(&world.ask_for(1));
    assert!(reason == Reason::AllCooling && retry_after <= most, "{retry_after:?}");
    // An operator may order more, and may end it any time.
    order(&mut world, 0, MemberOrder::Cool { until: after(DAYS_49) });
    let (reason, retry_after) = told(&world.ask_for(1));
    assert!(reason == Reason::AllCooling && retry_after <= most, "{retry_after:?}");
}

#[test]
fn a_lower_bound_ends_the_cool_downs_that_run() {
    let mut policy = policy(&[4, 4]);
    let mut world = World::new(policy.clone());
    world.report(0, MemberNews::RateLimited { until: Some(after(300)) });
    policy.pools[0].max_cooldown = Duration::from_secs(20);
    world.put(Input::PolicyChanged(Box::new(policy)));
    world.at(20_000);
    assert_eq!(world.engine.capacity(POOL), Some(8));
}

#[test]
fn an_operator_ends_every_cool_down_and_who_waits_goes() {
    let mut world = World::new(policy(&[4]));
    world.report(0, MemberNews::RateLimited { until: Some(after(20)) });
    order(&mut world, 0, MemberOrder::Cool { until: after(25) });
    assert!(is_parked(&world.ask_for(1)));
    assert!(world.report(0, MemberNews::Up).is_empty(), "a proxy does not end what an operator ordered");
    assert_eq!(world.engine.snapshot().pools[0].members[0].cooling, Some(CoolingCause::Operator));
    assert_eq!(member(&order(&mut world, 0, MemberOrder::Up)), 0);
    assert_eq!(world.engine.snapshot().pools[0].members[0].state, MemberState::Up);
}

#[test]
fn an_ordered_cool_down_ends_by_itself_at_its_time() {
    let mut world = World::new(policy(&[4, 4]));
    order(&mut world, 0, MemberOrder::Cool { until: after(7_200) });
    world.at(7_199_999);
    assert_eq!(member(&world.ask_for(1)), 1);
    world.at(7_200_000);
    assert_eq!(world.engine.capacity(POOL), Some(8));
}

#[test]
fn a_drained_member_keeps_its_streams_and_takes_nothing_until_undrained() {
    let mut world = World::new(policy(&[1, 1]));
    let running = world.held_for(1);
    order(&mut world, 0, MemberOrder::Drain { on: true });
    assert_eq!(member(&world.ask_for(2)), 1);
    assert!(world.release(running).is_empty());
    assert!(is_parked(&world.ask_for(3)));
    // A new policy does not undo it.
    world.put(Input::PolicyChanged(Box::new(policy(&[1, 1]))));
    assert_eq!(world.engine.snapshot().pools[0].members[0].state, MemberState::Draining);
    assert_eq!(member(&order(&mut world, 0, MemberOrder::Drain { on: false })), 0);
}

#[test]
fn orders_for_what_is_not_there_change_nothing() {
    let mut world = World::new(policy(&[4]));
    assert!(order(&mut world, 9, MemberOrder::Drain { on: true }).is_empty());
    assert_eq!(world.engine.capacity(POOL), Some(4));
}

#[test]
fn a_drained_node_refuses_what_is_new_and_finishes_what_runs() {
    let mut world = World::new(policy(&[1, 2]));
    let lease = lease(&world.ask_for(1));
    world.held_for(2);
    world.held_for(3);
    assert!(is_parked(&world.ask_for(4)));
    // Who waits is refused at once, who comes too: ordinary, re-attached, and through the bypass.
    assert_eq!(shed(&world.put(Input::Drain { on: true })), (Reason::Draining, Origin::Node, 529));
    world.put(Input::Bypass { on: true });
    assert_eq!(shed(&world.ask_for(5)), (Reason::Draining, Origin::Node, 529));
    let attach = |acquire: &mut Acquire| (acquire.kind, acquire.sticky) = (Kind::Reattach, Some(MemberId(1)));
    assert_eq!(shed(&world.ask(attach)), (Reason::Draining, Origin::Node, 529));
    world.put(Input::Bypass { on: false });

    // A child of running work is part of it, and so is a move.
    let hop = |acquire: &mut Acquire| acquire.parent = Some(Parent::Hop(lease));
    assert!(matches!(world.ask(hop)[..], [Output::Passed { .. }]));
    let (session, request) = (SESSION, RequestId(900));
    assert!(is_parked(&world.put(Input::Move { session, request, lease })));
    assert!(world.put(Input::Drain { on: true }).is_empty(), "what moves holds its lease");
    assert!(world.engine.snapshot().draining);

    world.put(Input::Drain { on: false });
    assert!(is_parked(&world.ask_for(6)));
}

#[test]
fn a_suspended_lease_is_not_resumed_on_a_drained_node() {
    let mut world = World::new(policy(&[2]));
    let lease = lease(&world.ask_for(1));
    world.put(Input::Suspend { session: SESSION, lease });
    world.put(Input::Drain { on: true });
    let resume = Input::Resume { session: SESSION, request: RequestId(900), lease, max_wait: None };
    assert_eq!(shed(&world.put(resume.clone())), (Reason::Draining, Origin::Node, 529));
    world.put(Input::Drain { on: false });
    let again = Input::Resume { session: SESSION, request: RequestId(901), lease, max_wait: None };
    assert!(matches!(world.put(again)[..], [Output::Resumed(_)]));
}
