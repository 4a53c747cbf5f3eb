//! Leases that go on elsewhere: to another member after a refusal before the first byte (A12), to another session after
//! a reconnect or a restart.

use crate::engine::Engine;
use crate::fairness::sets::Ledger;
use crate::id::{LeaseId, MemberId, RequestId, SessionId};
use crate::io::{Held, Kind, Output, Registration, RejectReason};
use crate::leases::lease::{Claim, Lease, Moment};
use crate::policy::{CLAIMS_WITHOUT_LIMIT, SUSPENDED_CLAIMS};
use crate::pools::judge::Obstacle;
use crate::waiting::park::{Ask, Door, Errand};

impl Engine {
    /// A member refused before the first byte: once, the lease goes to another candidate. Its key is not judged again.
    ///
    /// If no other has a slot the request waits in front of all others, for what is left of its first wait, and keeps
    /// its lease (and the old member's slot) meanwhile. Re-attached work has nowhere else to go.
    pub(in crate::engine) fn relocate(&mut self, session: SessionId, request: RequestId, id: LeaseId) {
        if self.is_unanswered(session, request) {
            return self.reject(session, request, RejectReason::DuplicateRequest);
        }
        let movable = |lease: &&mut Lease| !lease.relocated && !lease.suspended && lease.waits.is_none();
        let Some(lease) = self.held(session, id).filter(movable).map(|lease| lease.clone()) else {
            return self.reject(session, request, RejectReason::NoSuchLease);
        };
        self.open_session(session);
        self.parties.retain(lease.holder);
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let set = self.pools[lease.pool.index()].intern_without(lease.set, lease.member, ledger);
        let ask = Ask {
            session,
            request,
            pool: lease.pool,
            holder: lease.holder,
            kind: lease.kind,
            door: Door::Move,
            priority: lease.priority,
            traffic: lease.traffic,
            set,
            sticky: None,
            arrived: self.now,
            until: lease.park_until,
            deadline: lease.deadline.get(),
            errand: Errand::Move(id),
        };
        let pool = &self.pools[lease.pool.index()];
        let nowhere = lease.kind == Kind::Reattach || pool.sets.get(set).members.is_empty();
        if self.bypass && !nowhere {
            return self.let_pass(ask);
        }
        if nowhere && !pool.is_unlimited() {
            let refusal = self.refusal(&ask, Obstacle::Exhausted);
            return self.shed(ask, refusal);
        }
        self.answer(ask, true);
    }

    /// Puts a lease on the member a move found; where it was.
    pub(in crate::engine) fn place_again(&mut self, id: LeaseId, member: Option<MemberId>) -> Option<MemberId> {
        let slot = self.lease_slots.get(&id).copied()?;
        let lease = &mut self.leases[slot];
        let pool = &mut self.pools[lease.pool.index()];
        pool.leave(lease.seat(), &self.parties);
        let from = std::mem::replace(&mut lease.member, member);
        lease.relocated = true;
        pool.enter(lease.seat(), &self.parties);
        let pool = lease.pool;
        self.wake(pool);
        from
    }

    /// Takes over a lease the proxy holds already.
    pub(in crate::engine) fn register(&mut self, held: Held) {
        self.open_session(held.session);
        let session = held.session;
        let from = self.lease(held.lease).map(|lease| lease.session);
        let taken = self.adopt(&held).or_else(|| self.enter(&held));
        let new = taken.and_then(|id| self.lease(id)).map(|lease| Registration {
            context: self.context_of(lease),
            lease: lease.id,
            granted: lease.granted,
            suspended: lease.suspended,
            from: from.filter(|_| lease.id == held.lease),
        });
        self.announce(Output::Registered { session, old: held.lease, new });
        // The session that it comes from may not have read that its client is gone.
        if let Some(Registration { context, lease, .. }) = new
            && from != Some(session)
            && self.lease(lease).is_some_and(|lease| lease.client_gone)
        {
            self.announce(Output::ClientGone { context, lease });
        }
    }

    /// A lease that is live, and whose session is lost or the same, goes on under its id.
    fn adopt(&mut self, held: &Held) -> Option<LeaseId> {
        let slot = self.lease_slots.get(&held.lease).copied()?;
        let lease = self.leases.get(slot).filter(|lease| lease.pool == held.pool)?;
        let from = lease.session;
        if from != held.session && !self.is_lost(from) {
            return None;
        }
        if from != held.session {
            self.let_go(from, slot);
            self.leases[slot].session = held.session;
            self.hold(held.session, slot);
        }
        self.postpone(held.lease);
        Some(held.lease)
    }

    /// A lease of an earlier run gets a new id. It runs whether there is room or not.
    fn enter(&mut self, held: &Held) -> Option<LeaseId> {
        self.pools.get(held.pool.index()).filter(|pool| pool.present)?;
        if held.kind == Kind::Exempt {
            return None;
        }
        if !held.restored && !self.believes(held) {
            self.totals.claims_refused += 1;
            return None;
        }
        let holder = self.resolve_holder(held.pool, held.key, held.org, held.class);
        let (set, max_wait) = self.intern(held.pool, Vec::new());
        let pool = &self.pools[held.pool.index()];
        let granted = self.now.before(held.age);
        let lease = Lease {
            id: LeaseId(self.lease_ids.next()),
            session: held.session,
            pool: held.pool,
            holder,
            member: held.member.filter(|member| pool.present_member(*member).is_some()),
            set,
            kind: held.kind,
            child: false,
            claim: (!held.restored).then(|| Claim::of(held.suspended)),
            priority: held.priority,
            traffic: pool.traffic.known_now(held.traffic),
            ends_with_client: held.ends_with_client,
            site: held.site,
            client_gone: false,
            suspended: held.suspended,
            relocated: false,
            granted,
            expires: self.now.after(self.node.lease_ttl),
            reclaimed: Moment::NEVER,
            moved: Moment::NEVER,
            park_until: granted.after(max_wait),
            deadline: Moment::NEVER,
            waits: None,
            timer: 0,
        };
        Some(self.insert_lease(lease))
    }
    /// Whether a proxy's claim of a lease that is not live may be true. Nothing proves it, so each pool has room for as many
    /// claims as it has slots: one peer cannot fill a pool's counts beyond what the pool could have granted. Suspended leases
    /// hold no slot and have a bound of their own.
    fn believes(&mut self, held: &Held) -> bool {
        if self.revoked.contains(held.lease) || self.lease_ids.is_ahead(held.lease.0) {
            return false;
        }
        let pool = &mut self.pools[held.pool.index()];
        let slots = match (pool.is_unlimited(), self.node.cap) {
            (false, _) => pool.all_slots(),
            (true, 0) => CLAIMS_WITHOUT_LIMIT,
            (true, cap) => cap,
        };
        let claim = Claim::of(held.suspended);
        let room = match claim {
            Claim::Running => slots,
            Claim::Suspended => slots.max(SUSPENDED_CLAIMS),
        };
        *pool.claims.of(claim) < room
    }
}
