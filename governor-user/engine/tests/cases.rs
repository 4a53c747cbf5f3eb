//! Cases from the field, one test each, through the engine's surface only.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Held, Input, Kind, MemberNews, Origin, Output, Reason, RejectReason, RevokeReason};
use governor_engine::policy::{FairShare, MemberPolicy, Mode, NodePolicy, Policy, PolicyError, PoolPolicy};
use governor_engine::snapshot::MemberState;
use governor_engine::time::{Duration, Instant};

const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);

fn policy(slots: &[u32]) -> Policy {
    let member =
        |(n, slots): (usize, &u32)| MemberPolicy { name: format!("m{n}"), slots: *slots, reserve: 0, draining: false };
    Policy {
        node: NodePolicy { lease_ttl: Duration::from_secs(3600), ..NodePolicy::default() },
        pools: vec![PoolPolicy {
            name: "pool".to_owned(),
            members: slots.iter().enumerate().map(member).collect(),
            fair_share: FairShare::EqualSplit { threshold: 80 },
            mode: Mode::Enforce,
            min_guarantee: 2,
            max_wait: Duration::from_secs(30),
            max_parked_per_key: 16,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            ..PoolPolicy::default()
        }],
        ..Policy::default()
    }
}

struct World {
    engine: Engine,
    now: Instant,
    next: u32,
}

impl World {
    fn new(policy: Policy) -> Self {
        let engine = Engine::new(policy, 1).expect("the policy is sound");
        Self { engine, now: Instant::ZERO, next: 0 }
    }

    fn put(&mut self, input: Input) -> Vec<Output> {
        self.engine.handle_input(input, self.now);
        self.outputs()
    }

    fn at(&mut self, millis: u64) -> Vec<Output> {
        self.now = Instant::ZERO.after(Duration::from_millis(millis));
        self.engine.handle_timeout(self.now);
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<Output> {
        self.engine.check_invariants();
        std::iter::from_fn(|| self.engine.poll_output()).collect()
    }

    fn ask(&mut self, change: impl FnOnce(&mut Acquire)) -> Vec<Output> {
        self.next += 1;
        let mut acquire = Acquire {
            session: SESSION,
            request: RequestId(self.next),
            pool: POOL,
            key: None,
            candidates: vec![],
            sticky: None,
            max_wait: None,
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        };
        change(&mut acquire);
        self.put(Input::Acquire(acquire))
    }

    fn ask_for(&mut self, key: u128) -> Vec<Output> {
        self.ask(|acquire| acquire.key = Some(KeyId(key)))
    }

    fn held_for(&mut self, key: u128) -> LeaseId {
        lease(&self.ask_for(key))
    }

    fn release(&mut self, lease: LeaseId) -> Vec<Output> {
        self.put(Input::Release { session: SESSION, lease })
    }

    fn report(&mut self, member: u32, news: MemberNews) -> Vec<Output> {
        self.put(Input::MemberReport { pool: POOL, member: MemberId(member), news })
    }

    fn in_flight(&self) -> u32 {
        self.engine.snapshot().pools[0].in_flight
    }
}

fn lease(outputs: &[Output]) -> LeaseId {
    match outputs {
        [Output::Grant(grant)] => grant.lease.expect("counted work"),
        other => panic!("not one grant: {other:?}"),
    }
}

fn member(outputs: &[Output]) -> u32 {
    match outputs {
        [Output::Grant(grant)] => grant.member.expect("a member").0,
        other => panic!("not one grant: {other:?}"),
    }
}

fn is_parked(outputs: &[Output]) -> bool {
    matches!(outputs, [Output::Parked { .. }])
}

fn shed(outputs: &[Output]) -> (Reason, Origin, u16) {
    match outputs {
        [Output::Shed { decision, .. }] => (decision.reason, decision.origin, decision.status),
        other => panic!("not one refusal: {other:?}"),
    }
}

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
    assert_eq!(revoked, [Output::Revoke { session: SESSION, lease: first, reason: RevokeReason::Unknown }]);
    world.put(Input::Release { session: SessionId(2), lease: held[0] });
    assert_eq!(world.in_flight(), 3, "another's lease is not touched");
}

