//! The engine's surface: inputs, outputs, time. Owns the tables; the decisions are in `admit`, the lives of leases and
//! sessions in `lease` and `session`, new policies in `reload`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::class::Classes;
use crate::id::{LeaseId, MemberId, PoolId, Sequence, SessionId, TrafficId};
use crate::io::{Input, Output};
use crate::lease::Lease;
use crate::park::{ParkId, Parked};
use crate::policy::{NodePolicy, Policy, PolicyError};
use crate::pool::Pool;
use crate::retry::{DrainMeter, VirtualQueue};
use crate::session::Session;
use crate::snapshot::Totals;
use crate::time::Instant;

/// Debug builds check every invariant after each step while the tables are small, and now and then when they are not:
/// the check reads everything.
const CHECK_ALWAYS_BELOW: usize = 64;
const CHECK_EVERY: u64 = 1024;

/// The admission engine.
///
/// Every method is one of four kinds, and a caller's loop uses them in this order:
///
/// 1. *facts in*: [`handle_input`](Self::handle_input), [`handle_timeout`](Self::handle_timeout). `now` never goes
///    back; if it does, the latest seen is used. Deadlines that are due are served first.
/// 2. *orders out*: [`poll_output`](Self::poll_output) until it is `None`.
/// 3. *the next deadline*: [`poll_timeout`](Self::poll_timeout), then wait for that or for the next fact.
/// 4. *look-ups and views*, at any time, changing nothing: names, [`snapshot`](Self::snapshot),
///    [`leases`](Self::leases).
///
/// No input fails and none panics: every `Acquire`, `Move` and `Register` gets exactly one terminal answer, and facts
/// about what is not there are counted.
///
/// ```
/// use governor_engine::Engine;
/// use governor_engine::id::{RequestId, SessionId};
/// use governor_engine::io::{Acquire, Input, Kind, Output};
/// use governor_engine::policy::{FairShare, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
/// use governor_engine::time::{Duration, Instant};
///
/// let policy = Policy {
///     node: NodePolicy::default(),
///     pools: vec![PoolPolicy {
///         name: "chat".into(),
///         members: vec![MemberPolicy { name: "a".into(), slots: 8, reserve: 1, draining: false }],
///         fair_share: FairShare::EqualSplit { threshold: 80 },
///         mode: Mode::Enforce,
///         min_guarantee: 2,
///         max_wait: Duration::from_secs(30),
///         max_parked_per_key: 16,
///         exhausted_status: 429,
///         rate_limited_cooldown: Duration::from_secs(30),
///         overloaded_cooldown: Duration::from_secs(10),
///         ..PoolPolicy::default()
///     }],
///     ..Policy::default()
/// };
/// let mut engine = Engine::new(policy, 1)?;
/// let session = SessionId(1);
/// let pool = engine.pool_id("chat").expect("it is in the policy");
///
/// engine.handle_input(Input::SessionOpened { session }, Instant::ZERO);
/// engine.handle_input(
///     Input::Acquire(Acquire {
///         session,
///         request: RequestId(1),
///         pool,
///         key: None,
///         candidates: vec![],
///         sticky: None,
///         max_wait: None,
///         deadline: None,
///         kind: Kind::Ordinary,
///         ..Acquire::default()
///     }),
///     Instant::ZERO,
/// );
///
/// let Some(Output::Grant(grant)) = engine.poll_output() else { panic!("the pool is empty") };
/// assert_eq!(grant.member, engine.member_id(pool, "a"));
/// assert_eq!(engine.poll_output(), None);
/// // Not renewed by then, the lease expires.
/// assert_eq!(engine.poll_timeout(), Some(Instant::ZERO.after(Duration::from_secs(30))));
/// # Ok::<(), governor_engine::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) node: NodePolicy,
    pub(crate) classes: Classes,
    /// By index; a pool that left the policy stays, so that indices never mean something else.
    pub(crate) pools: Vec<Pool>,
    /// Pools in policy order.
    pub(crate) order: Vec<PoolId>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) parked: BTreeMap<ParkId, Parked>,
    /// Parked requests that hold a lease already, and so count once.
    pub(crate) parked_moves: u32,
    pub(crate) bypass: bool,
    pub(crate) exempt: u64,
    pub(crate) drain: DrainMeter,
    pub(crate) queue: VirtualQueue,
    /// Counters of the whole engine; the ones per pool are in the pools.
    pub(crate) totals: Totals,
    pub(crate) lease_ids: Sequence,
    pub(crate) decision_ids: Sequence,
    pub(crate) record_ids: Sequence,
    pub(crate) next_park: u64,
    pub(crate) timers: BTreeSet<(Instant, Timer)>,
    /// What `timers` holds for each pool.
    pub(crate) pool_timers: Vec<Option<Instant>>,
    /// Pools in which somebody who waits may be able to go.
    pub(crate) woken: BTreeSet<PoolId>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) now: Instant,
    steps: u64,
}

