//! The engine's surface: inputs, outputs, time. Owns the tables. What it does with them is in this folder: `admission`
//! decides, `wake` says who goes next, `leases` begins and ends what is held, `reload` takes new policies.

mod admission;
mod announce;
mod deadline;
mod invariants;
mod leases;
mod members;
mod modes;
mod reload;
mod terms;
mod views;
mod wake;

use crate::collections::chain::Links;
use crate::collections::line::Line;
use crate::collections::slots::{Slot, Slots};
use crate::collections::table::{InOrder, Table};
use crate::engine::deadline::Timer;
use crate::fairness::sets::Ledger;
use crate::id::SetId;
use crate::id::{LeaseId, MemberId, PoolId, RequestId, Sequence, SessionId};
use crate::identity::party::Parties;
use crate::identity::tiers::Tiers;
use crate::io::{Input, Level, Output};
use crate::leases::lease::Lease;
use crate::leases::revoked::Revoked;
use crate::leases::session::Sessions;
use crate::policy::{NodePolicy, Policy, PolicyError};
use crate::pools::pool::Pool;
use crate::pools::retry::{DrainMeter, VirtualQueue};
use crate::snapshot::Totals;
use crate::time::{Duration, Instant};
use crate::waiting::park::{ParkId, Parked};
use std::collections::{BTreeSet, VecDeque};

/// Debug builds check every invariant after each step while the tables are small, and when they are not once in so many
/// steps, or in as many as there are entries: the check reads everything.
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
/// No input fails and none panics: every `Acquire`, `Move`, `Resume` and `Register` gets exactly one answer, and facts
/// about what is not there are counted. Each change of state is one order, with whom it concerns: a subscriber that
/// starts from a [`snapshot`](Self::snapshot) and reads every order knows what the engine knows.
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
/// let Some(Output::Began(grant)) = engine.poll_output() else { panic!("the pool is empty") };
/// assert_eq!(grant.context.member, engine.member_id(pool, "a"));
/// assert_eq!(engine.poll_output(), None);
/// // Not renewed by then, the lease expires.
/// assert_eq!(engine.poll_timeout(), Some(Instant::ZERO.after(Duration::from_secs(30))));
/// # Ok::<(), governor_engine::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    node: NodePolicy,
    /// By index; a pool that left the policy stays, so that indices never mean something else.
    pools: Vec<Pool>,
    /// Pools in policy order.
    order: Vec<PoolId>,
    parties: Parties,
    tiers: Tiers,
    revoked: Revoked,
    sessions: Sessions,
    leases: Slots<Lease>,
    lease_slots: Table<LeaseId, Slot, InOrder>,
    /// Leases of one session.
    lease_links: Links,
    parked: Slots<Parked>,
    /// Unanswered requests.
    requests: Table<(SessionId, RequestId), Slot>,
    /// Parked requests of one session.
    park_links: Links,
    /// Parked requests that hold a lease already, and so count once.
    parked_moves: u32,
    /// Leases that hold no slot.
    suspended: u32,
    level: Level,
    bypass: bool,
    /// An operator drains the node.
    draining: bool,
    exempt: u64,
    drain: DrainMeter,
    queue: VirtualQueue,
    /// Counters of the whole engine; the ones per pool are in the pools.
    totals: Totals,
    lease_ids: Sequence,
    decision_ids: Sequence,
    record_ids: Sequence,
    next_park: u64,
    /// When each lease ends by itself.
    lease_ends: Line<(Instant, LeaseId)>,
    /// When each parked request's wait is spent.
    park_ends: Line<(Instant, ParkId)>,
    /// All other deadlines.
    timers: BTreeSet<(Instant, Timer)>,
    /// What `timers` holds for each pool.
    pool_timers: Vec<Option<Instant>>,
    /// Pools in which a parked request may be able to go, by id.
    woken: Vec<PoolId>,
    outputs: VecDeque<Output>,
    /// Bypass, drain and level as they were announced last.
    announced_mode: (bool, bool, Level),
    now: Instant,
    steps: u64,
}

