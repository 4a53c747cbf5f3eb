//! A lease begins, is renewed and ends. Each end is one function's: released by its holder, expired, reclaimed,
//! revoked. Whatever comes for an id that is not live touches nothing else.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::id::{LeaseId, SessionId};
use crate::io::{EndCause, Output, RejectReason};
use crate::leases::lease::{Lease, Moment};
use crate::time::Duration;

impl Engine {
    /// A live lease.
    pub(in crate::engine) fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(*self.lease_slots.get(&id)?)
    }

    pub(in crate::engine) fn lease_mut(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.leases.get_mut(*self.lease_slots.get(&id)?)
    }

    /// A live lease of this session.
    pub(in crate::engine) fn held(&mut self, session: SessionId, id: LeaseId) -> Option<&mut Lease> {
        self.lease_mut(id).filter(|lease| lease.session == session)
    }

    /// Enters a lease, which takes over its request's set and holder, and counts it.
    pub(in crate::engine) fn insert_lease(&mut self, lease: Lease) -> LeaseId {
        let (id, session) = (lease.id, lease.session);
        if let Some(claim) = lease.claim {
            *self.pools[lease.pool.index()].claims.of(claim) += 1;
        }
        if lease.suspended {
            self.suspended += 1;
        } else {
            self.parties.count(lease.holder);
            self.pools[lease.pool.index()].enter(lease.seat(), &self.parties);
            self.guarantee(lease.pool, lease.holder);
        }
        let end = lease.end();
        let slot = self.leases.insert(lease);
        self.lease_slots.insert(id, slot);
        let leases = &mut self.leases;
        self.lease_ends.insert((end, id), slot, |slot, place| leases[slot].timer = place);
        self.hold(session, slot);
        id
    }

    /// Takes a lease off every count, announces its end and wakes who waits.
    pub(in crate::engine) fn give_back(&mut self, id: LeaseId, cause: EndCause) -> Option<Lease> {
        let slot = *self.lease_slots.get(&id)?;
        self.end_in(slot, cause)
    }

    /// The same of the lease in this slot.
    fn end_in(&mut self, slot: Slot, cause: EndCause) -> Option<Lease> {
        let id = self.leases[slot].id;
        if let Some(waits) = self.leases[slot].waits {
            // What it wanted is over: the request is answered all the same.
            self.reject_parked(waits, RejectReason::NoSuchLease);
        }
        self.lease_slots.remove(&id);
        let lease = self.leases.remove(slot)?;
        if let Some(claim) = lease.claim {
            *self.pools[lease.pool.index()].claims.of(claim) -= 1;
        }
        let leases = &mut self.leases;
        self.lease_ends.remove(slot, lease.timer, |slot, place| leases[slot].timer = place);
        self.let_go(lease.session, slot);
        if lease.suspended {
            self.suspended -= 1;
        } else {
            self.vacate(&lease);
        }
        self.announce_end(&lease, cause);
        self.pools[lease.pool.index()].sets.release(lease.set);
        self.parties.release(lease.holder);
        Some(lease)
    }

    /// A lease's slot comes back.
    pub(in crate::engine) fn vacate(&mut self, lease: &Lease) {
        self.parties.discount(lease.holder);
        let pool = &mut self.pools[lease.pool.index()];
        pool.leave(lease.seat(), &self.parties);
        pool.drain.record(self.now);
        self.drain.record(self.now);
        self.wake(lease.pool);
    }

    pub(in crate::engine) fn release(&mut self, session: SessionId, id: LeaseId) {
        let slot = self.lease_slots.get(&id).copied().filter(|slot| self.leases[*slot].session == session);
        let Some(slot) = slot else {
            self.totals.unknown += 1;
            return;
        };
        if let Some(lease) = self.end_in(slot, EndCause::Released) {
            if !lease.suspended {
                let pool = &mut self.pools[lease.pool.index()];
                let length = self.now.since(lease.granted);
                pool.service.record(length);
                pool.counters.release(length);
            }
            self.totals.released += 1;
        }
    }

    pub(in crate::engine) fn renew(&mut self, session: SessionId, id: LeaseId, idle: Option<Duration>) {
        let now = self.now;
        let Some(lease) = self.held(session, id) else { return self.say_unknown(session, id) };
        if let Some(idle) = idle {
            let moved = now.before(idle);
            lease.moved = Moment::from(lease.moved.get().max(Some(moved)));
        }
        self.postpone(id);
    }

    /// A lease lives a ttl from now. A shorter ttl by a new policy holds from the next renewal.
    pub(in crate::engine) fn postpone(&mut self, id: LeaseId) {
        let expires = self.now.after(self.node.lease_ttl);
        if let Some(lease) = self.lease_mut(id) {
            lease.expires = expires;
        }
        self.reset_end(id);
    }

    /// A lease's end changed.
    pub(in crate::engine) fn reset_end(&mut self, id: LeaseId) {
        let Some(slot) = self.lease_slots.get(&id).copied() else { return };
        let (place, end) = (self.leases[slot].timer, self.leases[slot].end());
        let leases = &mut self.leases;
        self.lease_ends.rerank(slot, place, (end, id), |slot, place| leases[slot].timer = place);
    }

    /// A lease's time is over: its ttl, or its client's grace.
    pub(in crate::engine) fn expire(&mut self, id: LeaseId) {
        let Some(reclaimed) = self.lease(id).map(Lease::ends_by_reclaim) else { return };
        let cause = if reclaimed { EndCause::Reclaimed } else { EndCause::Expired };
        let Some(lease) = self.give_back(id, cause) else { return };
        self.totals.lose(lease.site, reclaimed);
        if reclaimed {
            self.totals.reclaimed += 1;
            self.revoked.remember(id);
        } else {
            self.totals.expired += 1;
        }
    }

    pub(in crate::engine) fn revoke(&mut self, id: LeaseId) {
        if self.give_back(id, EndCause::Revoked).is_some() {
            self.totals.revoked += 1;
            self.revoked.remember(id);
        } else {
            self.totals.unknown += 1;
        }
    }

    /// Something came for a lease that is not there: its sender is notified to forget it.
    pub(in crate::engine) fn say_unknown(&mut self, session: SessionId, id: LeaseId) {
        self.totals.unknown += 1;
        self.announce(Output::UnknownLease { session, lease: id });
    }
}
