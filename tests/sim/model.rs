//! The reference: the rules of admission written down a second time, as plainly as possible. It keeps a list of live
//! leases and a list of parked requests and nothing else that could be wrong: every number is counted again whenever it
//! is needed. It shares the engine's vocabulary and none of its code.
#![expect(clippy::unwrap_used, reason = "what the reference takes for granted must fail the test when it is wrong")]

mod inputs;

use std::collections::BTreeMap;

use governor_engine::id::{DecisionId, KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{
    Decision, Grant, Input, Kind, Numbers, Origin, Outcome, Output, Reason, RejectReason, RevokeReason,
};
use governor_engine::policy::{FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
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

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Lease(LeaseId),
    Session(SessionId),
    Pool(PoolId),
    Park(u64),
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

    // --- time -------------------------------------------------------------------------------------------------------

    fn due(&self) -> Vec<(Instant, Due)> {
        let mut due = vec![];
        due.extend(self.leases.iter().map(|l| (l.expires, Due::Lease(l.id))));
        due.extend(self.sessions.iter().filter_map(|(s, grace)| Some(((*grace)?, Due::Session(*s)))));
        for (p, pool) in self.pools.iter().enumerate() {
            let cooling = pool.members.iter().flat_map(|m| [m.rate_limited, m.overloaded]).flatten().min();
            due.extend(cooling.map(|at| (at, Due::Pool(PoolId(u32::try_from(p).unwrap())))));
        }
        due.extend(self.parked.iter().map(|w| (w.until, Due::Park(w.order))));
        due
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((_, due)) = self.due().into_iter().filter(|(at, _)| *at <= self.now).min() {
            match due {
                Due::Lease(id) => {
                    let lease = self.end_lease(id).unwrap();
                    self.say_revoke(lease.session, id, RevokeReason::Expired);
                }
                Due::Session(session) => self.session_gone(session),
                Due::Pool(pool) => self.forget_past_cooldowns(pool),
                Due::Park(order) => {
                    let at = self.parked.iter().position(|w| w.order == order).unwrap();
                    let waiter = self.parked.remove(at);
                    let (reason, back) = match self.judge(&waiter) {
                        Answer::Go(_) => (Reason::PoolExhausted, None),
                        Answer::Not(reason, back) => (reason, back),
                    };
                    self.shed(&waiter, reason, None, back);
                }
            }
            self.serve_all();
        }
    }

    fn forget_past_cooldowns(&mut self, pool: PoolId) {
        let now = self.now;
        for member in &mut self.pools[index(pool.0)].members {
            member.rate_limited = member.rate_limited.filter(|at| *at > now);
            member.overloaded = member.overloaded.filter(|at| *at > now);
        }
    }

    // --- counting ---------------------------------------------------------------------------------------------------

    fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(index(id.0)).filter(|p| p.present)
    }

    fn member(&self, pool: PoolId, id: MemberId) -> Option<&Member> {
        self.pool(pool)?.members.get(index(id.0)).filter(|m| m.present)
    }

    fn usable(member: &Member) -> bool {
        member.present && !member.policy.draining && member.policy.slots > 0
    }

    fn ordinary_slots(member: &Member) -> u32 {
        if member.policy.slots == 0 { 0 } else { (member.policy.slots.saturating_sub(member.policy.reserve)).max(1) }
    }

    /// Takes requests and counts in C and T.
    fn open(&self, pool: PoolId, id: MemberId) -> bool {
        let members = &self.pools[index(pool.0)].members;
        let well = |m: &Member| Self::usable(m) && m.rate_limited.is_none() && m.overloaded.is_none();
        let member = &members[index(id.0)];
        if well(member) {
            return true;
        }
        if members.iter().any(well) {
            return false;
        }
        // One that failed without saying 429 stays selectable: the one that is back first.
        let spare = (0..members.len())
            .filter(|m| Self::usable(&members[*m]) && members[*m].rate_limited.is_none())
            .filter_map(|m| Some((members[m].overloaded?, m)))
            .min();
        spare.is_some_and(|(_, m)| m == index(id.0))
    }

    fn resolve(&self, pool: PoolId, candidates: &Candidates) -> Vec<MemberId> {
        match candidates {
            Some(named) => named.clone(),
            None => {
                let members = &self.pools[index(pool.0)].members;
                let ids = (0..members.len()).filter(|m| members[*m].present);
                ids.map(|m| MemberId(u32::try_from(m).unwrap())).collect()
            }
        }
    }

    /// Leases that count over these candidates: on an open one of them, or on no member.
    fn counted_over(&self, pool: PoolId, candidates: &Candidates) -> Vec<&Lease> {
        let among = self.resolve(pool, candidates);
        let counts = |l: &&Lease| match l.member {
            None => true,
            Some(m) => among.contains(&m) && self.open(pool, m),
        };
        self.leases.iter().filter(|l| l.pool == pool).filter(counts).collect()
    }

    fn capacity(&self, pool: PoolId, candidates: &Candidates) -> u32 {
        let open = self.resolve(pool, candidates).into_iter().filter(|m| self.open(pool, *m));
        open.map(|m| Self::ordinary_slots(&self.pools[index(pool.0)].members[index(m.0)])).sum()
    }

    fn on_member(&self, pool: PoolId, member: MemberId) -> u32 {
        let on = self.leases.iter().filter(|l| l.pool == pool && l.member == Some(member)).count();
        u32::try_from(on).unwrap()
    }

    // --- the rules --------------------------------------------------------------------------------------------------

    /// (key in flight, share, T, C, active keys, would the rule let it in).
    fn share(&self, w: &Parked) -> (u32, u32, u32, u32, u32, bool) {
        let policy = &self.pools[index(w.pool.0)].policy;
        let counted = self.counted_over(w.pool, &w.candidates);
        let t = u32::try_from(counted.len()).unwrap();
        let c = self.capacity(w.pool, &w.candidates);
        let mut keys: Vec<KeyId> = counted.iter().filter_map(|l| l.key).collect();
        let held = w.key.map_or(0, |key| u32::try_from(keys.iter().filter(|k| **k == key).count()).unwrap());
        keys.extend(w.key);
        keys.sort();
        keys.dedup();
        let active = u32::try_from(keys.len()).unwrap();
        match policy.fair_share {
            FairShare::Off => (held, c, t, c, active, true),
            FairShare::EqualSplit { threshold } => {
                let share = policy.min_guarantee.max(c.checked_div(active).unwrap_or(c));
                let congested = c > 0 && t * 100 >= c * u32::from(threshold);
                (held, share, t, c, active, w.key.is_none() || !congested || held < share)
            }
            FairShare::MaxMin { headroom } => {
                let h = match headroom {
                    Headroom::PerMille(0) => 0,
                    Headroom::PerMille(share) => (c * u32::from(share) / 1000).max(1).min(c),
                    Headroom::Slots(slots) => slots.min(c),
                };
                let share = (1..=c - h).take_while(|level| self.filled(w, *level) <= c - h).last().unwrap_or(0);
                let admitted = c == 0 || t < c - h || self.filled(w, held + 1) <= c - h;
                (held, share, t, c, active, w.key.is_none() || admitted)
            }
        }
    }

    /// F(level): what everybody would hold over the candidates of `w`, each key what it wants but at most `level`. The key
    /// of `w` wants at least that much; requests without a key hold what they hold.
    fn filled(&self, w: &Parked, level: u32) -> u32 {
        let mut wants: BTreeMap<Option<KeyId>, u32> = BTreeMap::new();
        for lease in self.counted_over(w.pool, &w.candidates) {
            *wants.entry(lease.key).or_default() += 1;
        }
        let among = self.resolve(w.pool, &w.candidates);
        for other in self.parked.iter().filter(|p| p.pool == w.pool && p.lease.is_none() && p.key.is_some()) {
            if self.resolve(w.pool, &other.candidates).iter().any(|m| among.contains(m)) {
                *wants.entry(other.key).or_default() += 1;
            }
        }
        let keyless = wants.remove(&None).unwrap_or(0);
        wants.insert(w.key, u32::MAX);
        keyless + wants.values().map(|wants| *wants.min(&level)).sum::<u32>()
    }

    fn judge(&self, w: &Parked) -> Answer {
        let pool = &self.pools[index(w.pool.0)];
        let is_move = w.lease.is_some();
        if w.kind == Kind::Ordinary && !is_move && pool.policy.mode == Mode::Enforce && !self.share(w).5 {
            return Answer::Not(Reason::FairShare, None);
        }
        if pool.members.iter().filter(|m| m.present).all(|m| m.policy.slots == 0) {
            return Answer::Go(None);
        }
        let among = self.resolve(w.pool, &w.candidates);
        if let Some(member) = self.best_member(w, &among, is_move) {
            return Answer::Go(Some(member));
        }
        let usable: Vec<&Member> =
            among.iter().map(|m| &pool.members[index(m.0)]).filter(|m| Self::usable(m)).collect();
        if !usable.is_empty() && usable.iter().all(|m| m.rate_limited.is_some()) {
            let back = usable.iter().filter_map(|m| m.rate_limited.max(m.overloaded)).min();
            return Answer::Not(Reason::AllCooling, back);
        }
        Answer::Not(Reason::PoolExhausted, None)
    }

    fn best_member(&self, w: &Parked, among: &[MemberId], is_move: bool) -> Option<MemberId> {
        let pool = &self.pools[index(w.pool.0)];
        if w.kind == Kind::Ordinary && !is_move {
            let ordinary = self.counted_over(w.pool, &w.candidates).iter().filter(|l| l.kind == Kind::Ordinary).count();
            let (all, c) = (self.counted_over(w.pool, &w.candidates).len(), self.capacity(w.pool, &w.candidates));
            let max_min = matches!(pool.policy.fair_share, FairShare::MaxMin { .. });
            if u32::try_from(ordinary).unwrap() >= c
                || (w.key.is_some() && max_min && pool.policy.mode == Mode::Enforce && all >= index(c))
            {
                return None;
            }
        }
        let room = |m: MemberId| {
            let member = &pool.members[index(m.0)];
            let slots = if w.kind == Kind::Reattach { member.policy.slots } else { Self::ordinary_slots(member) };
            self.open(w.pool, m) && self.on_member(w.pool, m) < slots
        };
        if let Some(sticky) = w.sticky.filter(|m| among.contains(m) && room(*m)) {
            return Some(sticky);
        }
        self.least_loaded(w.pool, among.iter().copied().filter(|m| room(*m)).collect())
    }

    fn least_loaded(&self, pool: PoolId, among: Vec<MemberId>) -> Option<MemberId> {
        let mut best: Option<MemberId> = None;
        for m in among {
            let load = |m: MemberId| {
                let slots = Self::ordinary_slots(&self.pools[index(pool.0)].members[index(m.0)]).max(1);
                (self.on_member(pool, m), slots)
            };
            let better = best.is_none_or(|b| {
                let ((x, xs), (y, ys)) = (load(m), load(b));
                x * ys < y * xs || (x * ys == y * xs && m < b)
            });
            if better {
                best = Some(m);
            }
        }
        best
    }

    fn bypass_member(&self, w: &Parked) -> Option<MemberId> {
        let pool = &self.pools[index(w.pool.0)];
        if pool.members.iter().filter(|m| m.present).all(|m| m.policy.slots == 0) {
            return None;
        }
        let among = self.resolve(w.pool, &w.candidates);
        let present: Vec<MemberId> = among.iter().copied().filter(|m| pool.members[index(m.0)].present).collect();
        let open: Vec<MemberId> = present.iter().copied().filter(|m| self.open(w.pool, *m)).collect();
        self.best_member(w, &among, w.lease.is_some())
            .or_else(|| self.least_loaded(w.pool, open))
            .or_else(|| self.least_loaded(w.pool, present))
    }

    fn deadline_is_hopeless(&self, w: &Parked) -> bool {
        let typical = self.pools[index(w.pool.0)].typical;
        w.deadline.zip(typical).is_some_and(|(deadline, typical)| self.now.after(typical) > deadline)
    }

    /// Why it may not wait: (reason, origin if it differs from the reason's own, status).
    fn may_not_wait(&self, w: &Parked, why: Reason, back: Option<Instant>) -> Option<(Reason, Option<Origin>)> {
        let pool = &self.pools[index(w.pool.0)];
        if w.until <= self.now || back.is_some_and(|at| at > w.until) || self.deadline_is_hopeless(w) {
            return Some((why, None));
        }
        if w.lease.is_some() {
            return None;
        }
        let here = self.parked.iter().filter(|p| p.pool == w.pool);
        let of_key = here.clone().filter(|p| p.key == w.key).count();
        let room: u32 = pool.members.iter().filter(|m| Self::usable(m)).map(Self::ordinary_slots).sum();
        if w.key.is_some() && of_key >= index(pool.policy.max_parked_per_key) {
            return Some((Reason::KeyQueueFull, None));
        }
        if here.count() >= index(room.max(pool.policy.max_parked_per_key)) {
            return Some((Reason::QueueFull, Some(Origin::Pool)));
        }
        if self.parked.len() >= index(self.node.max_parked) {
            return Some((Reason::QueueFull, Some(Origin::Node)));
        }
        None
    }

    // --- answers ----------------------------------------------------------------------------------------------------

    fn origin_and_status(&self, w: &Parked, reason: Reason, origin: Option<Origin>, why: Reason) -> (Origin, u16) {
        let exhausted = self.pools[index(w.pool.0)].policy.exhausted_status;
        match (reason, origin) {
            (Reason::FairShare | Reason::KeyQueueFull, _) => (Origin::Key, 429),
            (Reason::PoolExhausted, _) => (Origin::Pool, exhausted),
            (Reason::AllCooling, _) => (Origin::Upstream, 429),
            (Reason::NodeCap, _) | (Reason::QueueFull, Some(Origin::Node)) => (Origin::Node, 529),
            (Reason::QueueFull, _) => (Origin::Pool, if why == Reason::FairShare { 429 } else { exhausted }),
        }
    }

    fn numbers(&self, w: &Parked) -> Numbers {
        let (key_in_flight, share, in_flight, capacity, active_keys, _) = self.share(w);
        let parked = u32::try_from(self.parked.iter().filter(|p| p.pool == w.pool).count()).unwrap();
        let (node_counted, node_cap) = (self.counted(), self.node.cap);
        Numbers { key_in_flight, share, in_flight, capacity, active_keys, parked, node_counted, node_cap }
    }

    fn decision(&self, w: &Parked, id: u64, outcome: Outcome, reason: Reason, origin: (Origin, u16)) -> Decision {
        Decision {
            id: DecisionId(id),
            at: self.now,
            session: w.session,
            pool: w.pool,
            key: w.key,
            outcome,
            reason,
            origin: origin.0,
            status: origin.1,
            retry_after: Duration::ZERO,
            waited: self.now.since(w.arrived),
            numbers: self.numbers(w),
        }
    }

    fn shed(&mut self, w: &Parked, reason: Reason, origin: Option<Origin>, back: Option<Instant>) {
        self.shed_because(w, reason, origin, back, reason);
    }

    fn shed_because(&mut self, w: &Parked, reason: Reason, origin: Option<Origin>, back: Option<Instant>, why: Reason) {
        let id = self.epoch + self.next_decision;
        self.next_decision += 1;
        let origin = self.origin_and_status(w, reason, origin, why);
        let mut decision = self.decision(w, id, Outcome::Shed, reason, origin);
        let least = self.least_wait(w, reason);
        let pool = &mut self.pools[index(w.pool.0)];
        let (ends, tail) =
            if origin.0 == Origin::Node { (&self.ends, &mut self.tail) } else { (&pool.ends, &mut pool.tail) };
        decision.retry_after = match (back, interval(ends, self.now)) {
            (Some(at), _) => Duration::from_secs(ceil(at.since(self.now))),
            (None, None) => jittered(Duration::ZERO, id),
            (None, Some(gap)) => {
                *tail = later(*tail, self.now, gap);
                jittered(tail.since(self.now).max(least), id)
            }
        };
        self.out.push(Output::Shed { session: w.session, request: w.request, decision });
        if let Some(lease) = w.lease {
            self.end_lease(lease);
        }
    }

    /// A23: until the key is below its share, by the ends of its own leases, but not longer than until the pool is loose.
    fn least_wait(&self, w: &Parked, reason: Reason) -> Duration {
        let pool = &self.pools[index(w.pool.0)];
        let Some(gap) = interval(&pool.ends, self.now).filter(|_| reason == Reason::FairShare) else {
            return Duration::ZERO;
        };
        let (held, share, t, c, ..) = self.share(w);
        let loose = |t: u32| match pool.policy.fair_share {
            FairShare::Off => true,
            FairShare::EqualSplit { threshold } => c == 0 || t * 100 < c * u32::from(threshold),
            FairShare::MaxMin { headroom } => c == 0 || t < c - headroom.slots(c),
        };
        let ends = (0..=t).find(|ends| loose(t - ends)).unwrap_or(t + 1);
        let own = (held + 1).saturating_sub(share);
        let below = if held == 0 { 0 } else { gap.as_nanos() * u128::from(own * t) / u128::from(held) };
        Duration::from_nanos(u64::try_from(below.min(gap.as_nanos() * u128::from(ends))).unwrap())
    }

    fn observe(&mut self, w: &Parked) -> bool {
        let pool = &self.pools[index(w.pool.0)];
        if pool.policy.mode != Mode::Observe || w.kind != Kind::Ordinary || w.lease.is_some() || self.share(w).5 {
            return false;
        }
        let id = self.epoch + (1 << 47) + self.next_record;
        let (outcome, (reason, origin)) = match self.may_not_wait(w, Reason::FairShare, None) {
            Some(refused) => (Outcome::WouldRefuse, refused),
            None => (Outcome::WouldPark, (Reason::FairShare, None)),
        };
        let origin = self.origin_and_status(w, reason, origin, Reason::FairShare);
        let mut decision = self.decision(w, id, outcome, reason, origin);
        let wait = interval(&pool.ends, self.now)
            .map_or(Duration::ZERO, |gap| later(pool.tail, self.now, gap).since(self.now));
        decision.retry_after = jittered(wait.max(self.least_wait(w, reason)), id);
        self.next_record += 1;
        self.out.push(Output::WouldHave { decision });
        true
    }

    fn reject(&mut self, session: SessionId, request: RequestId, why: RejectReason) {
        self.out.push(Output::Reject { session, request, why });
    }

    fn say_revoke(&mut self, session: SessionId, lease: LeaseId, reason: RevokeReason) {
        self.out.push(Output::Revoke { session, lease, reason });
    }

    fn grant(&mut self, w: &Parked, member: Option<MemberId>) {
        let id = match w.lease {
            Some(id) => {
                let lease = self.leases.iter_mut().find(|l| l.id == id).unwrap();
                (lease.member, lease.relocated) = (member, true);
                id
            }
            None => {
                let id = LeaseId(self.epoch + self.next_lease);
                self.next_lease += 1;
                self.leases.push(Lease {
                    id,
                    session: w.session,
                    pool: w.pool,
                    key: w.key,
                    member,
                    kind: w.kind,
                    candidates: w.candidates.clone(),
                    granted: self.now,
                    expires: self.now.after(self.node.lease_ttl),
                    until: w.until,
                    deadline: w.deadline,
                    relocated: false,
                });
                id
            }
        };
        let (session, request, waited) = (w.session, w.request, self.now.since(w.arrived));
        self.out.push(Output::Grant(Grant { session, request, lease: Some(id), member, waited }));
    }

    fn park(&mut self, mut w: Parked) {
        w.order = self.next_park;
        self.next_park += 1;
        self.out.push(Output::Parked { session: w.session, request: w.request });
        self.parked.push(w);
    }

    /// Grants while anybody who waits can go; pools in order of their index.
    fn serve_all(&mut self) {
        for p in 0..self.pools.len() {
            let id = PoolId(u32::try_from(p).unwrap());
            loop {
                let able = |w: &&Parked| w.pool == id && (self.bypass || matches!(self.judge(w), Answer::Go(_)));
                let rank = |w: &&Parked| match w.lease {
                    Some(_) => (0, 0, w.order),
                    None => {
                        let counted = self.counted_over(id, &w.candidates);
                        (1, counted.iter().filter(|l| l.key == w.key).count(), w.order)
                    }
                };
                let Some(next) = self.parked.iter().filter(able).min_by_key(rank).map(|w| w.order) else { break };
                let at = self.parked.iter().position(|w| w.order == next).unwrap();
                let w = self.parked.remove(at);
                if self.bypass {
                    let member = self.bypass_member(&w);
                    self.grant(&w, member);
                } else if self.deadline_is_hopeless(&w) {
                    self.shed(&w, Reason::PoolExhausted, None, None);
                } else if let Answer::Go(member) = self.judge(&w) {
                    if !w.recorded {
                        self.observe(&w);
                    }
                    self.grant(&w, member);
                }
            }
        }
    }

    fn end_lease(&mut self, id: LeaseId) -> Option<Lease> {
        let at = self.leases.iter().position(|l| l.id == id)?;
        let lease = self.leases.remove(at);
        if let Some(waiting) = self.parked.iter().position(|w| w.lease == Some(id)) {
            let w = self.parked.remove(waiting);
            self.reject(w.session, w.request, RejectReason::NoSuchLease);
        }
        self.pools[index(lease.pool.0)].ends.push(self.now);
        self.ends.push(self.now);
        Some(lease)
    }
}

fn second(at: Instant) -> u64 {
    at.0 / 1_000_000_000
}

/// Mean time between two ends over the last 32 seconds, the one that runs included.
fn interval(ends: &[Instant], now: Instant) -> Option<Duration> {
    let oldest = second(now).saturating_sub(31);
    let seen = ends.iter().filter(|at| second(**at) >= oldest).count() as u64;
    let from = (*ends.first()?).max(Instant(oldest * 1_000_000_000));
    let span = now.0.saturating_sub(from.0).max(1_000_000_000);
    span.checked_div(seen).map(Duration::from_nanos)
}

fn later(tail: Instant, now: Instant, gap: Duration) -> Instant {
    tail.max(now).after(gap).min(now.after(Duration::from_secs(60)))
}

fn ceil(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap().max(1)
}

fn jittered(wait: Duration, id: u64) -> Duration {
    let seconds = ceil(wait).min(60);
    let mut z = id;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_secs(seconds + (z ^ (z >> 31)) % (seconds / 4 + 1))
}