impl Engine {
    /// An engine that obeys `policy`. `epoch` goes into every lease and decision id and must differ from the previous
    /// run's, so that an id from then names nothing now.
    ///
    /// # Errors
    /// What is wrong with the policy, as [`Policy::check`].
    pub fn new(policy: Policy, epoch: u16) -> Result<Self, PolicyError> {
        policy.check()?;
        let mut engine = Self {
            node: policy.node.clone(),
            pools: Vec::new(),
            order: Vec::new(),
            parties: Parties::default(),
            tiers: Tiers::default(),
            revoked: Revoked::default(),
            sessions: Sessions::default(),
            leases: Slots::default(),
            lease_slots: Table::default(),
            lease_links: Links::default(),
            parked: Slots::default(),
            requests: Table::default(),
            park_links: Links::default(),
            parked_moves: 0,
            suspended: 0,
            level: Level::Normal,
            bypass: false,
            draining: false,
            exempt: 0,
            drain: DrainMeter::default(),
            queue: VirtualQueue::default(),
            totals: Totals::default(),
            lease_ids: Sequence::carried_out(epoch),
            decision_ids: Sequence::carried_out(epoch),
            record_ids: Sequence::recorded(epoch),
            next_park: 0,
            lease_ends: Line::default(),
            park_ends: Line::default(),
            timers: BTreeSet::new(),
            pool_timers: Vec::new(),
            woken: Vec::new(),
            outputs: VecDeque::new(),
            announced_mode: (false, false, Level::Normal),
            now: Instant::ZERO,
            steps: 0,
        };
        engine.obey(policy);
        // What there is at the start is in the snapshot; orders are changes.
        engine.outputs.clear();
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
            Input::MemberReport { session, pool, member, news } => self.hear(session, pool, member, news),
            Input::MemberOrder { pool, member, order } => self.order_member(pool, member, order),
            Input::Register(held) => self.register(held),
            Input::SessionLost { session } => self.lose_session(session),
            Input::SessionGone { session } => self.end_session(session),
            Input::Revoke { lease } => self.revoke(lease),
            Input::Suspend { session, lease } => self.suspend(session, lease),
            Input::Resume { session, request, lease, max_wait } => self.resume(session, request, lease, max_wait),
            Input::ClientGone { session, work } => self.client_gone(session, work),
            Input::OverloadChanged { level } => self.hear_level(level),
            Input::TierIs { session, org, class, ttl } => self.learn_tier(session, org, class, ttl),
            Input::Override { key, with } => self.override_key(key, with),
            Input::Bypass { on } => self.set_bypass(on),
            Input::Drain { on } => self.set_draining(on),
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
        self.next_at()
    }

    /// Something changed in a pool that may let a parked request go.
    fn wake(&mut self, pool: PoolId) {
        if let Err(at) = self.woken.binary_search(&pool) {
            self.woken.insert(at, pool);
        }
    }

    /// Something changed that may let a parked request go in any pool.
    fn wake_all(&mut self) {
        self.woken.clone_from(&self.order);
        self.woken.sort_unstable();
    }

    /// The candidates of a request, and the longest wait in its pool.
    fn intern(&mut self, pool: PoolId, candidates: Vec<MemberId>) -> (SetId, Duration) {
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let pool = &mut self.pools[pool.index()];
        (pool.intern(candidates, ledger), pool.policy.max_wait)
    }

    /// Ends a step: grants what can be granted, and sets the pools' timers.
    fn settle(&mut self) {
        while !self.woken.is_empty() {
            let id = self.woken.remove(0);
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
        let entries = self.leases.len() + self.parked.len();
        let due = || self.steps.is_multiple_of(CHECK_EVERY.max(entries.next_power_of_two() as u64));
        if cfg!(debug_assertions) && (entries < CHECK_ALWAYS_BELOW || due()) {
            self.check_invariants();
        }
    }
}
