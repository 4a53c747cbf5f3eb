//! The reference: the rules of admission written down a second time, as plainly as possible. It keeps a list of live
//! leases and a list of requests that wait, and nothing else that could be wrong: every number is counted again whenever
//! it is needed. It shares the engine's vocabulary and none of its code.
#![expect(clippy::unwrap_used, reason = "what the reference takes for granted must fail the test when it is wrong")]

mod acquire;
mod answer;
mod clock;
mod count;
mod entitle;
mod gates;
mod idle;
mod inputs;
mod judge;
mod policy;
mod retry;
mod share;
mod shown;
mod wait;
mod wake;

use answer::ShownMember;
use governor_engine::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, TrafficId};
use governor_engine::io::{Input, Kind, Level, Output, Priority, Reason};
use governor_engine::policy::{
    ClassPolicy, KeyPolicy, MemberPolicy, NodePolicy, OrgPolicy, Override, Policy, PoolPolicy,
};
use governor_engine::time::{Duration, Instant};
pub(crate) use shown::Shown;
use std::collections::BTreeMap;

pub(crate) struct Model {
    node: NodePolicy,
    pools: Vec<Pool>,
    /// By index, each with whether it is in the policy.
    classes: Vec<(ClassPolicy, bool)>,
    org_policies: Vec<OrgPolicy>,
    key_policies: Vec<KeyPolicy>,
    overrides: BTreeMap<KeyId, Override>,
    /// What the last request of an org, or of a key without one, named.
    named: BTreeMap<Unit, Option<ClassId>>,
    tiers: BTreeMap<OrgId, Tier>,
    /// Leases that were revoked or reclaimed.
    revoked: Vec<LeaseId>,
    level: Level,
    /// `Some(end of grace)` when lost.
    sessions: BTreeMap<SessionId, Option<Instant>>,
    leases: Vec<Lease>,
    parked: Vec<Parked>,
    bypass: bool,
    draining: bool,
    epoch: u64,
    next_lease: u64,
    next_decision: u64,
    next_record: u64,
    next_park: u64,
    ends: Vec<Instant>,
    tail: Instant,
    now: Instant,
    out: Vec<Output>,
    announced_members: BTreeMap<(PoolId, MemberId), ShownMember>,
    announced_capacities: BTreeMap<PoolId, u32>,
    announced_mode: (bool, bool, Level),
}

struct Pool {
    policy: PoolPolicy,
    present: bool,
    members: Vec<Member>,
    /// Names of the kinds of traffic there are and were, by index.
    traffic: Vec<String>,
    ends: Vec<Instant>,
    tail: Instant,
    typical: Option<Duration>,
}

struct Member {
    policy: MemberPolicy,
    present: bool,
    rate_limited: Option<Instant>,
    overloaded: Option<Instant>,
    /// An operator's cool-down and drain.
    ordered: Option<Instant>,
    drained: bool,
}

/// The identity of a request below its org.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Key(KeyId),
    /// The one that all requests of a pool share that name no key.
    Anonymous(PoolId),
}

/// Who a share is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Org(OrgId),
    Key(Id),
}

/// What is known of an org's tier.
#[derive(Clone, Copy, Default)]
struct Tier {
    asked: Option<Instant>,
    /// The session whose answer is pending.
    pending: Option<SessionId>,
    /// The class, and until when it holds.
    answer: Option<(Option<ClassId>, Instant)>,
}

/// Who a request or a lease is for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Who {
    /// `None`: it names no key, in a pool that lets such requests bypass the share.
    key: Option<Id>,
    org: Option<OrgId>,
}

impl Who {
    /// The key it names.
    fn named(self) -> Option<KeyId> {
        match self.key? {
            Id::Key(key) => Some(key),
            Id::Anonymous(_) => None,
        }
    }
}

/// `None`: every member of the pool.
type Candidates = Option<Vec<MemberId>>;

#[derive(Clone)]
struct Lease {
    id: LeaseId,
    session: SessionId,
    pool: PoolId,
    who: Who,
    priority: Priority,
    traffic: Option<TrafficId>,
    member: Option<MemberId>,
    kind: Kind,
    child: bool,
    /// Entered on the word of a proxy alone, and whether as a suspended one.
    claimed: Option<bool>,
    candidates: Candidates,
    granted: Instant,
    expires: Instant,
    until: Instant,
    deadline: Option<Instant>,
    relocated: bool,
    suspended: bool,
    ends_with_client: bool,
    client_gone: bool,
    /// Taken back then, its client being gone.
    reclaimed: Option<Instant>,
}

#[derive(Clone)]
struct Parked {
    order: u64,
    session: SessionId,
    request: RequestId,
    pool: PoolId,
    who: Who,
    priority: Priority,
    traffic: Option<TrafficId>,
    kind: Kind,
    child: bool,
    ends_with_client: bool,
    candidates: Candidates,
    sticky: Option<MemberId>,
    arrived: Instant,
    until: Instant,
    deadline: Option<Instant>,
    task: Task,
    recorded: bool,
}

/// What a request is to end in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    New,
    Move(LeaseId),
    Resume(LeaseId),
}

enum Answer {
    Go(Option<MemberId>),
    Not(Reason, Option<Instant>),
}

impl Parked {
    /// A plain request that arrives now.
    fn any(pool: PoolId, who: Who) -> Self {
        Self {
            order: 0,
            session: SessionId(0),
            request: RequestId(0),
            pool,
            who,
            priority: Priority::Normal,
            traffic: None,
            kind: Kind::Ordinary,
            child: false,
            ends_with_client: false,
            candidates: None,
            sticky: None,
            arrived: Instant::ZERO,
            until: Instant::ZERO,
            deadline: None,
            task: Task::New,
            recorded: false,
        }
    }
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
            classes: vec![],
            org_policies: vec![],
            key_policies: vec![],
            overrides: BTreeMap::new(),
            named: BTreeMap::new(),
            tiers: BTreeMap::new(),
            level: Level::Normal,
            sessions: BTreeMap::new(),
            leases: vec![],
            parked: vec![],
            bypass: false,
            draining: false,
            epoch,
            next_lease: 1,
            revoked: vec![],
            next_decision: 1,
            next_record: 1,
            next_park: 0,
            ends: vec![],
            tail: Instant::ZERO,
            now: Instant::ZERO,
            out: vec![],
            announced_members: BTreeMap::new(),
            announced_capacities: BTreeMap::new(),
            announced_mode: (false, false, Level::Normal),
        };
        model.obey(policy);
        // Orders are changes; what there is at the start is none.
        model.out.clear();
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

    /// Requests that count on the node, granted or waiting.
    pub(crate) fn counted(&self) -> u32 {
        self.counted_where(|_| true)
    }
}