/// What a deadline is for. At one instant, whatever gives slots back comes before whatever gives up waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A lease's ttl.
    Lease(LeaseId),
    /// A lost session's grace.
    Session(SessionId),
    /// A cool-down in a pool.
    Pool(PoolId),
    /// A parked request's wait.
    Park(ParkId),
}

impl Engine {
    /// An engine that obeys `policy`. `epoch` goes into every lease and decision id and must differ from the previous
    /// life's, so that an id from then names nothing now.
    ///
    /// # Errors
    /// What is wrong with the policy, as [`Policy::check`].
    pub fn new(policy: Policy, epoch: u16) -> Result<Self, PolicyError> {
        policy.check()?;
        let mut engine = Self {
            node: policy.node.clone(),
            classes: Classes::default(),
            pools: Vec::new(),
            order: Vec::new(),
            sessions: BTreeMap::new(),
            leases: BTreeMap::new(),
            parked: BTreeMap::new(),
            parked_moves: 0,
            bypass: false,
            exempt: 0,
            drain: DrainMeter::default(),
            queue: VirtualQueue::default(),
            totals: Totals::default(),
            lease_ids: Sequence::carried_out(epoch),
            decision_ids: Sequence::carried_out(epoch),
            record_ids: Sequence::recorded(epoch),
            next_park: 0,
            timers: BTreeSet::new(),
            pool_timers: Vec::new(),
            woken: BTreeSet::new(),
            outputs: VecDeque::new(),
            now: Instant::ZERO,
            steps: 0,
        };
        engine.obey(policy);
        Ok(engine)
    }

    /// Takes a fact in. Deadlines due by `now` are served before it.
    pub fn handle_input(&mut self, input: Input, now: Instant) {
        self.advance(now);
        match input {
            Input::SessionOpened { session } => self.open_session(session),
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel { session, request } => self.cancel(session, request),
            Input::Release { session, lease } => self.release(session, lease),
            Input::Renew { session, lease, idle } => self.renew(session, lease, idle),
            Input::Move { session, request, lease } => self.relocate(session, request, lease),
            Input::MemberReport { pool, member, news } => self.hear(pool, member, news),
            Input::Register(held) => self.register(held),
            Input::SessionLost { session } => self.lose_session(session),
            Input::SessionGone { session } => self.end_session(session),
            Input::Revoke { lease } => self.revoke(lease),
            Input::Suspend { .. }
            | Input::Resume { .. }
            | Input::ClientGone { .. }
            | Input::OverloadChanged { .. }
            | Input::TierIs { .. }
            | Input::Override { .. } => {}
            Input::Bypass { on } => self.set_bypass(on),
            Input::PolicyChanged(policy) => self.change_policy(*policy),
        }
        self.settle();
        self.check_in_debug();
    }

