//! The decision. Order, first match wins: malformed → reject; exempt, hop → pass; bypass → grant; node cap → shed;
//! level → shed; caps → shed; fair share → park, then shed; slots → park, then shed. Nothing is taken before everything
//! can be.
//!
//! Who waits is served by [`Engine::grant_parked`] at the end of every step in which something changed. Between steps
//! therefore no request is parked that could go, and an arrival that can go passes only those that cannot.

use crate::engine::Engine;
use crate::id::MemberId;
use crate::io::{Acquire, Context, Kind, Origin, Outcome, Output, Parent, Reason, RejectReason};
use crate::policy::Mode;
use crate::pools::judge::Obstacle;
use crate::time::{Duration, Instant};
use crate::waiting::park::{Ask, Door, Errand};

/// Of the places for waiting requests, in a pool and on the node, one in so many, rounded up, is kept for requests that
/// name a key, so that a crowd without one leaves room for them (A9).
const KEPT_FOR_KEYS: u32 = 4;

/// Why a request is refused, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) origin: Origin,
    pub(crate) status: u16,
    /// When to try again, where that is known: when the upstream is back, when an override ends.
    pub(crate) back: Option<Instant>,
    /// The limit that refused and what was counted against it; 0 where none did.
    pub(crate) limit: (u32, u32),
}

impl Refusal {
    /// A refusal by no counted limit.
    pub(in crate::engine) fn new(reason: Reason, origin: Origin, status: u16) -> Self {
        Self { reason, origin, status, back: None, limit: (0, 0) }
    }
}

impl Engine {
    pub(in crate::engine) fn acquire(&mut self, mut acquire: Acquire) {
        let (session, request) = (acquire.session, acquire.request);
        if let Some(why) = self.malformed(&acquire) {
            return self.reject(session, request, why);
        }
        self.open_session(session);
        let parent =
            acquire.parent.filter(|parent| acquire.kind == Kind::Ordinary && self.is_parent(*parent, &acquire));
        if let Some(Parent::Child(lease)) = parent {
            // Shedding a child wastes the slot that its parent holds meanwhile.
            acquire.priority = self.lease(lease).map_or(acquire.priority, |lease| lease.priority.min(acquire.priority));
        }
        let member = match (acquire.kind, parent) {
            (Kind::Exempt, _) => {
                self.exempt += 1;
                None
            }
            (Kind::Ordinary, Some(Parent::Hop(lease))) => {
                self.totals.hops += 1;
                self.member_in(lease, acquire.pool)
            }
            (Kind::Ordinary | Kind::Reattach, _) => {
                let ask = self.understand(acquire, parent.is_some());
                return self.decide(ask);
            }
        };
        let Acquire { pool, key, org, class, .. } = acquire;
        let context = Context { at: self.now, session, pool, key, org, class, member };
        self.announce(Output::Passed { context, request });
    }

    /// Answers a request for a slot, or lets it wait.
    pub(in crate::engine) fn decide(&mut self, ask: Ask) {
        // A child frees the slot of its parent sooner.
        if self.draining && ask.door != Door::Child {
            return self.shed(ask, Self::draining_refusal());
        }
        if self.bypass {
            return self.let_pass(ask);
        }
        if self.node.cap > 0 && self.node_counted() >= self.node.cap {
            return self.shed(ask, Refusal::new(Reason::NodeCap, Origin::Node, 529));
        }
        let mut recorded = false;
        for rule in [Self::level_refusal, Self::key_refusal, Self::plan_refusal] {
            let Some((refusal, mode)) = rule(self, &ask) else { continue };
            if mode == Mode::Enforce {
                return self.shed(ask, refusal);
            }
            if !recorded {
                self.record(&ask, Outcome::WouldRefuse, refusal);
                recorded = true;
            }
        }
        recorded = recorded || self.observe_share(&ask);
        self.answer(ask, recorded);
    }

