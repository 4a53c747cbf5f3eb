//! Leases from grant to end. A lease ends exactly once: released by its holder, expired, gone with its session, or
//! revoked. Whatever comes for an id that is not live touches nothing else.

use crate::engine::{Engine, Timer};
use crate::id::{LeaseId, MemberId, PoolId, RequestId, SessionId};
use crate::io::{Held, Kind, MemberNews, Output, RejectReason, RevokeReason};
use crate::load::Holder;
use crate::park::{Ask, Class, ParkId};
use crate::pool::Obstacle;
use crate::set::SetId;
use crate::time::{Duration, Instant};

/// A live lease.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) session: SessionId,
    pub(crate) pool: PoolId,
    pub(crate) holder: Holder,
    pub(crate) member: Option<MemberId>,
    pub(crate) kind: Kind,
    /// Where it may run.
    pub(crate) set: SetId,
    pub(crate) granted: Instant,
    pub(crate) expires: Instant,
    /// When it last moved bytes.
    pub(crate) moved: Option<Instant>,
    /// The end of its request's wait. A move waits no longer than what is left of it.
    pub(crate) park_until: Instant,
    pub(crate) deadline: Option<Instant>,
    /// Has been moved to another member; it is not moved twice.
    pub(crate) relocated: bool,
    /// Waits for another member.
    pub(crate) moving: Option<ParkId>,
}

impl Engine {
    pub(crate) fn insert_lease(&mut self, id: LeaseId, lease: Lease) {
        self.timers.insert((lease.expires, Timer::Lease(id)));
        self.session_leases(lease.session).insert(id);
        self.leases.insert(id, lease);
    }

    /// Takes a lease off every count and wakes who waits. The caller says why.
    pub(crate) fn give_back(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.timers.remove(&(lease.expires, Timer::Lease(id)));
        self.session_leases(lease.session).remove(&id);
        if let Some(parked) = lease.moving.and_then(|park| self.unpark(park)) {
            // What it wanted to move is over: the request is answered all the same.
            self.reject(parked.ask.session, parked.ask.request, RejectReason::NoSuchLease);
            self.pools[parked.ask.pool.index()].sets.release(parked.ask.set);
        }
        let pool = &mut self.pools[lease.pool.index()];
        pool.remove(lease.member, lease.holder, lease.kind);
        pool.sets.release(lease.set);
        pool.drain.record(self.now);
        self.drain.record(self.now);
        self.wake(lease.pool);
        Some(lease)
    }

