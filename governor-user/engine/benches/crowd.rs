//! Engines in a steady state worth measuring: many active keys in a pool that is congested, or many parked requests.
//! Shared by the benchmarks and the test that counts allocations; measures nothing itself.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, Output};
use governor_engine::policy::{FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use std::collections::VecDeque;

const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);
/// Accounts of the pool.
const MEMBERS: u32 = 16;
/// Between two facts: ten million a second, so that no deadline of the policy comes near during a measurement.
const STEP: Duration = Duration::from_nanos(100);
/// Slots, for every 24 in use, that `max-min` keeps for newcomers: its default of 4 % of capacity.
const IN_USE_PER_FREE: u32 = 24;

/// The rules to measure. Both are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    EqualSplit,
    MaxMin,
}

impl Rule {
    pub(crate) const ALL: [Self; 2] = [Self::EqualSplit, Self::MaxMin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EqualSplit => "equal-split",
            Self::MaxMin => "max-min",
        }
    }

    fn policy(self, headroom: u32) -> FairShare {
        match self {
            Self::EqualSplit => FairShare::EqualSplit { threshold: 80 },
            Self::MaxMin => FairShare::MaxMin { headroom: Headroom::Slots(headroom) },
        }
    }
}

/// An engine and the facts that keep it in its state.
#[derive(Debug)]
pub(crate) struct Crowd {
    engine: Engine,
    now: Instant,
    /// Next key to ask.
    next: u32,
    keys: u32,
    /// Leases to give back, oldest first; only where requests wait for them.
    held: VecDeque<LeaseId>,
}

impl Crowd {
    /// `keys` active keys that hold one to four slots each, in a pool that is congested by both rules and has room for
    /// whoever holds least.
    pub(crate) fn active(rule: Rule, keys: u32) -> Self {
        let in_use: u32 = (0..keys).map(holding).sum();
        let headroom = (in_use / IN_USE_PER_FREE).max(1);
        let mut crowd = Self::new(FairShare::Off, in_use + headroom, keys);
        for key in 0..keys {
            for _ in 0..holding(key) {
                crowd.acquire(key, RequestId(0)).expect("the pool is not full");
            }
        }
        let rules = policy(rule.policy(headroom), in_use + headroom);
        crowd.put(Input::PolicyChanged(Box::new(rules)));
        while crowd.engine.poll_output().is_some() {}
        crowd
    }

    /// `parked` requests of a tenth as many keys, which hold all that the rule gives them.
    pub(crate) fn waiting(rule: Rule, parked: u32) -> Self {
        let keys = parked.div_ceil(10);
        let mut crowd = Self::new(rule.policy(parked / 25), parked, keys);
        let mut waiting = 0;
        for request in 0.. {
            match crowd.acquire(request % keys, RequestId(request)) {
                Some(lease) => crowd.held.push_back(lease),
                None => waiting += 1,
            }
            if waiting == parked {
                return crowd;
            }
        }
        unreachable!("a pool of {parked} slots makes somebody wait")
    }

    /// `leases` of `keys` keys, no rule: for what they take in memory.
    pub(crate) fn holding(leases: u32, keys: u32) -> Self {
        let mut crowd = Self::new(FairShare::Off, leases, keys);
        for lease in 0..leases {
            crowd.acquire(lease % keys, RequestId(0)).expect("the pool is not full");
        }
        crowd
    }

    fn new(rule: FairShare, slots: u32, keys: u32) -> Self {
        let engine = Engine::new(policy(rule, slots), 1).expect("the policy is sound");
        Self { engine, now: Instant::ZERO, next: 0, keys, held: VecDeque::new() }
    }

    /// One of the keys that hold least acquires a slot and gives it back.
    pub(crate) fn acquire_and_release(&mut self) {
        // Far apart, so that nothing of the last key is still in a cache. Multiples of 4 hold one slot.
        let key = self.next.wrapping_mul(0x9e37_79b1) % self.keys.div_ceil(4) * 4;
        self.next = self.next.wrapping_add(1);
        let lease = self.acquire(key, RequestId(0)).expect("whoever holds least is granted");
        self.put(Input::Release { session: SESSION, lease });
        assert!(matches!(self.engine.poll_output(), Some(Output::Ended { .. })));
        assert!(self.engine.poll_output().is_none(), "no request waits");
    }

    /// The oldest lease is given back, which grants to the most deserving of those who wait, and its key asks again.
    pub(crate) fn release_and_wait(&mut self) {
        let lease = self.held.pop_front().expect("the pool is full");
        self.put(Input::Release { session: SESSION, lease });
        assert!(matches!(self.engine.poll_output(), Some(Output::Ended { .. })));
        assert!(matches!(self.engine.poll_output(), Some(Output::Unparked { .. })));
        let Some(Output::Began(grant)) = self.engine.poll_output() else {
            panic!("a freed slot goes to the request that waits")
        };
        self.held.push_back(grant.lease);
        let again = self.acquire(grant.request.0 % self.keys, grant.request);
        assert!(again.is_none(), "the pool is full again");
    }

    /// The lease, or `None` if the request waits.
    fn acquire(&mut self, key: u32, request: RequestId) -> Option<LeaseId> {
        self.put(Input::Acquire(Acquire {
            session: SESSION,
            request,
            pool: POOL,
            key: Some(identity(key)),
            candidates: Vec::new(),
            sticky: None,
            max_wait: None,
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        }));
        match self.engine.poll_output() {
            Some(Output::Began(grant)) => Some(grant.lease),
            Some(Output::Parked { .. }) => None,
            other => panic!("neither granted nor parked: {other:?}"),
        }
    }

    fn put(&mut self, input: Input) {
        self.now = self.now.after(STEP);
        self.engine.handle_input(input, self.now);
    }
}

/// Slots a key holds.
fn holding(key: u32) -> u32 {
    1 + key % 4
}

/// A key as proxies send them: a hash, so that neighbours are not neighbours in a table.
fn identity(key: u32) -> KeyId {
    KeyId(u128::from(key).wrapping_mul(0x2d35_8dcc_aa6c_78a5_8bb8_4b93_962e_acc9))
}

fn policy(fair_share: FairShare, slots: u32) -> Policy {
    let member = |n: u32| MemberPolicy {
        name: format!("member-{n}"),
        slots: slots / MEMBERS + u32::from(n < slots % MEMBERS),
        reserve: 0,
        draining: false,
    };
    Policy {
        node: NodePolicy {
            cap: 0,
            max_parked: u32::MAX,
            lease_ttl: Duration::from_secs(1_000_000),
            ..NodePolicy::default()
        },
        pools: vec![PoolPolicy {
            name: "pool".to_owned(),
            members: (0..MEMBERS).map(member).collect(),
            fair_share,
            mode: Mode::Enforce,
            min_guarantee: 2,
            max_wait: Duration::from_secs(1_000_000),
            max_parked_per_key: u32::MAX,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            ..PoolPolicy::default()
        }],
        ..Policy::default()
    }
}
