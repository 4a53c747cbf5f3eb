//! Leases across idle time (A14): a suspended one gives its slot back and stays, a resumed one is admitted again.

use crate::engine::Engine;
use crate::id::{LeaseId, MemberId, RequestId, SessionId};
use crate::io::{Output, RejectReason};
use crate::leases::lease::{Lease, Moment};
use crate::time::Duration;
use crate::waiting::park::{Ask, Door, Errand};

impl Engine {
    pub(in crate::engine) fn suspend(&mut self, session: SessionId, id: LeaseId) {
        let Some(lease) = self.held(session, id) else { return self.say_unknown(session, id) };
        if lease.suspended || lease.waits.is_some() {
            return;
        }
        lease.suspended = true;
        let lease = lease.clone();
        self.suspended += 1;
        self.totals.suspended += 1;
        let held = self.now.since(lease.granted);
        self.announce(Output::Suspended { context: self.context_of(&lease), lease: id, held });
        self.vacate(&lease);
    }

    pub(in crate::engine) fn resume(
        &mut self,
        session: SessionId,
        request: RequestId,
        id: LeaseId,
        max_wait: Option<Duration>,
    ) {
        if self.is_unanswered(session, request) {
            return self.reject(session, request, RejectReason::DuplicateRequest);
        }
        let resumable = |lease: &&mut Lease| lease.suspended && lease.waits.is_none();
        let Some(lease) = self.held(session, id).filter(resumable).map(|lease| lease.clone()) else {
            return self.reject(session, request, RejectReason::NoSuchLease);
        };
        self.open_session(session);
        self.parties.retain(lease.holder);
        let pool = &mut self.pools[lease.pool.index()];
        pool.sets.retain(lease.set);
        let longest = max_wait.map_or(pool.policy.max_wait, |wait| wait.min(pool.policy.max_wait));
        let door = Door::of(lease.kind, lease.holder.key.is_some(), lease.child);
        let ask = Ask {
            session,
            request,
            pool: lease.pool,
            holder: lease.holder,
            kind: lease.kind,
            door,
            priority: lease.priority,
            traffic: lease.traffic,
            set: lease.set,
            sticky: lease.member,
            arrived: self.now,
            until: self.now.after(longest),
            deadline: None,
            errand: Errand::Resume(id),
        };
        self.decide(ask);
    }

    /// A suspended lease holds a slot again.
    pub(in crate::engine) fn run_again(&mut self, id: LeaseId, ask: &Ask, member: Option<MemberId>) {
        let now = self.now;
        let Some(lease) = self.lease_mut(id) else { return };
        (lease.suspended, lease.relocated, lease.member) = (false, false, member);
        (lease.granted, lease.park_until, lease.deadline) = (now, ask.until, Moment::from(ask.deadline));
        let (pool, seat) = (lease.pool, lease.seat());
        self.suspended -= 1;
        self.totals.resumed += 1;
        self.parties.count(seat.holder);
        let holder = seat.holder;
        self.pools[pool.index()].enter(seat, &self.parties);
        self.guarantee(pool, holder);
    }
}
