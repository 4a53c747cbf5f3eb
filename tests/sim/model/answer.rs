//! Answers: grants, refusals and records, with their numbers.

use governor_engine::id::{DecisionId, LeaseId, MemberId, RequestId, SessionId};
use governor_engine::io::{
    Decision, Grant, Kind, Numbers, Origin, Outcome, Output, Reason, RejectReason, RevokeReason,
};
use governor_engine::policy::Mode;
use governor_engine::time::{Duration, Instant};

use super::{Lease, Model, Parked, index};

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
            (Reason::FairShare | Reason::KeyQueueFull, _) => (Origin::Key, 429),
            (Reason::PoolExhausted, _) => (Origin::Pool, exhausted),
            (Reason::AllCooling, _) => (Origin::Upstream, 429),
            (Reason::NodeCap, _) | (Reason::QueueFull, Some(Origin::Node)) => (Origin::Node, 529),
            (Reason::Overload, _) => (Origin::Node, 529),
            (Reason::KeyCap | Reason::Suspended, _) => (Origin::Key, 429),
            (Reason::OrgCap | Reason::ClassCap, _) => (Origin::Org, 429),
            (Reason::SubCapacity, _) => (Origin::Pool, exhausted),
            (Reason::QueueFull, _) => (Origin::Pool, if why == Reason::FairShare { 429 } else { exhausted }),
        }
    }

    pub(super) fn numbers(&self, w: &Parked) -> Numbers {
        let (key_in_flight, share, in_flight, capacity, active_keys, _) = self.share(w);
        let parked = u32::try_from(self.parked.iter().filter(|p| p.pool == w.pool).count()).unwrap();
        let (node_counted, node_cap) = (self.counted(), self.node.cap);
        Numbers {
            key_in_flight,
            share,
            in_flight,
            capacity,
            active_keys,
            parked,
            node_counted,
            node_cap,
            ..Numbers::default()
        }
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
            key: w.key,
            outcome,
            reason,
            origin: origin.0,
            status: origin.1,
            retry_after: Duration::ZERO,
            waited: self.now.since(w.arrived),
            numbers: self.numbers(w),
            ..Decision::default()
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
        let id = self.epoch + self.next_decision;
        self.next_decision += 1;
        let origin = self.origin_and_status(w, reason, origin, why);
        let mut decision = self.decision(w, id, Outcome::Shed, reason, origin);
        decision.retry_after = self.told(w, reason, origin.0, back, id);
        self.out.push(Output::Shed { session: w.session, request: w.request, decision });
        if let Some(lease) = w.lease {
            self.end_lease(lease);
        }
    }

    pub(super) fn observe(&mut self, w: &Parked) -> bool {
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
        decision.retry_after = self.would_tell(w, reason, id);
        self.next_record += 1;
        self.out.push(Output::WouldHave { decision });
        true
    }

    pub(super) fn reject(&mut self, session: SessionId, request: RequestId, why: RejectReason) {
        self.out.push(Output::Reject { session, request, why });
    }

    pub(super) fn say_revoke(&mut self, session: SessionId, lease: LeaseId, reason: RevokeReason) {
        self.out.push(Output::Revoke { session, lease, reason });
    }

    pub(super) fn grant(&mut self, w: &Parked, member: Option<MemberId>) {
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

    pub(super) fn end_lease(&mut self, id: LeaseId) -> Option<Lease> {
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
