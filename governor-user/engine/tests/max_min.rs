//! What `max-min` promises, one promise a test, through the engine's surface only.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Decision, Input, Kind, Outcome, Output, Reason};
use governor_engine::policy::{FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);

fn policy(slots: &[u32], headroom: u32) -> Policy {
    let member =
        |(n, slots): (usize, &u32)| MemberPolicy { name: format!("m{n}"), slots: *slots, reserve: 0, draining: false };
    Policy {
        node: NodePolicy {
            cap: 0,
            max_parked: 10_000,
            lease_ttl: Duration::from_secs(100_000),
            ..NodePolicy::default()
        },
        pools: vec![PoolPolicy {
            name: "pool".to_owned(),
            members: slots.iter().enumerate().map(member).collect(),
            fair_share: FairShare::MaxMin { headroom: Headroom::Slots(headroom) },
            mode: Mode::Enforce,
            min_guarantee: 2,
            max_wait: Duration::from_secs(30),
            max_parked_per_key: 200,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            ..PoolPolicy::default()
        }],
        ..Policy::default()
    }
}

/// An engine, and what its keys hold and await.
struct World {
    engine: Engine,
    now: Instant,
    next: u32,
    chance: u64,
    asked: BTreeMap<RequestId, (u128, Instant)>,
    held: Vec<(u128, LeaseId)>,
    /// Of granted requests, in order: the key and how long it waited.
    granted: Vec<(u128, Duration)>,
    refused: Vec<Decision>,
    recorded: Vec<Decision>,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            engine: Engine::new(policy, 1).expect("the policy is sound"),
            now: Instant::ZERO,
            next: 0,
            chance: 1,
            asked: BTreeMap::new(),
            held: vec![],
            granted: vec![],
            refused: vec![],
            recorded: vec![],
        }
    }

    fn put(&mut self, input: Input) {
        self.engine.handle_input(input, self.now);
        self.learn();
    }

    fn learn(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Began(grant) => {
                    let (key, since) = self.asked.remove(&grant.request).expect("asked once");
                    self.held.push((key, grant.lease));
                    self.granted.push((key, self.now.since(since)));
                }
                Output::Refused { request, decision, .. } => {
                    self.asked.remove(&request);
                    self.refused.push(*decision);
                }
                Output::WouldHave { decision } => self.recorded.push(*decision),
                Output::Parked { .. }
                | Output::Unparked { .. }
                | Output::Ended { .. }
                | Output::LimitsChanged { .. } => {}
                other @ (Output::Passed { .. }
                | Output::Moved { .. }
                | Output::Resumed(_)
                | Output::Suspended { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::ClientGone { .. }
                | Output::Rejected { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::MemberChanged { .. }
                | Output::ModeChanged { .. }) => panic!("no part of these tests: {other:?}"),
            }
        }
    }

    fn ask(&mut self, key: u128, max_wait: Option<Duration>) {
        self.ask_of(key, &[], max_wait);
    }

    /// Asks for a slot on one of these members; on any if none is named.
    fn ask_of(&mut self, key: u128, candidates: &[u32], max_wait: Option<Duration>) {
        self.next += 1;
        let request = RequestId(self.next);
        self.asked.insert(request, (key, self.now));
        self.put(Input::Acquire(Acquire {
            session: SESSION,
            request,
            pool: POOL,
            key: Some(KeyId(key)),
            candidates: candidates.iter().copied().map(MemberId).collect(),
            sticky: None,
            max_wait,
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        }));
    }

    /// Ends one of the running leases; whose it was.
    fn end_any(&mut self) -> Option<u128> {
        let at = self.below(self.held.len() as u64);
        let (key, lease) = (at < self.held.len()).then(|| self.held.swap_remove(at))?;
        self.put(Input::Release { session: SESSION, lease });
        Some(key)
    }

    fn end_one_of(&mut self, key: u128) {
        let at = self.held.iter().position(|(holder, _)| *holder == key).expect("it holds one");
        let (_, lease) = self.held.remove(at);
        self.put(Input::Release { session: SESSION, lease });
    }

    fn holds(&self, key: u128) -> usize {
        self.held.iter().filter(|(holder, _)| *holder == key).count()
    }

    fn below(&mut self, end: u64) -> usize {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.chance >> 33) % end.max(1)).expect("small")
    }
}

