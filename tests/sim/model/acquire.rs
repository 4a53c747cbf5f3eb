//! A request, and a lease that moves: understood, then answered.

use super::Answer;
use super::Id;
use super::Lease;
use super::Model;
use super::Parked;
use super::Task;
use super::Who;
use super::index;
use governor_engine::id::{KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, TrafficId};
use governor_engine::io::{Acquire, Context, Kind, Output, Parent, Reason, RejectReason};
use governor_engine::policy::Anonymous;

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
        if let Some(Parent::Hop(id)) = self.parent(&a) {
            let parent = self.leases.iter().find(|l| l.id == id).unwrap();
            let member = parent.member.filter(|_| parent.pool == a.pool);
            return self.pass(&a, member);
        }
        if a.kind == Kind::Exempt {
            return self.pass(&a, None);
        }
        let who = self.identify(a.pool, a.key, a.org);
        if let Some(holder) = Self::class_holder(who) {
            self.named.insert(holder, a.class);
            // Weights and floors may have changed with it: who waits comes first.
            self.serve_all();
        }
        let w = self.understand(a, who);
        self.begin(w);
    }

    /// It goes on without a lease, as it is named: it is counted nowhere.
    fn pass(&mut self, a: &Acquire, member: Option<MemberId>) {
        let (at, session, pool) = (self.now, a.session, a.pool);
        let context = Context { at, session, pool, key: a.key, org: a.org, class: a.class, member };
        self.out.push(Output::Passed { context, request: a.request });
    }

    /// What asks for a slot that it does not hold.
    pub(super) fn begin(&mut self, w: Parked) {
        if self.draining && !w.child {
            self.shed(&w, Reason::Draining, None, None);
        } else if self.bypass {
            let member = self.bypass_member(&w);
            self.grant(&w, member);
        } else {
            self.admit(w);
        }
    }

    /// Requests that name no key share one identity a pool, unless the pool lets them bypass.
    pub(super) fn identify(&self, pool: PoolId, key: Option<KeyId>, org: Option<OrgId>) -> Who {
        let anonymous = match self.pools[index(pool.0)].policy.anonymous {
            Anonymous::Judge => Some(Id::Anonymous(pool)),
            Anonymous::Bypass => None,
        };
        Who { key: key.map(Id::Key).or(anonymous), org }
    }

    /// The lease that causes the request, if it is one that can.
    fn parent(&self, a: &Acquire) -> Option<Parent> {
        let parent = a.parent.filter(|_| a.kind == Kind::Ordinary)?;
        let (Parent::Child(id) | Parent::Hop(id)) = parent;
        let causes = |l: &&Lease| l.id == id && l.session == a.session && l.who.org == a.org;
        self.running().find(causes).map(|_| parent)
    }

    fn understand(&self, a: Acquire, who: Who) -> Parked {
        let pool = &self.pools[index(a.pool.0)];
        let parent = match self.parent(&a) {
            Some(Parent::Child(id)) => self.leases.iter().find(|l| l.id == id),
            Some(Parent::Hop(_)) | None => None,
        };
        // It ranks at least as high as the work it is part of.
        let priority = parent.map_or(a.priority, |parent| parent.priority.min(a.priority));
        let until = self.now.after(a.max_wait.unwrap_or(pool.policy.max_wait).min(pool.policy.max_wait));
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
        Parked {
            order: 0,
            session: a.session,
            request: a.request,
            pool: a.pool,
            who,
            priority,
            traffic: self.known_traffic(a.pool, a.traffic),
            kind: a.kind,
            child: parent.is_some(),
            ends_with_client: a.ends_with_client,
            candidates,
            sticky: a.sticky,
            arrived: self.now,
            until: a.deadline.map_or(until, |deadline| deadline.min(until)),
            deadline: a.deadline,
            task: Task::New,
            recorded: false,
        }
    }

    pub(super) fn known_traffic(&self, pool: PoolId, traffic: Option<TrafficId>) -> Option<TrafficId> {
        let pool = &self.pools[index(pool.0)];
        let name = pool.traffic.get(index(traffic?.0))?;
        traffic.filter(|_| pool.policy.traffic.iter().any(|kind| kind.name == *name))
    }

    /// From the node's cap down to members.
    pub(super) fn admit(&mut self, mut w: Parked) {
        if !self.refused_at_once(&mut w) {
            if !w.recorded {
                w.recorded = self.observe(&w);
            }
            self.answer(w);
        }
    }

    fn answer(&mut self, w: Parked) {
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
        let moving = self.parked.iter().any(|w| w.task == Task::Move(id));
        let can_move = |l: &&Lease| l.id == id && l.session == session && !l.relocated && !moving;
        let lease = self.running().find(can_move).cloned();
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
            who: lease.who,
            priority: lease.priority,
            traffic: lease.traffic,
            kind: lease.kind,
            // It has its place: it may wait for another.
            child: false,
            ends_with_client: lease.ends_with_client,
            candidates: Some(others),
            sticky: None,
            arrived: self.now,
            until: lease.until,
            deadline: lease.deadline,
            task: Task::Move(id),
            recorded: true,
        };
        if nowhere && !self.is_unlimited(lease.pool) {
            self.shed(&w, Reason::PoolExhausted, None, None);
        } else if self.bypass {
            let member = self.bypass_member(&w);
            self.grant(&w, member);
        } else {
            self.answer(w);
        }
    }
}
