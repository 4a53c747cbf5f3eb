//! Promises about pools whose keys want more than there is, for pools of every size.

use super::watch::headroom;
use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, OrgId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Output};
use governor_engine::policy::{
    Entitlement, FairShare, Headroom, KeyPolicy, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy,
};
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;
use support::random::Random;

const SESSION: SessionId = SessionId(1);
const POOLS: u64 = 24;

/// Who asks: a key, in an org or not.
type Asker = (u128, Option<u128>);

/// A pool at random under max-min and keys that always have one request waiting.
struct Crowd {
    random: Random,
    engine: Engine,
    policy: Policy,
    capacity: u32,
    headroom: u32,
    askers: Vec<Asker>,
    next: u32,
    asked: BTreeMap<RequestId, Asker>,
    held: Vec<(Asker, LeaseId)>,
    now: Instant,
}

impl Crowd {
    fn new(seed: u64, adjust: impl FnOnce(&mut Policy)) -> Self {
        let mut random = Random::new(seed);
        let members = (0..random.within(1, 5)).map(|n| MemberPolicy {
            name: format!("m{n}"),
            slots: random.within(1, 9),
            reserve: random.within(0, 2),
            draining: false,
        });
        let members: Vec<MemberPolicy> = members.collect();
        let capacity = members.iter().map(|m| m.slots.saturating_sub(m.reserve).max(1)).sum();
        let of = if random.chance(50) { Headroom::default() } else { Headroom::Slots(random.within(0, 3)) };
        let mut policy = Policy {
            node: NodePolicy { cap: 0, lease_ttl: Duration::from_secs(1_000_000), ..NodePolicy::default() },
            pools: vec![PoolPolicy {
                name: "pool".to_owned(),
                members,
                fair_share: FairShare::MaxMin { headroom: of },
                mode: Mode::Enforce,
                // A newcomer holds nothing.
                min_guarantee: 0,
                max_wait: Duration::from_secs(1_000_000),
                ..PoolPolicy::default()
            }],
            ..Policy::default()
        };
        adjust(&mut policy);
        let engine = Engine::new(policy.clone(), 1).expect("the policy is sound");
        Self {
            random,
            engine,
            policy,
            capacity,
            headroom: headroom(of, capacity),
            askers: vec![],
            next: 0,
            asked: BTreeMap::new(),
            held: vec![],
            now: Instant::ZERO,
        }
    }

    fn shared(&self) -> usize {
        (self.capacity - self.headroom) as usize
    }

    fn put(&mut self, input: Input) {
        self.engine.handle_input(input, self.now);
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Began(grant) => {
                    let asker = self.asked.remove(&grant.request).expect("asked once");
                    self.held.push((asker, grant.lease));
                }
                Output::Parked { .. } | Output::Unparked { .. } | Output::Ended { .. } => {}
                other @ (Output::Passed { .. }
                | Output::Moved { .. }
                | Output::Resumed(_)
                | Output::Suspended { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::ClientGone { .. }
                | Output::Refused { .. }
                | Output::Rejected { .. }
                | Output::WouldHave { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::MemberChanged { .. }
                | Output::LimitsChanged { .. }
                | Output::ModeChanged { .. }) => panic!("no part of these tests: {other:?}"),
            }
        }
    }

    fn ask(&mut self, asker: Asker) {
        self.next += 1;
        let request = RequestId(self.next);
        self.asked.insert(request, asker);
        let (key, org) = asker;
        let acquire =
            Acquire { session: SESSION, request, key: Some(KeyId(key)), org: org.map(OrgId), ..Acquire::default() };
        self.put(Input::Acquire(acquire));
    }

    /// Leases end one by one and everybody who waits for nothing asks again, until things have settled.
    fn churn(&mut self) {
        for _ in 0..12 * self.capacity {
            for asker in self.askers.clone() {
                if !self.asked.values().any(|waiting| *waiting == asker) {
                    self.ask(asker);
                }
            }
            self.now = self.now.after(Duration::from_millis(10));
            let at = usize::try_from(self.random.below(self.held.len() as u64)).expect("few");
            if at < self.held.len() {
                let (_, lease) = self.held.swap_remove(at);
                self.put(Input::Release { session: SESSION, lease });
            }
        }
        // To the last slot that anybody may have.
        for _ in 0..self.capacity {
            for asker in self.askers.clone() {
                if !self.asked.values().any(|waiting| *waiting == asker) {
                    self.ask(asker);
                }
            }
        }
    }