#[test]
fn a_lone_key_reaches_capacity_less_headroom_and_no_more() {
    for headroom in [0, 1, 4, 20] {
        let mut world = World::new(policy(&[7, 7, 6], headroom));
        (0..40).for_each(|_| world.ask(1, Some(Duration::ZERO)));
        // Below its guarantee of two it is a newcomer, for which the headroom is kept.
        assert_eq!(world.holds(1), (20 - headroom as usize).max(2), "headroom {headroom}");
    }
}

#[test]
fn the_default_headroom_is_one_in_twenty_five_and_at_least_one() {
    let slots = |capacity| Headroom::default().slots(capacity);
    assert_eq!([0, 1, 10, 49, 50, 98, 100, 1000].map(slots), [0, 1, 1, 1, 2, 3, 4, 40]);
    assert_eq!((Headroom::PerMille(0).slots(98), Headroom::Slots(200).slots(98)), (0, 98));
}

#[test]
fn equal_keys_with_endless_demand_end_up_with_equal_parts_or_one_more() {
    for (slots, headroom, keys) in [(20_u32, 2_u32, 3_u128), (98, 4, 7), (14, 0, 5)] {
        let mut world = World::new(policy(&[slots], headroom));
        // The first comes early and takes all it can; then everybody always waits for more.
        (0..slots).for_each(|_| world.ask(1, None));
        (1..=keys).for_each(|key| (0..20).for_each(|_| world.ask(key, None)));
        for _ in 0..3_000 {
            if let Some(key) = world.end_any() {
                world.ask(key, None);
            }
        }
        let part = (slots - headroom) as usize / usize::try_from(keys).expect("few");
        for key in 1..=keys {
            let held = world.holds(key);
            assert!((part..=part + 1).contains(&held), "{slots} slots, key {key} holds {held}, its part is {part}");
        }
    }
}

#[test]
fn a_share_refusal_implies_that_only_the_headroom_is_left() {
    let mut world = World::new(policy(&[5, 4, 3], 3));
    for _ in 0..20_000 {
        let key = world.below(6) as u128;
        if world.below(100) < 60 {
            let wait = [None, Some(Duration::ZERO)][world.below(2)];
            world.ask(key.min(3), wait);
        } else {
            world.end_any();
        }
        world.now = world.now.after(Duration::from_millis(world.below(300) as u64));
        world.engine.handle_timeout(world.now);
        world.learn();
        assert!(world.held.len() <= 12, "no grant goes beyond capacity");
    }
    let of_share = world.refused.iter().filter(|decision| decision.reason == Reason::FairShare);
    let mut seen = 0;
    for Decision { numbers, .. } in of_share {
        assert!(numbers.in_flight >= numbers.capacity - 3, "{numbers:?}");
        assert!(numbers.key_in_flight >= numbers.share, "{numbers:?}");
        seen += 1;
    }
    assert!(seen > 100, "{seen} refusals say too little");
}

#[test]
fn a_newcomer_is_granted_from_the_headroom_at_once() {
    let mut world = World::new(policy(&[50], 2));
    (0..60).for_each(|_| world.ask(1, None));
    assert_eq!(world.holds(1), 48);
    world.ask(2, None);
    world.ask(3, None);
    assert_eq!((world.holds(2), world.holds(3)), (1, 1));
    assert!(world.granted.iter().all(|(_, waited)| waited.is_zero()));
}

#[test]
fn as_many_newcomers_as_slots_are_granted_at_once() {
    let mut policy = policy(&[14], 1);
    policy.pools[0].min_guarantee = 3;
    let mut world = World::new(policy);
    (1..=14).for_each(|key| world.ask(key, Some(Duration::ZERO)));
    assert!((1..=14).all(|key| world.holds(key) == 1), "{:?}", world.refused);
    // Then it is for want of slots, not of a share.
    world.ask(15, Some(Duration::ZERO));
    let reasons: Vec<_> = world.refused.iter().map(|decision| decision.reason).collect();
    assert_eq!(reasons, [Reason::PoolExhausted]);
}