    /// What a new request is answered while an operator drains the node.
    pub(in crate::engine) fn draining_refusal() -> Refusal {
        Refusal::new(Reason::Draining, Origin::Node, 529)
    }

    /// The last steps: share, then slots.
    pub(in crate::engine) fn answer(&mut self, ask: Ask, recorded: bool) {
        match self.pools[ask.pool.index()].judge(&ask, &self.parties) {
            Ok(member) => self.grant(ask, member),
            Err(obstacle) => {
                let refusal = self.refusal(&ask, obstacle);
                match self.park_refusal(&ask, refusal) {
                    Some(refusal) => self.shed(ask, refusal),
                    None => self.park(ask, recorded),
                }
            }
        }
    }

    /// Bypass is on: some member takes it.
    pub(in crate::engine) fn let_pass(&mut self, ask: Ask) {
        let member = self.pools[ask.pool.index()].place_anyhow(&ask);
        self.totals.bypassed += 1;
        self.grant(ask, member);
    }

    fn malformed(&self, acquire: &Acquire) -> Option<RejectReason> {
        let Some(pool) = self.pools.get(acquire.pool.index()).filter(|pool| pool.present) else {
            return Some(RejectReason::UnknownPool);
        };
        let mut named = acquire.candidates.iter().chain(&acquire.sticky);
        if named.any(|member| pool.present_member(*member).is_none()) {
            return Some(RejectReason::UnknownMember);
        }
        if acquire.kind == Kind::Reattach && acquire.sticky.is_none() {
            return Some(RejectReason::ReattachWithoutMember);
        }
        self.is_unanswered(acquire.session, acquire.request).then_some(RejectReason::DuplicateRequest)
    }

    fn understand(&mut self, acquire: Acquire, child: bool) -> Ask {
        let holder = self.resolve_holder(acquire.pool, acquire.key, acquire.org, acquire.class);
        // On other terms a parked request may be able to go; it goes before this request is judged.
        self.settle();
        let door = Door::of(acquire.kind, holder.key.is_some(), child);
        // Re-attached work has one candidate: the member its session runs on.
        let candidates = match (door, acquire.sticky) {
            (Door::Reattach, Some(only)) => vec![only],
            _ => acquire.candidates,
        };
        let traffic = self.pools[acquire.pool.index()].traffic.known_now(acquire.traffic);
        let (set, max_wait) = self.intern(acquire.pool, candidates);
        let longest = acquire.max_wait.map_or(max_wait, |wait| wait.min(max_wait));
        let until = self.now.after(longest);
        Ask {
            session: acquire.session,
            request: acquire.request,
            pool: acquire.pool,
            holder,
            kind: acquire.kind,
            door,
            priority: acquire.priority,
            traffic,
            set,
            sticky: acquire.sticky,
            arrived: self.now,
            until: acquire.deadline.map_or(until, |deadline| until.min(deadline)),
            deadline: acquire.deadline,
            errand: Errand::New { ends_with_client: acquire.ends_with_client, site: acquire.site },
        }
    }

    /// Observe mode: records what the share would do to this request if it acted; whether it did.
    pub(in crate::engine) fn observe_share(&mut self, ask: &Ask) -> bool {
        let pool = &self.pools[ask.pool.index()];
        if pool.policy.mode != Mode::Observe || ask.door != Door::Keyed {
            return false;
        }
        if pool.would_admit(ask.set, ask.holder, &self.parties) {
            return false;
        }
        let refusal = self.refusal(ask, Obstacle::OverShare);
        let (outcome, refusal) = match self.park_refusal(ask, refusal) {
            Some(refusal) => (Outcome::WouldRefuse, refusal),
            None => (Outcome::WouldPark, refusal),
        };
        self.record(ask, outcome, refusal);
        true
    }

