//! Answers: grants, refusals and records, with their numbers.

mod orders;

pub(super) use orders::ShownMember;

use super::Lease;
use super::Model;
use super::Parked;
use super::Task;
use super::Unit;
use super::index;
use governor_engine::id::{DecisionId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Decision, EndCause, Grant, Numbers, Origin, Outcome, Output, Reason, RejectReason, WaitEnd};
use governor_engine::policy::Mode;
use governor_engine::time::{Duration, Instant};

impl Model {
    pub(super) fn origin_and_status(
        &self,
        w: &Parked,
        reason: Reason,
        origin: Option<Origin>,
        why: Reason,
    ) -> (Origin, u16) {
        let exhausted = self.pools[index(w.pool.0)].policy.exhausted_status;
        match (reason, origin) {
            (Reason::FairShare, _) if matches!(self.unit(w), Some(Unit::Org(_))) => (Origin::Org, 429),
            (Reason::FairShare | Reason::KeyQueueFull, _) => (Origin::Key, 429),
            (Reason::Suspended, _) => (Origin::Key, 403),
            (Reason::PoolExhausted | Reason::SubCapacity, _) => (Origin::Pool, exhausted),
            (Reason::AllCooling, _) => (Origin::Upstream, 429),
            (Reason::NodeCap | Reason::Overload | Reason::Draining, _) | (Reason::QueueFull, Some(Origin::Node)) => {
                (Origin::Node, 529)
            }
            (Reason::QueueFull, _) => (Origin::Pool, if why == Reason::FairShare { 429 } else { exhausted }),
            (Reason::KeyCap | Reason::OrgCap | Reason::ClassCap, _) => panic!("caps say whose they are"),
        }
    }

    fn numbers(&self, w: &Parked, reason: Reason, by: Origin) -> Numbers {
        let standing = self.standing(w);
        let (limit, limited) = if matches!(reason, Reason::KeyQueueFull | Reason::QueueFull) {
            self.waiting(w, reason, by)
        } else {
            let (running, slots) = self.sub_capacity(w).filter(|_| reason == Reason::SubCapacity).unwrap_or((0, 0));
            (slots, running)
        };
        Numbers {
            key_in_flight: standing.key_in_flight,
            share: standing.share,
            unit_in_flight: standing.unit_in_flight,
            weight: standing.weight,
            floor: standing.floor,
            headroom: standing.headroom,
            filled: standing.filled,
            limit,
            limited,
            in_flight: standing.in_flight,
            capacity: standing.capacity,
            active_keys: standing.active_keys,
            parked: u32::try_from(self.parked.iter().filter(|p| p.pool == w.pool).count()).unwrap(),
            node_counted: self.counted(),
            node_cap: self.node.cap,
        }
    }

    pub(super) fn next_decision_id(&mut self) -> u64 {
        self.next_decision += 1;
        self.epoch + self.next_decision - 1
    }

    /// Records count in a range of their own.
    pub(super) fn next_record_id(&mut self) -> u64 {
        self.next_record += 1;
        self.epoch + (1 << 47) + self.next_record - 1
    }

    pub(super) fn decision(
        &self,
        w: &Parked,
        id: u64,
        outcome: Outcome,
        reason: Reason,
        origin: (Origin, u16),
    ) -> Decision {
        Decision {
            id: DecisionId(id),
            at: self.now,
            session: w.session,
            pool: w.pool,
            key: w.who.named(),
            org: w.who.org,
            class: self.class(w.who),
            priority: w.priority,
            level: self.level,
            outcome,
            reason,
            origin: origin.0,
            status: origin.1,
            retry_after: Duration::ZERO,
            waited: self.now.since(w.arrived),
            numbers: self.numbers(w, reason, origin.0),
        }
    }

    pub(super) fn shed(&mut self, w: &Parked, reason: Reason, origin: Option<Origin>, back: Option<Instant>) {
        self.shed_because(w, reason, origin, back, reason);
    }

