//! The decision. Order, first match wins: malformed → reject; exempt → pass; bypass → grant; node cap → shed; fair
//! share → park, then shed; member slots → park, then shed. Nothing is taken before everything can be.
//!
//! Who waits is served by [`Engine::grant_parked`] at the end of every step in which something changed. Between steps
//! therefore nobody is parked who could go, and an arrival that can go passes only those who cannot.

use crate::engine::{Engine, Timer};
use crate::id::{DecisionId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use crate::io::{Acquire, Decision, Grant, Kind, Numbers, Origin, Outcome, Output, Reason, RejectReason};
use crate::lease::Lease;
use crate::park::{Ask, Class, ParkId, Parked};
use crate::policy::Mode;
use crate::pool::Obstacle;
use crate::retry;
use crate::time::{Duration, Instant};

/// Why a request is refused, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) origin: Origin,
    pub(crate) status: u16,
    /// When the upstream takes requests again, for [`Reason::AllCooling`].
    pub(crate) back: Option<Instant>,
}

impl Engine {
    pub(crate) fn acquire(&mut self, acquire: Acquire) {
        let (session, request) = (acquire.session, acquire.request);
        if let Some(why) = self.malformed(&acquire) {
            return self.reject(session, request, why);
        }
        self.open_session(session);
        if acquire.kind == Kind::Exempt {
            self.exempt += 1;
            let waited = Duration::ZERO;
            return self.outputs.push_back(Output::Grant(Grant {
                session,
                request,
                lease: None,
                member: None,
                waited,
            }));
        }
        let ask = self.understand(acquire);
        if self.bypass {
            let member = self.pools[ask.pool.index()].place_anyhow(&ask);
            self.totals.bypassed += 1;
            return self.grant(ask, member);
        }
        if self.node.cap > 0 && self.node_counted() >= self.node.cap {
            let refusal = Refusal { reason: Reason::NodeCap, origin: Origin::Node, status: 529, back: None };
            return self.shed(ask, refusal);
        }
        let recorded = self.observe(&ask);
        match self.pools[ask.pool.index()].judge(&ask) {
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

    fn understand(&mut self, acquire: Acquire) -> Ask {
        let pool = &mut self.pools[acquire.pool.index()];
        let class = match (acquire.kind, acquire.key) {
            (Kind::Reattach, _) => Class::Reattach,
            (Kind::Ordinary | Kind::Exempt, None) => Class::Keyless,
            (Kind::Ordinary | Kind::Exempt, Some(_)) => Class::Keyed,
        };
        // Re-attached work has one candidate: the member its session runs on.
        let candidates = match (class, acquire.sticky) {
            (Class::Reattach, Some(only)) => vec![only],
            _ => acquire.candidates,
        };
        let longest = acquire.max_wait.map_or(pool.policy.max_wait, |wait| wait.min(pool.policy.max_wait));
        let until = self.now.after(longest);
        Ask {
            session: acquire.session,
            request: acquire.request,
            pool: acquire.pool,
            holder: acquire.key,
            kind: acquire.kind,
            class,
            set: pool.intern(candidates),
            sticky: acquire.sticky,
            arrived: self.now,
            until: acquire.deadline.map_or(until, |deadline| until.min(deadline)),
            deadline: acquire.deadline,
            lease: None,
        }
    }

    /// Observe mode: records what enforce would do to this request; whether it did.
    fn observe(&mut self, ask: &Ask) -> bool {
        let pool = &self.pools[ask.pool.index()];
        if pool.policy.mode != Mode::Observe || ask.class != Class::Keyed {
            return false;
        }
        if pool.standing(ask.set, ask.holder).admitted {
            return false;
        }
        let refusal = self.refusal(ask, Obstacle::OverShare);
        let (outcome, refusal) = match self.park_refusal(ask, refusal) {
            Some(refusal) => (Outcome::WouldRefuse, refusal),
            None => (Outcome::WouldPark, refusal),
        };
        let pool = &mut self.pools[ask.pool.index()];
        let (parks, refuses) = pool.counters.would_have.entry(refusal.reason).or_default();
        *(if outcome == Outcome::WouldPark { parks } else { refuses }) += 1;
        let interval = pool.drain.interval(self.now);
        let wait = pool.queue.peek(self.now, interval).max(pool.least_wait(ask, refusal.reason, interval));
        let id = DecisionId(self.record_ids.next());
        let decision = self.decision(id, ask, outcome, refusal, retry::polite(wait, id));
        self.outputs.push_back(Output::WouldHave { decision });
        true
    }

    /// What an obstacle means to the client if it does not wait.
    pub(crate) fn refusal(&self, ask: &Ask, obstacle: Obstacle) -> Refusal {
        let exhausted = self.pools[ask.pool.index()].policy.exhausted_status;
        let (reason, origin, status, back) = match obstacle {
            Obstacle::OverShare => (Reason::FairShare, Origin::Key, 429, None),
            Obstacle::AllCooling(back) => (Reason::AllCooling, Origin::Upstream, 429, Some(back)),
            Obstacle::Exhausted => (Reason::PoolExhausted, Origin::Pool, exhausted, None),
        };
        Refusal { reason, origin, status, back }
    }

    /// Why a request that cannot go may not wait either; `None` if it may.
    pub(crate) fn park_refusal(&self, ask: &Ask, refusal: Refusal) -> Option<Refusal> {
        let pool = &self.pools[ask.pool.index()];
        let too_late = ask.until <= self.now || refusal.back.is_some_and(|back| back > ask.until);
        if too_late || ask.deadline.is_some_and(|deadline| !pool.service.fits(self.now, deadline)) {
            return Some(refusal);
        }
        if ask.class == Class::Move {
            // Its place was given to it before; nobody else is kept out by it.
            return None;
        }
        let of_key = ask.holder.and_then(|key| pool.parked_by_key.get(&key)).copied().unwrap_or(0);
        let (reason, origin, status) = if ask.holder.is_some() && of_key >= pool.policy.max_parked_per_key {
            (Reason::KeyQueueFull, Origin::Key, 429)
        } else if pool.parked >= pool.park_limit() {
            let status = if refusal.reason == Reason::FairShare { 429 } else { pool.policy.exhausted_status };
            (Reason::QueueFull, Origin::Pool, status)
        } else if self.parked.len() >= self.node.max_parked as usize {
            (Reason::QueueFull, Origin::Node, 529)
        } else {
            return None;
        };
        Some(Refusal { reason, origin, status, back: None })
    }

    /// Grants to a request what `place` found for it.
    pub(crate) fn grant(&mut self, ask: Ask, member: Option<MemberId>) {
        let pool = &mut self.pools[ask.pool.index()];
        pool.counters.granted += 1;
        let lease = match ask.lease {
            Some(lease) => {
                self.place_again(lease, ask.set, member);
                lease
            }
            None => {
                pool.add(member, ask.holder, ask.kind);
                let lease = LeaseId(self.lease_ids.next());
                self.insert_lease(
                    lease,
                    Lease {
                        session: ask.session,
                        pool: ask.pool,
                        holder: ask.holder,
                        member,
                        kind: ask.kind,
                        set: ask.set,
                        granted: self.now,
                        expires: self.now.after(self.node.lease_ttl),
                        moved: None,
                        park_until: ask.until,
                        deadline: ask.deadline,
                        relocated: false,
                        moving: None,
                    },
                );
                lease
            }
        };
        let waited = self.now.since(ask.arrived);
        let (session, request) = (ask.session, ask.request);
        self.outputs.push_back(Output::Grant(Grant { session, request, lease: Some(lease), member, waited }));
    }

    /// Lets a request wait.
    pub(crate) fn park(&mut self, ask: Ask, recorded: bool) {
        let park = ParkId(self.next_park);
        self.next_park += 1;
        let pool = &mut self.pools[ask.pool.index()];
        pool.parked += 1;
        pool.counters.parked += 1;
        if let Some(key) = ask.holder {
            *pool.parked_by_key.entry(key).or_insert(0) += 1;
        }
        pool.sets.park(ask.set, ask.class, park, ask.holder);
        self.parked_moves += u32::from(ask.lease.is_some());
        if let Some(lease) = ask.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.moving = Some(park);
        }
        self.timers.insert((ask.until, Timer::Park(park)));
        self.note_parked(ask.session, ask.request, park);
        self.outputs.push_back(Output::Parked { session: ask.session, request: ask.request });
        self.parked.insert(park, Parked { ask, recorded });
    }

    /// Takes a request out of the queues, for whatever comes next. The caller answers it and owns its set.
    pub(crate) fn unpark(&mut self, park: ParkId) -> Option<Parked> {
        let parked = self.parked.remove(&park)?;
        let ask = &parked.ask;
        let pool = &mut self.pools[ask.pool.index()];
        pool.parked -= 1;
        if let Some(key) = ask.holder
            && let Some(count) = pool.parked_by_key.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                pool.parked_by_key.remove(&key);
            }
        }
        pool.sets.unpark(ask.set, ask.class, park, ask.holder);
        self.parked_moves -= u32::from(ask.lease.is_some());
        if let Some(lease) = ask.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.moving = None;
        }
        self.timers.remove(&(ask.until, Timer::Park(park)));
        self.forget_parked(ask.session, ask.request);
        Some(parked)
    }

    /// A parked request's wait is spent: refused on the numbers of now.
    pub(crate) fn give_up(&mut self, park: ParkId) {
        let Some(parked) = self.unpark(park) else { return };
        let obstacle = self.pools[parked.ask.pool.index()].judge(&parked.ask).err().unwrap_or(Obstacle::Exhausted);
        let refusal = self.refusal(&parked.ask, obstacle);
        // What it wanted is there to be shared by those who still wait.
        self.wake(parked.ask.pool);
        self.shed(parked.ask, refusal);
    }

    /// Grants to parked requests of a pool until none can go: most deserving first.
    pub(crate) fn grant_parked(&mut self, pool: PoolId) {
        while let Some(park) = self.most_deserving(pool) {
            let Some(Parked { ask, recorded }) = self.unpark(park) else { return };
            let pool = &self.pools[ask.pool.index()];
            if self.bypass {
                let member = pool.place_anyhow(&ask);
                self.totals.bypassed += 1;
                self.grant(ask, member);
                continue;
            }
            if ask.deadline.is_some_and(|deadline| !pool.service.fits(self.now, deadline)) {
                // Its client would be gone before the work is done: the slot is better used by another.
                let refusal = self.refusal(&ask, Obstacle::Exhausted);
                self.shed(ask, refusal);
                continue;
            }
            match pool.judge(&ask) {
                Ok(member) => {
                    if !recorded {
                        self.observe(&ask);
                    }
                    self.grant(ask, member);
                }
                Err(obstacle) => {
                    debug_assert!(false, "the most deserving can go");
                    let refusal = self.refusal(&ask, obstacle);
                    self.shed(ask, refusal);
                }
            }
        }
    }

    /// Who goes next in a pool, if anybody can: those that move, then least in flight, then longest waiting.
    pub(crate) fn most_deserving(&self, pool: PoolId) -> Option<ParkId> {
        let pool = &self.pools[pool.index()];
        let mut best: Option<(bool, u32, ParkId)> = None;
        for set in pool.sets.waiting() {
            for class in Class::ALL {
                let Some((in_flight, park, holder)) = set.lane(class).head() else { continue };
                let rank = (class != Class::Move, in_flight, park);
                if best.is_some_and(|best| best <= rank) {
                    continue;
                }
                if self.bypass || pool.lane_can_go(set, class, holder) {
                    best = Some(rank);
                }
            }
        }
        best.map(|(_, _, park)| park)
    }

    /// Refuses. A lease that could not move is over with it.
    pub(crate) fn shed(&mut self, ask: Ask, refusal: Refusal) {
        let id = DecisionId(self.decision_ids.next());
        let now = self.now;
        let pool = &mut self.pools[ask.pool.index()];
        let retry_after = match refusal.back {
            Some(back) => retry::whole_seconds(back.since(now)),
            None if refusal.origin == Origin::Node => retry::polite(self.queue.push(now, self.drain.interval(now)), id),
            None => {
                let interval = pool.drain.interval(now);
                let queued = pool.queue.push(now, interval);
                retry::polite(queued.max(pool.least_wait(&ask, refusal.reason, interval)), id)
            }
        };
        *pool.counters.shed.entry(refusal.reason).or_insert(0) += 1;
        let decision = self.decision(id, &ask, Outcome::Shed, refusal, retry_after);
        self.outputs.push_back(Output::Shed { session: ask.session, request: ask.request, decision });
        if let Some(lease) = ask.lease {
            self.give_back(lease);
            self.totals.released += 1;
        }
        self.pools[ask.pool.index()].sets.release(ask.set);
    }

    pub(crate) fn reject(&mut self, session: SessionId, request: RequestId, why: RejectReason) {
        self.totals.rejected += 1;
        self.outputs.push_back(Output::Reject { session, request, why });
    }

    fn decision(
        &self,
        id: DecisionId,
        ask: &Ask,
        outcome: Outcome,
        refusal: Refusal,
        retry_after: Duration,
    ) -> Decision {
        let pool = &self.pools[ask.pool.index()];
        let standing = pool.standing(ask.set, ask.holder);
        let set = pool.sets.get(ask.set);
        Decision {
            id,
            at: self.now,
            session: ask.session,
            pool: ask.pool,
            key: ask.holder,
            outcome,
            reason: refusal.reason,
            origin: refusal.origin,
            status: refusal.status,
            retry_after,
            waited: self.now.since(ask.arrived),
            numbers: Numbers {
                key_in_flight: standing.key_in_flight,
                share: standing.share,
                in_flight: set.load.total(),
                capacity: set.capacity,
                active_keys: standing.active_keys,
                parked: pool.parked,
                node_counted: self.node_counted(),
                node_cap: self.node.cap,
                ..Numbers::default()
            },
            ..Decision::default()
        }
    }

    /// Counted requests, granted or parked. One that holds a lease while it waits counts once.
    pub(crate) fn node_counted(&self) -> u32 {
        let counted = self.leases.len() + self.parked.len();
        u32::try_from(counted).unwrap_or(u32::MAX) - self.parked_moves
    }
}
