//! Leases from grant to end. A lease ends exactly once: released by its holder, expired, reclaimed, gone with its session,
//! or revoked. Whatever comes for an id that is not live touches nothing else.

use crate::collections::heap::Place;
use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::fairness::set::SetId;
use crate::fairness::sets::Ledger;
use crate::id::{LeaseId, MemberId, PoolId, SessionId, SiteId, TrafficId};
use crate::identity::party::Holder;
use crate::io::{Kind, MemberNews, MemberOrder, Output, Priority, RejectReason, RevokeReason};
use crate::pools::pool::Seat;
use crate::time::{Duration, Instant};

/// A live lease. There may be a hundred thousand: it is kept small.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) session: SessionId,
    pub(crate) pool: PoolId,
    pub(crate) holder: Holder,
    pub(crate) member: Option<MemberId>,
    /// Where it may run.
    pub(crate) set: SetId,
    pub(crate) kind: Kind,
    pub(crate) child: bool,
    /// How it was entered on the word of a proxy alone.
    pub(crate) claim: Option<Claim>,
    pub(crate) priority: Priority,
    pub(crate) traffic: Option<TrafficId>,
    pub(crate) ends_with_client: bool,
    pub(crate) site: SiteId,
    pub(crate) client_gone: bool,
    /// Holds no slot.
    pub(crate) suspended: bool,
    /// Has been moved to another member; it is not moved twice.
    pub(crate) relocated: bool,
    pub(crate) granted: Instant,
    pub(crate) expires: Instant,
    /// When it is taken back, its client being gone.
    pub(crate) reclaimed: Moment,
    /// When it last moved bytes.
    pub(crate) moved: Moment,
    /// The end of its request's wait. A move waits no longer than what is left of it.
    pub(crate) park_until: Instant,
    pub(crate) deadline: Moment,
    /// The parked request by which it moves or resumes.
    pub(crate) waits: Option<Slot>,
    /// Where its end stands.
    pub(crate) timer: Place,
}

/// A point in time, or never, in the size of one: the end of time is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(Instant);

impl Moment {
    pub(crate) const NEVER: Self = Self(Instant(u64::MAX));

    pub(crate) fn get(self) -> Option<Instant> {
        Some(self.0).filter(|_| self != Self::NEVER)
    }
}

impl From<Option<Instant>> for Moment {
    fn from(at: Option<Instant>) -> Self {
        at.map_or(Self::NEVER, Self)
    }
}

impl Lease {
    pub(crate) fn is_ordinary(&self) -> bool {
        self.kind == Kind::Ordinary && !self.child
    }

    /// Where it counts.
    pub(crate) fn seat(&self) -> Seat {
        let ordinary = self.is_ordinary();
        Seat { member: self.member, holder: self.holder, set: self.set, traffic: self.traffic, ordinary }
    }

    /// When it ends by itself.
    pub(crate) fn end(&self) -> Instant {
        self.expires.min(self.reclaimed.0)
    }
}

/// What a proxy claimed to hold when a lease was entered on its word alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A lease that holds a slot.
    Running,
    /// A suspended one. What becomes of it later changes no claim: a resume is judged.
    Suspended,
}

impl Claim {
    pub(crate) fn of(suspended: bool) -> Self {
        if suspended { Self::Suspended } else { Self::Running }
    }
}

/// Live leases of a pool that were entered as claims.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claims {
    running: u32,
    suspended: u32,
}

impl Claims {
    pub(crate) fn of(&mut self, claim: Claim) -> &mut u32 {
        match claim {
            Claim::Running => &mut self.running,
            Claim::Suspended => &mut self.suspended,
        }
    }
}