    pub(super) fn shed_because(
        &mut self,
        w: &Parked,
        reason: Reason,
        origin: Option<Origin>,
        back: Option<Instant>,
        why: Reason,
    ) {
        let id = self.next_decision_id();
        let origin = self.origin_and_status(w, reason, origin, why);
        let mut decision = self.decision(w, id, Outcome::Shed, reason, origin);
        decision.retry_after = self.told(w, reason, origin.0, back, id);
        self.out.push(Output::Refused { request: w.request, decision: Box::new(decision) });
        // A move that fails ends its lease; one that cannot resume stays suspended.
        if let Task::Move(lease) = w.task {
            self.end_lease(lease, EndCause::NotMoved);
        }
    }

    pub(super) fn observe(&mut self, w: &Parked) -> bool {
        let pool = &self.pools[index(w.pool.0)];
        if pool.policy.mode != Mode::Observe || !Self::is_ordinary(w) || self.standing(w).admitted {
            return false;
        }
        let (outcome, (reason, origin)) = match self.may_not_wait(w, Reason::FairShare, None) {
            Some(refused) => (Outcome::WouldRefuse, refused),
            None => (Outcome::WouldPark, (Reason::FairShare, None)),
        };
        let origin = self.origin_and_status(w, reason, origin, Reason::FairShare);
        let id = self.next_record_id();
        let mut decision = self.decision(w, id, outcome, reason, origin);
        decision.retry_after = self.would_tell(w, reason, origin.0, id);
        self.out.push(Output::WouldHave { decision: Box::new(decision) });
        true
    }

    pub(super) fn reject(&mut self, session: SessionId, request: RequestId, why: RejectReason) {
        self.out.push(Output::Rejected { session, request, why });
    }

    pub(super) fn say_unknown(&mut self, session: SessionId, lease: LeaseId) {
        self.out.push(Output::UnknownLease { session, lease });
    }

    pub(super) fn grant(&mut self, w: &Parked, member: Option<MemberId>) {
        let mut from = None;
        let id = match w.task {
            Task::Move(id) => {
                let lease = self.leases.iter_mut().find(|l| l.id == id).unwrap();
                from = lease.member;
                (lease.member, lease.relocated) = (member, true);
                id
            }
            Task::Resume(id) => {
                let lease = self.leases.iter_mut().find(|l| l.id == id).unwrap();
                (lease.member, lease.suspended, lease.relocated) = (member, false, false);
                (lease.granted, lease.until, lease.deadline) = (self.now, w.until, w.deadline);
                id
            }
            Task::New => {
                let id = LeaseId(self.epoch + self.next_lease);
                self.next_lease += 1;
                self.leases.push(Lease {
                    id,
                    session: w.session,
                    pool: w.pool,
                    who: w.who,
                    priority: w.priority,
                    traffic: w.traffic,
                    member,
                    kind: w.kind,
                    child: w.child,
                    claimed: None,
                    candidates: w.candidates.clone(),
                    granted: self.now,
                    expires: self.now.after(self.node.lease_ttl),
                    until: w.until,
                    deadline: w.deadline,
                    relocated: false,
                    suspended: false,
                    ends_with_client: w.ends_with_client,
                    client_gone: false,
                    reclaimed: None,
                });
                id
            }
        };
        let context = self.context(w.session, w.pool, w.who, member);
        let grant = Grant { context, request: w.request, lease: id, waited: self.now.since(w.arrived) };
        self.out.push(match w.task {
            Task::New => Output::Began(grant),
            Task::Move(_) => Output::Moved { grant, from },
            Task::Resume(_) => Output::Resumed(grant),
        });
    }

    /// Takes the lease off the list; a request that waits for it is over.
    pub(super) fn end_lease(&mut self, id: LeaseId, cause: EndCause) -> Option<Lease> {
        let at = self.leases.iter().position(|l| l.id == id)?;
        for w in self.take_parked(|w| matches!(w.task, Task::Move(it) | Task::Resume(it) if it == id)) {
            self.say_unparked(&w, WaitEnd::Gone);
            self.reject(w.session, w.request, RejectReason::NoSuchLease);
        }
        let lease = self.leases.remove(at);
        self.say_ended(&lease, cause);
        if !lease.suspended {
            self.slot_is_back(lease.pool);
        }
        Some(lease)
    }

    /// A slot came back: what Retry-After is measured by.
    pub(super) fn slot_is_back(&mut self, pool: PoolId) {
        self.pools[index(pool.0)].ends.push(self.now);
        self.ends.push(self.now);
    }
}