#[test]
fn the_key_that_uses_most_waits_until_it_is_below_its_share_again() {
    let mut world = World::new(policy(&[10], 0));
    (0..20).for_each(|_| world.ask(1, None));
    (0..5).for_each(|_| world.ask(2, None));
    world.ask(3, None);
    assert_eq!((world.holds(1), world.holds(2), world.holds(3)), (10, 0, 0), "nothing running is cut");
    for _ in 0..40 {
        let at = world.held.iter().position(|(key, _)| *key == 1).expect("it always holds some");
        let (_, lease) = world.held.remove(at);
        world.put(Input::Release { session: SESSION, lease });
        world.ask(1, None);
    }
    assert_eq!(world.holds(3), 1);
    let split = BTreeSet::from([world.holds(1), world.holds(2)]);
    assert_eq!(split, BTreeSet::from([4, 5]));
}

#[test]
fn a_key_that_can_use_only_one_member_does_not_keep_the_others_slots_empty() {
    for headroom in [0, 4, 14] {
        let mut world = World::new(policy(&[4, 36], headroom));
        let shared = 40 - headroom as usize;
        // It wants sixty, which is more than all there is, but never more than four can run.
        (0..60).for_each(|_| world.ask_of(1, &[0], None));
        (0..40).for_each(|_| world.ask(2, Some(Duration::ZERO)));
        assert_eq!(world.holds(1) + world.holds(2), shared, "headroom {headroom}");
        // Two that can use every member divide all but those four; the other one's streams end where none is free.
        let part = (shared - 4) / 2;
        for _ in 0..80 {
            if world.held.len() == 40 && world.holds(3) < part {
                world.end_one_of(2);
            }
            world.ask(3, Some(Duration::ZERO));
        }
        assert_eq!(world.holds(3), part, "headroom {headroom}");
        world.engine.check_invariants();
    }
}

#[test]
fn what_a_key_can_use_grows_and_shrinks_with_the_members_its_work_names() {
    let mut world = World::new(policy(&[4, 4, 32], 18));
    let wait = Duration::from_secs(1);
    (0..40).for_each(|_| world.ask_of(1, &[0], None));
    world.ask_of(1, &[0, 1], Some(wait));
    (0..40).for_each(|_| world.ask(2, Some(Duration::ZERO)));
    (0..18).for_each(|_| world.ask(3, Some(Duration::ZERO)));
    // Two are its guarantee as a newcomer.
    assert_eq!((world.holds(1), world.holds(2), world.holds(3)), (2, 20, 7), "half of what eight slots leave");
    // The wait for the second member is over.
    world.now = world.now.after(wait);
    world.engine.handle_timeout(world.now);
    world.learn();
    (0..18).for_each(|_| world.ask(3, Some(Duration::ZERO)));
    assert_eq!(world.holds(3), 9, "half of what four slots leave");
    // One stream on any member, and what waits counts in full: a third each.
    world.ask(1, Some(Duration::ZERO));
    assert_eq!(world.holds(1), 3);
    world.end_one_of(3);
    world.ask(3, Some(Duration::ZERO));
    assert_eq!(world.holds(3), 8);
    world.engine.check_invariants();
    let (_, anywhere) = world.held.pop().expect("it was granted last");
    world.put(Input::Release { session: SESSION, lease: anywhere });
    (0..18).for_each(|_| world.ask(3, Some(Duration::ZERO)));
    assert_eq!(world.holds(3), 9);
}