#[test]
fn exactly_one_of_many_is_admitted_one_below_the_share() {
    let mut world = World::new(policy(&[10]));
    for _ in 0..4 {
        world.held_for(1);
        world.held_for(2);
    }
    let granted = (0..5).filter(|_| !is_parked(&world.ask_for(1))).count();
    assert_eq!(granted, 1);
}

#[test]
fn time_alone_gives_no_slot_back_and_the_light_key_gets_the_next_one() {
    let mut world = World::new(policy(&[4]));
    let held: Vec<_> = (0..4).map(|_| world.held_for(1)).collect();
    assert!(world.at(2_000).is_empty());
    assert!(is_parked(&world.ask_for(1)));
    assert!(is_parked(&world.ask_for(2)));
    world.at(20_000);
    assert_eq!(world.in_flight(), 4);

    let woken = world.release(held[0]);
    let Some(Output::Grant(grant)) = woken.first() else { panic!("{woken:?}") };
    assert_eq!((grant.request, grant.waited), (RequestId(6), Duration::from_secs(18)));
}

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
    assert!((0..4).all(|_| member(&world.ask(|_| {})) == 0));
    assert_eq!(shed(&world.ask(|_| {})), (Reason::PoolExhausted, Origin::Pool, 529));
    world.at(10_000);
    assert_eq!(world.engine.capacity(POOL), Some(20));
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
    let [Output::Shed { decision, .. }] = &outputs[..] else { panic!() };
    assert_eq!(decision.retry_after, Duration::from_secs(120));
}

#[test]
fn a_refused_lease_moves_once_and_keeps_its_id() {
    let mut world = World::new(policy(&[4, 4]));
    let held = world.held_for(1);
    let moved = world.put(Input::Move { session: SESSION, request: RequestId(50), lease: held });
    assert_eq!((lease(&moved), member(&moved)), (held, 1));
    let again = world.put(Input::Move { session: SESSION, request: RequestId(51), lease: held });
    let why = RejectReason::NoSuchLease;
    assert_eq!(again, [Output::Reject { session: SESSION, request: RequestId(51), why }]);
    assert_eq!(world.in_flight(), 1);
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
    let Some(Output::Grant(first)) = woken.first() else { panic!("{woken:?}") };
    assert_eq!((first.request, first.lease, first.member), (RequestId(50), Some(moving), Some(MemberId(1))));
    // The slot it left behind went to the one that waited.
    assert_eq!((woken.len(), world.in_flight()), (2, 2));
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
    assert!(matches!(&woken[..], [Output::Grant(_)]), "{woken:?}");
}

#[test]
fn a_pool_that_leaves_the_policy_revokes_its_leases() {
    let mut world = World::new(policy(&[1]));
    let held = world.held_for(1);
    world.ask_for(2);
    let outputs = world.put(Input::PolicyChanged(Box::new(Policy { pools: vec![], ..policy(&[]) })));
    let reason = RevokeReason::PoolGone;
    let why = RejectReason::UnknownPool;
    assert_eq!(
        outputs,
        [
            Output::Revoke { session: SESSION, lease: held, reason },
            Output::Reject { session: SESSION, request: RequestId(2), why }
        ]
    );
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
    assert_eq!(answer, [Output::Registered { session: SessionId(2), old: kept, new: Some(kept) }]);
    world.at(5_000);
    let left: Vec<_> = world.engine.leases().iter().map(|view| (view.lease, view.session)).collect();
    assert_eq!(left, [(kept, SessionId(2))]);

    // One from an earlier life is entered anew, whether it fits or not.
    for age in 0..3 {
        world.put(Input::Register(Held { lease: lost, age: Duration::from_secs(age), ..held.clone() }));
    }
    assert_eq!(world.in_flight(), 4);
    assert!(is_parked(&world.ask_for(2)));
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

#[test]
fn a_draining_member_shows_it_and_takes_nothing() {
    let mut policy = policy(&[4, 4]);
    policy.pools[0].members[0].draining = true;
    let mut world = World::new(policy);
    assert_eq!(member(&world.ask_for(1)), 1);
    assert_eq!(world.engine.snapshot().pools[0].members[0].state, MemberState::Draining);
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