    /// Serves every deadline due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.check_in_debug();
    }

    /// The next order, in the order they were decided.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called next. May be in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The limits of the node.
    #[must_use]
    pub fn node_policy(&self) -> &NodePolicy {
        &self.node
    }

    /// The pools in policy order.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.order.iter().copied()
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pools.iter().find(|pool| pool.present && pool.policy.name == name).map(|pool| pool.id)
    }

    /// The name of a pool, also of one that left the policy.
    #[must_use]
    pub fn pool_name(&self, pool: PoolId) -> Option<&str> {
        self.pools.get(pool.index()).map(|pool| pool.policy.name.as_str())
    }

    /// The members of a pool in policy order; none if there is no such pool.
    pub fn members(&self, pool: PoolId) -> impl Iterator<Item = MemberId> + '_ {
        self.pools.get(pool.index()).into_iter().flat_map(|pool| pool.order.iter().copied())
    }

    /// The member of this name.
    #[must_use]
    pub fn member_id(&self, pool: PoolId, name: &str) -> Option<MemberId> {
        let pool = self.pools.get(pool.index())?;
        pool.order.iter().copied().find(|id| pool.member(*id).is_some_and(|member| member.policy.name == name))
    }

    /// The name of a member, also of one that left the policy.
    #[must_use]
    pub fn member_name(&self, pool: PoolId, member: MemberId) -> Option<&str> {
        Some(self.pools.get(pool.index())?.member(member)?.policy.name.as_str())
    }

    /// The kind of traffic of this name.
    #[must_use]
    pub fn traffic_id(&self, pool: PoolId, name: &str) -> Option<TrafficId> {
        self.pools.get(pool.index())?.traffic.find(name)
    }

    /// C of a pool over all members that count now.
    #[must_use]
    pub fn capacity(&self, pool: PoolId) -> Option<u32> {
        let pool = self.pools.get(pool.index()).filter(|pool| pool.present)?;
        Some(pool.sets.get(crate::set::SetId::EVERYBODY).capacity)
    }

    /// Slots of a member for ordinary requests, whatever its state.
    #[must_use]
    pub fn ordinary_slots(&self, pool: PoolId, member: MemberId) -> Option<u32> {
        Some(self.pools.get(pool.index())?.present_member(member)?.ordinary_slots())
    }

    /// Slots of a member, reserve included, whatever its state.
    #[must_use]
    pub fn slots(&self, pool: PoolId, member: MemberId) -> Option<u32> {
        Some(self.pools.get(pool.index())?.present_member(member)?.policy.slots)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((at, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Lease(lease) => self.expire(lease),
                Timer::Session(session) => self.end_session(session),
                Timer::Pool(pool) => {
                    self.pool_timers[pool.index()] = None;
                    self.pools[pool.index()].refresh(self.now);
                    self.wake(pool);
                }
                Timer::Park(park) => self.give_up(park),
            }
            self.settle();
        }
    }

    /// Something changed in a pool that may let somebody go.
    pub(crate) fn wake(&mut self, pool: PoolId) {
        self.woken.insert(pool);
    }

    /// Ends a step: grants what can be granted, and sets the pools' timers.
    fn settle(&mut self) {
        while let Some(id) = self.woken.pop_first() {
            let next = self.pools[id.index()].next_change();
            let set = std::mem::replace(&mut self.pool_timers[id.index()], next);
            if set != next {
                self.timers.extend(next.map(|at| (at, Timer::Pool(id))));
                if let Some(at) = set {
                    self.timers.remove(&(at, Timer::Pool(id)));
                }
            }
            self.grant_parked(id);
        }
    }

    fn check_in_debug(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        let small = self.leases.len() + self.parked.len() < CHECK_ALWAYS_BELOW;
        if cfg!(debug_assertions) && (small || self.steps.is_multiple_of(CHECK_EVERY)) {
            self.check_invariants();
        }
    }
}
