//! The reference: the rules of admission written down a second time, as plainly as possible. It keeps a list of live
//! leases and a list of parked requests and nothing else that could be wrong: every number is counted again whenever it
//! is needed. It shares the engine's vocabulary and none of its code.
#![expect(clippy::unwrap_used, reason = "what the reference takes for granted must fail the test when it is wrong")]

mod acquire;
mod answer;
mod clock;
mod count;
mod inputs;
mod judge;
mod policy;
mod retry;
mod share;
mod wait;

use std::collections::BTreeMap;

use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Input, Kind, Output, Reason};
use governor_engine::policy::{MemberPolicy, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};

pub(crate) struct Model {
    node: NodePolicy,
    pools: Vec<Pool>,
    /// `Some(end of grace)` when lost.
    sessions: BTreeMap<SessionId, Option<Instant>>,
    leases: Vec<Lease>,
    parked: Vec<Parked>,
    bypass: bool,
    epoch: u64,
    next_lease: u64,
    next_decision: u64,
    next_record: u64,
    next_park: u64,
    ends: Vec<Instant>,
    tail: Instant,
    now: Instant,
    out: Vec<Output>,
}

struct Pool {
    policy: PoolPolicy,
    present: bool,
    members: Vec<Member>,
    ends: Vec<Instant>,
    tail: Instant,
    typical: Option<Duration>,
}

struct Member {
    policy: MemberPolicy,
    present: bool,
    rate_limited: Option<Instant>,
    overloaded: Option<Instant>,
}

/// `None`: every member of the pool.
type Candidates = Option<Vec<MemberId>>;

#[derive(Clone)]
struct Lease {
    id: LeaseId,
    session: SessionId,
    pool: PoolId,
    key: Option<KeyId>,
    member: Option<MemberId>,
    kind: Kind,
    candidates: Candidates,
    granted: Instant,
    expires: Instant,
    until: Instant,
    deadline: Option<Instant>,
    relocated: bool,
}

#[derive(Clone)]
struct Parked {
    order: u64,
    session: SessionId,
    request: RequestId,
    pool: PoolId,
    key: Option<KeyId>,
    kind: Kind,
    candidates: Candidates,
    sticky: Option<MemberId>,
    arrived: Instant,
    until: Instant,
    deadline: Option<Instant>,
    /// A move.
    lease: Option<LeaseId>,
    recorded: bool,
}

enum Answer {
    Go(Option<MemberId>),
    Not(Reason, Option<Instant>),
}

fn index(id: u32) -> usize {
    id as usize
}

impl Model {
    pub(crate) fn new(policy: Policy, epoch: u16) -> Self {
        let epoch = u64::from(epoch) << 48;
        let mut model = Self {
            node: policy.node.clone(),
            pools: vec![],
            sessions: BTreeMap::new(),
            leases: vec![],
            parked: vec![],
            bypass: false,
            epoch,
            next_lease: 1,
            next_decision: 1,
            next_record: 1,
            next_park: 0,
            ends: vec![],
            tail: Instant::ZERO,
            now: Instant::ZERO,
            out: vec![],
        };
        model.obey(policy);
        model
    }

    pub(crate) fn step(&mut self, input: Input, now: Instant) -> Vec<Output> {
        self.advance(now);
        self.take(input);
        self.serve_all();
        std::mem::take(&mut self.out)
    }

    pub(crate) fn timeout(&mut self, now: Instant) -> Vec<Output> {
        self.advance(now);
        std::mem::take(&mut self.out)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due().into_iter().min().map(|(at, _)| at)
    }

    pub(crate) fn counted(&self) -> u32 {
        let waiting = self.parked.iter().filter(|p| p.lease.is_none()).count();
        u32::try_from(self.leases.len() + waiting).unwrap()
    }

    /// (pool index, in flight, parked), of pools in the policy.
    pub(crate) fn pool_counts(&self) -> Vec<(PoolId, u32, u32)> {
        let ids = (0..self.pools.len()).filter(|p| self.pools[*p].present);
        ids.map(|p| {
            let id = PoolId(u32::try_from(p).unwrap());
            let leases = self.leases.iter().filter(|l| l.pool == id).count();
            let parked = self.parked.iter().filter(|w| w.pool == id).count();
            (id, u32::try_from(leases).unwrap(), u32::try_from(parked).unwrap())
        })
        .collect()
    }
}