    /// What an obstacle means to the client if it does not wait.
    pub(in crate::engine) fn refusal(&self, ask: &Ask, obstacle: Obstacle) -> Refusal {
        let pool = &self.pools[ask.pool.index()];
        let exhausted = pool.policy.exhausted_status;
        match obstacle {
            Obstacle::OverShare => {
                let of_org = pool.sets.by_org && ask.holder.org.is_some();
                Refusal::new(Reason::FairShare, if of_org { Origin::Org } else { Origin::Key }, 429)
            }
            Obstacle::SubCapacity => {
                let limit = (pool.traffic.limit(ask.traffic).unwrap_or(0), pool.traffic.in_flight(ask.traffic));
                Refusal { limit, ..Refusal::new(Reason::SubCapacity, Origin::Pool, exhausted) }
            }
            Obstacle::AllCooling(back) => {
                // An operator may order more; the order may end any time.
                let back = back.min(self.now.after(pool.policy.max_cooldown));
                Refusal { back: Some(back), ..Refusal::new(Reason::AllCooling, Origin::Upstream, 429) }
            }
            Obstacle::Exhausted => Refusal::new(Reason::PoolExhausted, Origin::Pool, exhausted),
        }
    }

    /// Why a request that cannot go may not wait either; `None` if it may.
    pub(in crate::engine) fn park_refusal(&self, ask: &Ask, refusal: Refusal) -> Option<Refusal> {
        let pool = &self.pools[ask.pool.index()];
        let too_late = ask.until <= self.now || refusal.back.is_some_and(|back| back > ask.until);
        if ask.door == Door::Child || too_late || !self.may_be_in_time(ask) {
            return Some(refusal);
        }
        if ask.moves() {
            // Its slot was given to it before; it keeps no other request out.
            return None;
        }
        let of_key = ask.holder.key.and_then(|key| pool.parked_by_key.get(&key)).copied().unwrap_or(0);
        let waiting = u32::try_from(self.parked.len()).unwrap_or(u32::MAX);
        let is_anonymous = self.parties.key_of(ask.holder).is_none() && matches!(ask.door, Door::Keyless | Door::Keyed);
        let open_to_it = |places: u32| if is_anonymous { places - places.div_ceil(KEPT_FOR_KEYS) } else { places };
        let of_key_limit = pool.policy.max_parked_per_key;
        let (of_pool, of_node) = (open_to_it(pool.park_limit()), open_to_it(self.node.max_parked));
        let (full, limit) = if ask.holder.key.is_some() && of_key >= of_key_limit {
            (Refusal::new(Reason::KeyQueueFull, Origin::Key, 429), (of_key_limit, of_key))
        } else if pool.parked >= of_pool {
            let status = if refusal.reason == Reason::FairShare { 429 } else { pool.policy.exhausted_status };
            (Refusal::new(Reason::QueueFull, Origin::Pool, status), (of_pool, pool.parked))
        } else if waiting >= of_node {
            (Refusal::new(Reason::QueueFull, Origin::Node, 529), (of_node, waiting))
        } else {
            return None;
        };
        Some(Refusal { limit, ..full })
    }

    /// Whether a request that begins to wait may be done by its client's deadline: its key's requests before it and
    /// itself need a slot each, and slots come back at the pool's pace. That is the least it waits: no request is
    /// refused that could be in time.
    fn may_be_in_time(&self, ask: &Ask) -> bool {
        let Some(deadline) = ask.deadline else { return true };
        let pool = &self.pools[ask.pool.index()];
        let before_it = match ask.holder.key {
            Some(key) if !ask.moves() && !pool.sets.standings.newest_first => pool.parked_by_key.get(&key).copied(),
            Some(_) | None => None,
        };
        let wait = pool.drain.interval(self.now).unwrap_or(Duration::ZERO).saturating_mul(before_it.unwrap_or(0) + 1);
        pool.service.fits(self.now.after(wait), deadline)
    }

    /// Where a lease runs, if it is in this pool.
    fn member_in(&self, lease: crate::id::LeaseId, pool: crate::id::PoolId) -> Option<MemberId> {
        self.lease(lease).filter(|lease| lease.pool == pool)?.member
    }
}