    fn holds(&self, who: impl Fn(&Asker) -> bool) -> usize {
        self.held.iter().filter(|(asker, _)| who(asker)).count()
    }
}

#[test]
fn a_lone_key_reaches_capacity_less_headroom_and_no_more() {
    for seed in 1..=POOLS {
        let mut crowd = Crowd::new(seed, |_| {});
        crowd.askers = vec![(1, None)];
        crowd.churn();
        // The first request is a newcomer's, also where all slots are headroom.
        assert_eq!(crowd.held.len(), crowd.shared().max(1), "seed {seed}: {:?}", crowd.policy);
    }
}

#[test]
fn a_key_gets_its_guarantee_of_newcomers_while_there_are_slots() {
    for seed in 1..=POOLS {
        let guarantee = u32::try_from(seed % 5).expect("small");
        let mut crowd = Crowd::new(seed, |policy| policy.pools[0].min_guarantee = guarantee);
        let keys = u128::from(crowd.random.within(2, 8));
        crowd.askers = (1..=keys).map(|key| (key, None)).collect();
        crowd.churn();
        let keys = usize::try_from(keys).expect("few");
        let least = (guarantee.max(1) as usize).min(crowd.capacity as usize / keys);
        for (key, _) in crowd.askers.clone() {
            let held = crowd.holds(|asker| asker.0 == key);
            assert!(held >= least, "seed {seed}: key {key} of {keys} holds {held} of {least}: {:?}", crowd.policy);
        }
    }
}

#[test]
fn equal_keys_with_endless_demand_hold_equal_parts_or_one_more() {
    for seed in 1..=POOLS {
        let mut crowd = Crowd::new(seed, |_| {});
        let keys = u128::from(crowd.random.within(2, 8));
        crowd.askers = (1..=keys).map(|key| (key, None)).collect();
        crowd.churn();
        let part = crowd.shared() / usize::try_from(keys).expect("few");
        for key in 1..=keys {
            let held = crowd.holds(|asker| asker.0 == key);
            assert!(
                (part..=part + 1).contains(&held),
                "seed {seed}: key {key} of {keys} holds {held}, not {part} or one more: {:?}",
                crowd.policy
            );
        }
        // Newcomers may have the headroom too.
        let keys = usize::try_from(keys).expect("few");
        let most = crowd.shared().max(keys.min(crowd.capacity as usize));
        assert!((crowd.shared()..=most).contains(&crowd.held.len()), "seed {seed}: {} are held", crowd.held.len());
    }
}

#[test]
fn splitting_an_org_into_many_keys_never_raises_its_total() {
    for seed in 1..=POOLS {
        for keys in [1, 2, 7] {
            let mut crowd = Crowd::new(seed, |_| {});
            let orgs = u128::from(crowd.random.within(2, 5));
            let split = (1..=keys).map(|key| (100 + key, Some(1)));
            crowd.askers = split.chain((2..=orgs).map(|org| (org, Some(org)))).collect();
            crowd.churn();
            let part = crowd.shared() / usize::try_from(orgs).expect("few");
            let held = crowd.holds(|asker| asker.1 == Some(1));
            assert!(
                (part..=part + 1).contains(&held),
                "seed {seed}: by {keys} keys one of {orgs} orgs holds {held}, not {part} or one more: {:?}",
                crowd.policy
            );
        }
    }
}

#[test]
fn floors_are_met_while_they_fit_and_told_to_be_too_many_when_they_do_not() {
    for seed in 1..=POOLS {
        let mut floors = vec![];
        let mut crowd = Crowd::new(seed, |policy| {
            let mut random = Random::new(seed);
            floors = (0..random.within(2, 5)).map(|_| random.within(0, 6)).collect();
            let keys = (1..).zip(&floors).map(|(key, floor)| KeyPolicy {
                key: KeyId(key),
                entitlement: Entitlement { floor: Some(*floor), ..Entitlement::default() },
            });
            policy.keys = keys.collect();
        });
        crowd.askers = (1..).zip(&floors).map(|(key, _)| (key, None)).collect();
        crowd.churn();
        let too_many = floors.iter().sum::<u32>() as usize > crowd.shared();
        assert_eq!(crowd.engine.snapshot().pools[0].oversubscribed, too_many, "seed {seed}: {:?}", crowd.policy);
        for (key, floor) in (1..).zip(&floors).filter(|_| !too_many) {
            let held = crowd.holds(|asker| asker.0 == key);
            assert!(held >= *floor as usize, "seed {seed}: key {key} holds {held} of its {floor}: {:?}", crowd.policy);
        }
    }
}