#[test]
fn one_heavy_key_leaves_nine_light_ones_served_and_hardly_a_slot_idle() {
    let mut world = World::new(policy(&[100], 4));
    // Ends and starts by time; a light key pauses for 2 s after each of its streams, the heavy one never does.
    let mut events: BTreeMap<(Instant, u64), Event> = BTreeMap::new();
    let mut order = 0;
    let mut plan = |events: &mut BTreeMap<_, _>, at: Instant, event| {
        order += 1;
        events.insert((at, order), event);
    };
    (0..120).for_each(|_| plan(&mut events, Instant::ZERO, Event::Ask(0)));
    (1..=9).for_each(|key| plan(&mut events, Instant::ZERO.after(Duration::from_secs(30)), Event::Ask(key)));
    let (from, end) = (Instant::ZERO.after(Duration::from_secs(60)), Instant::ZERO.after(Duration::from_secs(1_260)));
    let mut busy = 0_u128;
    while let Some(((at, _), event)) = events.pop_first().filter(|((at, _), _)| *at < end) {
        busy += world.held.len() as u128 * at.since(world.now.max(from)).as_nanos();
        world.now = at;
        world.engine.handle_timeout(at);
        match event {
            Event::Ask(key) => world.ask(key, None),
            Event::End(key, lease) => {
                world.held.retain(|(_, held)| *held != lease);
                world.put(Input::Release { session: SESSION, lease });
                let pause = Duration::from_secs(if key == 0 { 0 } else { 2 });
                plan(&mut events, at.after(pause), Event::Ask(key));
            }
        }
        // The heavy key's refused requests come back.
        for decision in std::mem::take(&mut world.refused) {
            assert_eq!(decision.key, Some(KeyId(0)), "no light request is refused");
            plan(&mut events, at.after(decision.retry_after), Event::Ask(0));
        }
        let known: BTreeSet<LeaseId> = events.values().filter_map(Event::lease).collect();
        for (key, lease) in world.held.clone().into_iter().filter(|(_, lease)| !known.contains(lease)) {
            let length = Duration::from_millis(1_000 + world.below(9_000) as u64);
            plan(&mut events, at.after(length), Event::End(key, lease));
        }
    }
    let possible = 100 * end.since(from).as_nanos();
    let permille = busy * 1000 / possible;
    let light: Vec<Duration> = world.granted.iter().filter(|(key, _)| *key > 0).map(|(_, waited)| *waited).collect();
    let slow = light.iter().filter(|waited| **waited > Duration::from_secs(1)).count();
    println!("utilisation {permille} per mille, {slow} of {} light requests waited longer than 1 s", light.len());
    assert!(permille >= 950, "{permille}");
    assert!(light.len() > 1_000 && slow * 100 < light.len(), "{slow} of {}", light.len());
}

enum Event {
    Ask(u128),
    End(u128, LeaseId),
}

impl Event {
    fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Ask(_) => None,
            Self::End(_, lease) => Some(*lease),
        }
    }
}

#[test]
fn observing_records_what_would_have_happened_and_changes_nothing() {
    let run = |fair_share| {
        let mut policy = policy(&[6, 4], 2);
        (policy.pools[0].fair_share, policy.pools[0].mode) = (fair_share, Mode::Observe);
        let mut world = World::new(policy);
        for _ in 0..2_000 {
            if world.below(100) < 60 {
                let key = world.below(4) as u128;
                world.ask(key, None);
            } else {
                world.end_any();
            }
            world.now = world.now.after(Duration::from_millis(200));
        }
        world
    };
    let (off, observed) = (run(FairShare::Off), run(FairShare::MaxMin { headroom: Headroom::Slots(2) }));
    assert_eq!((off.granted, off.held), (observed.granted, observed.held));
    assert!(off.recorded.is_empty() && !observed.recorded.is_empty());
    assert!(observed.recorded.iter().all(|decision| decision.outcome != Outcome::Shed));
}

#[test]
fn rules_are_switched_at_run_time_without_losing_a_lease() {
    let mut world = World::new(policy(&[10], 2));
    (0..12).for_each(|_| world.ask(1, None));
    assert_eq!(world.holds(1), 8);
    let switch = |world: &mut World, fair_share| {
        let mut policy = policy(&[10], 2);
        policy.pools[0].fair_share = fair_share;
        world.put(Input::PolicyChanged(Box::new(policy)));
        world.engine.check_invariants();
    };
    switch(&mut world, FairShare::Off);
    assert_eq!(world.holds(1), 10, "who waits is woken at once");
    switch(&mut world, FairShare::EqualSplit { threshold: 80 });
    switch(&mut world, FairShare::MaxMin { headroom: Headroom::Slots(2) });
    assert_eq!((world.holds(1), world.engine.counted()), (10, 12));
    for _ in 0..2 {
        world.end_any();
    }
    assert_eq!(world.holds(1), 8, "it gets nothing until it is below its share again");
    world.end_any();
    assert_eq!(world.holds(1), 8);
}

#[test]
fn a_headroom_beyond_a_thousand_thousandths_is_no_policy() {
    let mut policy = policy(&[10], 2);
    policy.pools[0].fair_share = FairShare::MaxMin { headroom: Headroom::PerMille(1001) };
    assert!(Engine::new(policy, 1).is_err());
}