    fn held_by(&self, session: SessionId, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|lease| lease.session == session)
    }

    pub(crate) fn release(&mut self, session: SessionId, id: LeaseId) {
        if !self.held_by(session, id) {
            self.totals.unknown += 1;
            return;
        }
        if let Some(lease) = self.give_back(id) {
            self.pools[lease.pool.index()].service.record(self.now.since(lease.granted));
            self.totals.released += 1;
        }
    }

    pub(crate) fn renew(&mut self, session: SessionId, id: LeaseId, idle: Option<Duration>) {
        if !self.held_by(session, id) {
            self.totals.unknown += 1;
            let reason = RevokeReason::Unknown;
            return self.outputs.push_back(Output::Revoke { session, lease: id, reason });
        }
        let (now, expires) = (self.now, self.now.after(self.node.lease_ttl));
        self.postpone(id, expires);
        if let Some(lease) = self.leases.get_mut(&id)
            && let Some(idle) = idle
        {
            lease.moved = lease.moved.max(Some(before(now, idle)));
        }
    }

    /// Moves a lease's end. A shorter ttl by a new policy holds from the next renewal.
    fn postpone(&mut self, id: LeaseId, expires: Instant) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let earlier = std::mem::replace(&mut lease.expires, expires);
        self.timers.remove(&(earlier, Timer::Lease(id)));
        self.timers.insert((expires, Timer::Lease(id)));
    }

    pub(crate) fn expire(&mut self, id: LeaseId) {
        if let Some(lease) = self.give_back(id) {
            self.totals.expired += 1;
            self.order_revoke(lease.session, id, RevokeReason::Expired);
        }
    }

    pub(crate) fn revoke(&mut self, id: LeaseId) {
        match self.give_back(id) {
            Some(lease) => {
                self.totals.revoked += 1;
                self.order_revoke(lease.session, id, RevokeReason::Operator);
            }
            None => self.totals.unknown += 1,
        }
    }

    pub(crate) fn order_revoke(&mut self, session: SessionId, lease: LeaseId, reason: RevokeReason) {
        self.outputs.push_back(Output::Revoke { session, lease, reason });
    }

    /// A member refused before the first byte: once, the lease goes to another candidate. Its key is not judged again.
    ///
    /// If no other has a slot the request waits in front of all others, for what is left of its first wait, and keeps
    /// its lease (and the old member's slot) meanwhile. Re-attached work has nowhere else to go.
    pub(crate) fn relocate(&mut self, session: SessionId, request: RequestId, id: LeaseId) {
        if self.is_unanswered(session, request) {
            return self.reject(session, request, RejectReason::DuplicateRequest);
        }
        let movable = |lease: &&Lease| lease.session == session && !lease.relocated && lease.moving.is_none();
        let Some(lease) = self.leases.get(&id).filter(movable).cloned() else {
            return self.reject(session, request, RejectReason::NoSuchLease);
        };
        self.open_session(session);
        let pool = &mut self.pools[lease.pool.index()];
        let ask = Ask {
            session,
            request,
            pool: lease.pool,
            holder: lease.holder,
            kind: lease.kind,
            class: Class::Move,
            set: pool.intern_without(lease.set, lease.member),
            sticky: None,
            arrived: self.now,
            until: lease.park_until,
            deadline: lease.deadline,
            lease: Some(id),
        };
        let pool = &self.pools[lease.pool.index()];
        let nowhere = lease.kind == Kind::Reattach || pool.sets.get(ask.set).members.is_empty();
        if self.bypass && !nowhere {
            let member = pool.place_anyhow(&ask);
            self.totals.bypassed += 1;
            return self.grant(ask, member);
        }
        let judged = if nowhere && !pool.is_unlimited() { Err(Obstacle::Exhausted) } else { pool.judge(&ask) };
        let obstacle = match judged {
            Ok(member) => return self.grant(ask, member),
            Err(obstacle) => obstacle,
        };
        let refusal = self.refusal(&ask, obstacle);
        match self.park_refusal(&ask, refusal) {
            None if !nowhere => self.park(ask, true),
            refused => self.shed(ask, refused.unwrap_or(refusal)),
        }
    }

    /// Puts a lease on the member a move found.
    pub(crate) fn place_again(&mut self, id: LeaseId, without: SetId, member: Option<MemberId>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let pool = &mut self.pools[lease.pool.index()];
        pool.remove(lease.member, lease.holder, lease.kind);
        pool.add(member, lease.holder, lease.kind);
        pool.sets.release(without);
        (lease.member, lease.relocated) = (member, true);
        let pool = lease.pool;
        self.wake(pool);
    }

    pub(crate) fn hear(&mut self, pool: PoolId, member: MemberId, news: MemberNews) {
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        known.hear(member, news, self.now);
        self.wake(pool);
    }

    /// Takes over a lease the proxy holds already.
    pub(crate) fn register(&mut self, held: Held) {
        self.open_session(held.session);
        let new = self.adopt(&held).or_else(|| self.enter(&held));
        self.outputs.push_back(Output::Registered { session: held.session, old: held.lease, new });
    }

    /// A lease that is live, and whose session is lost or the same, goes on under its id.
    fn adopt(&mut self, held: &Held) -> Option<LeaseId> {
        let lease = self.leases.get(&held.lease).filter(|lease| lease.pool == held.pool)?;
        let from = lease.session;
        if from != held.session && !self.is_lost(from) {
            return None;
        }
        if from != held.session {
            self.session_leases(from).remove(&held.lease);
            self.session_leases(held.session).insert(held.lease);
            self.leases.get_mut(&held.lease)?.session = held.session;
        }
        self.postpone(held.lease, self.now.after(self.node.lease_ttl));
        Some(held.lease)
    }

    /// A lease of an earlier life gets a new id. It runs whether there is room or not.
    fn enter(&mut self, held: &Held) -> Option<LeaseId> {
        let pool = self.pools.get_mut(held.pool.index()).filter(|pool| pool.present)?;
        if held.kind == Kind::Exempt {
            return None;
        }
        let member = held.member.filter(|member| pool.present_member(*member).is_some());
        pool.add(member, held.key, held.kind);
        let set = pool.intern(Vec::new());
        let granted = before(self.now, held.age);
        let park_until = granted.after(pool.policy.max_wait);
        let id = LeaseId(self.lease_ids.next());
        self.insert_lease(
            id,
            Lease {
                session: held.session,
                pool: held.pool,
                holder: held.key,
                member,
                kind: held.kind,
                set,
                granted,
                expires: self.now.after(self.node.lease_ttl),
                moved: None,
                park_until,
                deadline: None,
                relocated: false,
                moving: None,
            },
        );
        Some(id)
    }
}

/// `at − by`, not before the clock's zero.
fn before(at: Instant, by: Duration) -> Instant {
    Instant::ZERO.after(at.since(Instant::ZERO).saturating_sub(by))
}
