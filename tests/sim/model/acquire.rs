//! A request and a lease that moves: understood, then answered.

use governor_engine::id::{LeaseId, MemberId, RequestId, SessionId};
use governor_engine::io::{Acquire, Grant, Kind, Output, Reason, RejectReason};
use governor_engine::time::Duration;

use super::{Answer, Model, Parked, index};

impl Model {
    pub(super) fn acquire(&mut self, a: Acquire) {
        let known = |m: &MemberId| self.member(a.pool, *m).is_some();
        let wrong = if self.pool(a.pool).is_none() {
            Some(RejectReason::UnknownPool)
        } else if !a.candidates.iter().all(known) || !a.sticky.iter().all(known) {
            Some(RejectReason::UnknownMember)
        } else if a.kind == Kind::Reattach && a.sticky.is_none() {
            Some(RejectReason::ReattachWithoutMember)
        } else if self.parked.iter().any(|w| (w.session, w.request) == (a.session, a.request)) {
            Some(RejectReason::DuplicateRequest)
        } else {
            None
        };
        if let Some(why) = wrong {
            return self.reject(a.session, a.request, why);
        }
        self.open_session(a.session);
        if a.kind == Kind::Exempt {
            let (session, request, waited) = (a.session, a.request, Duration::ZERO);
            return self.out.push(Output::Grant(Grant { session, request, lease: None, member: None, waited }));
        }
        let policy = &self.pools[index(a.pool.0)].policy;
        let wait = a.max_wait.unwrap_or(policy.max_wait).min(policy.max_wait);
        let until = self.now.after(wait);
        let candidates = match a.kind {
            Kind::Reattach => a.sticky.map(|m| vec![m]),
            Kind::Ordinary | Kind::Exempt if a.candidates.is_empty() => None,
            Kind::Ordinary | Kind::Exempt => {
                let mut named = a.candidates;
                named.sort();
                named.dedup();
                Some(named)
            }
        };
        let mut w = Parked {
            order: 0,
            session: a.session,
            request: a.request,
            pool: a.pool,
            key: a.key,
            kind: a.kind,
            candidates,
            sticky: a.sticky,
            arrived: self.now,
            until: a.deadline.map_or(until, |deadline| deadline.min(until)),
            deadline: a.deadline,
            lease: None,
            recorded: false,
        };
        if self.bypass {
            let member = self.bypass_member(&w);
            return self.grant(&w, member);
        }
        if self.node.cap > 0 && self.counted() >= self.node.cap {
            return self.shed(&w, Reason::NodeCap, None, None);
        }
        w.recorded = self.observe(&w);
        self.answer(w);
    }

    pub(super) fn answer(&mut self, w: Parked) {
        match self.judge(&w) {
            Answer::Go(member) => self.grant(&w, member),
            Answer::Not(why, back) => match self.may_not_wait(&w, why, back) {
                Some((reason, origin)) => {
                    let back = back.filter(|_| reason == Reason::AllCooling);
                    self.shed_because(&w, reason, origin, back, why);
                }
                None => self.park(w),
            },
        }
    }

    pub(super) fn relocate(&mut self, session: SessionId, request: RequestId, id: LeaseId) {
        if self.parked.iter().any(|w| (w.session, w.request) == (session, request)) {
            return self.reject(session, request, RejectReason::DuplicateRequest);
        }
        let moving = self.parked.iter().any(|w| w.lease == Some(id));
        let lease = self.leases.iter().find(|l| l.id == id && l.session == session && !l.relocated && !moving).cloned();
        let Some(lease) = lease else { return self.reject(session, request, RejectReason::NoSuchLease) };
        self.open_session(session);
        let mut others = self.resolve(lease.pool, &lease.candidates);
        others.retain(|m| Some(*m) != lease.member);
        let nowhere = others.is_empty() || lease.kind == Kind::Reattach;
        let w = Parked {
            order: 0,
            session,
            request,
            pool: lease.pool,
            key: lease.key,
            kind: lease.kind,
            candidates: Some(others),
            sticky: None,
            arrived: self.now,
            until: lease.until,
            deadline: lease.deadline,
            lease: Some(id),
            recorded: true,
        };
        let unlimited =
            self.pools[index(lease.pool.0)].members.iter().filter(|m| m.present).all(|m| m.policy.slots == 0);
        if nowhere && !unlimited {
            self.shed(&w, Reason::PoolExhausted, None, None);
        } else if self.bypass {
            let member = self.bypass_member(&w);
            self.grant(&w, member);
        } else {
            self.answer(w);
        }
    }
}
