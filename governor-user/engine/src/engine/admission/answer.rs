//! Answers: grants, refusals, and what is written down about them in numbers.

use crate::engine::Engine;
use crate::engine::admission::Refusal;
use crate::id::{DecisionId, LeaseId, MemberId, RequestId, SessionId, SiteId};
use crate::io::{Decision, EndCause, Grant, Numbers, Origin, Outcome, Output, Reason, RejectReason};
use crate::leases::lease::{Lease, Moment};
use crate::pools::retry;
use crate::time::Duration;
use crate::waiting::park::{Ask, Door, Errand};

impl Engine {
    /// Grants to a request what `place` found for it.
    pub(in crate::engine) fn grant(&mut self, ask: Ask, member: Option<MemberId>) {
        // What moves has its grant already.
        let is_new = !matches!(ask.errand, Errand::Move(_));
        self.pools[ask.pool.index()].counters.granted += u64::from(is_new);
        let (context, request, waited) = (self.context_for(&ask, member), ask.request, self.now.since(ask.arrived));
        let grant = |lease| Grant { context, request, lease, waited };
        let order = match ask.errand {
            Errand::Move(lease) => {
                let from = self.place_again(lease, member);
                self.forget(&ask);
                Output::Moved { grant: grant(lease), from }
            }
            Errand::Resume(lease) => {
                self.run_again(lease, &ask, member);
                self.forget(&ask);
                Output::Resumed(grant(lease))
            }
            Errand::New { ends_with_client, site } => {
                let lease = Lease { ends_with_client, site, ..self.new_lease(&ask, member) };
                Output::Began(grant(self.insert_lease(lease)))
            }
        };
        self.announce(order);
    }

    /// The lease that a request gets. It takes over the request's set and holder.
    fn new_lease(&mut self, ask: &Ask, member: Option<MemberId>) -> Lease {
        Lease {
            id: LeaseId(self.lease_ids.next()),
            session: ask.session,
            pool: ask.pool,
            holder: ask.holder,
            member,
            set: ask.set,
            kind: ask.kind,
            child: ask.door == Door::Child,
            claim: None,
            priority: ask.priority,
            traffic: ask.traffic,
            ends_with_client: false,
            site: SiteId::default(),
            client_gone: false,
            suspended: false,
            relocated: false,
            granted: self.now,
            expires: self.now.after(self.node.lease_ttl),
            reclaimed: Moment::NEVER,
            moved: Moment::NEVER,
            park_until: ask.until,
            deadline: Moment::from(ask.deadline),
            waits: None,
            timer: 0,
        }
    }

    /// Refuses. A lease that could not move is over with it; one that could not resume stays suspended.
    pub(in crate::engine) fn shed(&mut self, ask: Ask, refusal: Refusal) {
        let id = DecisionId(self.decision_ids.next());
        let now = self.now;
        let retry_after = match (refusal.reason, refusal.back) {
            (Reason::Suspended, back) => retry::polite(back.map_or(retry::LONGEST, |back| back.since(now)), id),
            (_, Some(back)) => retry::after_reset(back.since(now), id),
            (_, None) if refusal.origin == Origin::Node => {
                retry::polite(self.queue.push(now, self.drain.interval(now)), id)
            }
            (_, None) => {
                let pool = &mut self.pools[ask.pool.index()];
                let interval = pool.drain.interval(now);
                let queued = pool.queue.push(now, interval);
                retry::polite(queued.max(pool.least_wait(&ask, refusal.reason, interval, &self.parties)), id)
            }
        };
        *self.pools[ask.pool.index()].counters.shed.entry(refusal.reason).or_insert(0) += 1;
        let decision = self.decision(id, &ask, Outcome::Shed, refusal, retry_after);
        self.announce(Output::Refused { request: ask.request, decision: Box::new(decision) });
        if let Errand::Move(lease) = ask.errand {
            self.give_back(lease, EndCause::NotMoved);
            self.totals.released += 1;
        }
        self.forget(&ask);
    }

    /// Writes down what a rule that only observes would have done.
    pub(in crate::engine) fn record(&mut self, ask: &Ask, outcome: Outcome, refusal: Refusal) {
        let id = DecisionId(self.record_ids.next());
        let now = self.now;
        let pool = &mut self.pools[ask.pool.index()];
        let (parks, refuses) = pool.counters.would_have.entry(refusal.reason).or_default();
        *(if outcome == Outcome::WouldPark { parks } else { refuses }) += 1;
        let wait = if refusal.origin == Origin::Node {
            self.queue.peek(now, self.drain.interval(now))
        } else {
            let interval = pool.drain.interval(now);
            let queued = pool.queue.peek(now, interval);
            queued.max(pool.least_wait(ask, refusal.reason, interval, &self.parties))
        };
        let decision = self.decision(id, ask, outcome, refusal, retry::polite(wait, id));
        self.announce(Output::WouldHave { decision: Box::new(decision) });
    }

    pub(in crate::engine) fn reject(&mut self, session: SessionId, request: RequestId, why: RejectReason) {
        self.totals.rejected += 1;
        self.announce(Output::Rejected { session, request, why });
    }

    /// A request is over: it refers to no principal any more.
    pub(in crate::engine) fn forget(&mut self, ask: &Ask) {
        self.pools[ask.pool.index()].sets.release(ask.set);
        self.parties.release(ask.holder);
    }

    fn decision(
        &self,
        id: DecisionId,
        ask: &Ask,
        outcome: Outcome,
        refusal: Refusal,
        retry_after: Duration,
    ) -> Decision {
        let (limit, limited) = refusal.limit;
        Decision {
            id,
            at: self.now,
            session: ask.session,
            pool: ask.pool,
            key: self.parties.key_of(ask.holder),
            org: self.parties.org_of(ask.holder),
            class: self.parties.class_of(ask.holder),
            priority: ask.priority,
            level: self.level,
            outcome,
            reason: refusal.reason,
            origin: refusal.origin,
            status: refusal.status,
            retry_after,
            waited: self.now.since(ask.arrived),
            numbers: Numbers { limit, limited, ..self.numbers(ask) },
        }
    }

    fn numbers(&self, ask: &Ask) -> Numbers {
        let pool = &self.pools[ask.pool.index()];
        let set = pool.sets.get(ask.set);
        let standing = pool.standing(ask.set, ask.holder, &self.parties);
        let unit = ask.holder.unit(pool.sets.by_org);
        Numbers {
            key_in_flight: ask.holder.key.map_or(0, |key| set.counts(key).in_flight),
            share: standing.share,
            unit_in_flight: if unit.is_some() { set.held(unit, pool.sets.by_org) } else { 0 },
            weight: self.parties.terms(ask.holder, unit).weight,
            floor: standing.floor,
            headroom: standing.headroom,
            filled: standing.filled,
            in_flight: set.total,
            capacity: set.capacity,
            active_keys: pool.active_keys(ask.set, ask.holder),
            parked: pool.parked,
            node_counted: self.node_counted(),
            node_cap: self.node.cap,
            limit: 0,
            limited: 0,
        }
    }

    /// Counted requests, granted or parked. One that holds a lease while it waits counts once, a suspended lease not at
    /// all.
    pub(in crate::engine) fn node_counted(&self) -> u32 {
        let counted = self.leases.len() + self.parked.len();
        u32::try_from(counted).unwrap_or(u32::MAX) - self.parked_moves - self.suspended
    }
}