impl Engine {
    /// A live lease.
    pub(crate) fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(*self.lease_slots.get(&id)?)
    }

    pub(crate) fn lease_mut(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.leases.get_mut(*self.lease_slots.get(&id)?)
    }

    /// A live lease of this session.
    pub(crate) fn held(&mut self, session: SessionId, id: LeaseId) -> Option<&mut Lease> {
        self.lease_mut(id).filter(|lease| lease.session == session)
    }

    /// Enters a lease, which takes over its request's set and holder, and counts it.
    pub(crate) fn insert_lease(&mut self, lease: Lease) -> LeaseId {
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

    /// Takes a lease off every count and wakes who waits. The caller says why.
    pub(crate) fn give_back(&mut self, id: LeaseId) -> Option<Lease> {
        let slot = *self.lease_slots.get(&id)?;
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
        self.pools[lease.pool.index()].sets.release(lease.set);
        self.parties.release(lease.holder);
        Some(lease)
    }

    /// A lease's slot comes back.
    pub(crate) fn vacate(&mut self, lease: &Lease) {
        self.parties.discount(lease.holder);
        let pool = &mut self.pools[lease.pool.index()];
        pool.leave(lease.seat(), &self.parties);
        pool.drain.record(self.now);
        self.drain.record(self.now);
        self.wake(lease.pool);
    }

    pub(crate) fn release(&mut self, session: SessionId, id: LeaseId) {
        if self.held(session, id).is_none() {
            self.totals.unknown += 1;
            return;
        }
        if let Some(lease) = self.give_back(id) {
            if !lease.suspended {
                let pool = &mut self.pools[lease.pool.index()];
                let length = self.now.since(lease.granted);
                pool.service.record(length);
                pool.counters.release(length);
            }
            self.totals.released += 1;
        }
    }

    pub(crate) fn renew(&mut self, session: SessionId, id: LeaseId, idle: Option<Duration>) {
        let now = self.now;
        let Some(lease) = self.held(session, id) else { return self.say_unknown(session, id) };
        if let Some(idle) = idle {
            let moved = now.before(idle);
            lease.moved = Moment::from(lease.moved.get().max(Some(moved)));
        }
        self.postpone(id);
    }

    /// A lease lives a ttl from now. A shorter ttl by a new policy holds from the next renewal.
    pub(crate) fn postpone(&mut self, id: LeaseId) {
        let expires = self.now.after(self.node.lease_ttl);
        if let Some(lease) = self.lease_mut(id) {
            lease.expires = expires;
        }
        self.reset_end(id);
    }

    /// A lease's end changed.
    pub(crate) fn reset_end(&mut self, id: LeaseId) {
        let Some(slot) = self.lease_slots.get(&id).copied() else { return };
        let (place, end) = (self.leases[slot].timer, self.leases[slot].end());
        let leases = &mut self.leases;
        self.lease_ends.rerank(slot, place, (end, id), |slot, place| leases[slot].timer = place);
    }

    /// A lease's time is over: its ttl, or its client's grace.
    pub(crate) fn expire(&mut self, id: LeaseId) {
        let Some(lease) = self.give_back(id) else { return };
        let reclaimed = lease.reclaimed.0 <= lease.expires;
        self.totals.lose(lease.site, reclaimed);
        if reclaimed {
            self.totals.reclaimed += 1;
            self.revoked.remember(id);
            self.order_revoke(lease.session, id, RevokeReason::Reclaimed);
        } else {
            self.totals.expired += 1;
            self.order_revoke(lease.session, id, RevokeReason::Expired);
        }
    }

    pub(crate) fn revoke(&mut self, id: LeaseId) {
        match self.give_back(id) {
            Some(lease) => {
                self.totals.revoked += 1;
                self.revoked.remember(id);
                self.order_revoke(lease.session, id, RevokeReason::Operator);
            }
            None => self.totals.unknown += 1,
        }
    }

    pub(crate) fn order_revoke(&mut self, session: SessionId, lease: LeaseId, reason: RevokeReason) {
        self.outputs.push_back(Output::Revoke { session, lease, reason });
    }

    /// Something came for a lease that is not there: its sender is told to forget it.
    pub(crate) fn say_unknown(&mut self, session: SessionId, id: LeaseId) {
        self.totals.unknown += 1;
        self.order_revoke(session, id, RevokeReason::Unknown);
    }

    pub(crate) fn hear(&mut self, pool: PoolId, member: MemberId, news: MemberNews) {
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        known.hear(member, news, self.now, ledger);
        self.wake(pool);
    }

    pub(crate) fn order_member(&mut self, pool: PoolId, member: MemberId, order: MemberOrder) {
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        known.order_member(member, order, self.now, ledger);
        self.wake(pool);
    }
}
