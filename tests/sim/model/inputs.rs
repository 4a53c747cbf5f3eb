//! What the reference makes of each fact.

use governor_engine::id::{LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Grant, Held, Input, Kind, MemberNews, Output, Reason, RejectReason, RevokeReason};
use governor_engine::policy::Policy;
use governor_engine::time::{Duration, Instant};

use super::{Answer, Lease, Member, Model, Parked, Pool, index};

impl Model {
    pub(super) fn take(&mut self, input: Input) {
        match input {
            Input::SessionOpened { session } => self.open_session(session),
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel { session, request } => {
                self.parked.retain(|w| (w.session, w.request) != (session, request));
            }
            Input::Release { session, lease } => {
                if self.leases.iter().any(|l| l.id == lease && l.session == session) {
                    let lease = self.end_lease(lease).unwrap();
                    let length = self.now.since(lease.granted);
                    let typical = &mut self.pools[index(lease.pool.0)].typical;
                    *typical = Some(typical.map_or(length, |t| length.clamp(t - t / 8, t + t / 8)));
                }
            }
            Input::Renew { session, lease, .. } => {
                let expires = self.now.after(self.node.lease_ttl);
                match self.leases.iter_mut().find(|l| l.id == lease && l.session == session) {
                    Some(lease) => lease.expires = expires,
                    None => self.say_revoke(session, lease, RevokeReason::Unknown),
                }
            }
            Input::Move { session, request, lease } => self.relocate(session, request, lease),
            Input::MemberReport { pool, member, news } => self.report(pool, member, news),
            Input::Register(held) => self.register(held),
            Input::SessionLost { session } => {
                if self.node.session_grace.is_zero() {
                    return self.session_gone(session);
                }
                self.parked.retain(|w| w.session != session);
                let grace = self.now.after(self.node.session_grace);
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.get_or_insert(grace);
                }
            }
            Input::SessionGone { session } => self.session_gone(session),
            Input::Revoke { lease } => {
                if let Some(ended) = self.end_lease(lease) {
                    self.say_revoke(ended.session, lease, RevokeReason::Operator);
                }
            }
            Input::Bypass { on } => self.bypass = on,
            Input::PolicyChanged(policy) => {
                if policy.check().is_ok() {
                    self.obey(*policy);
                }
            }
        }
    }

    fn open_session(&mut self, session: SessionId) {
        self.sessions.insert(session, None);
    }

    pub(super) fn session_gone(&mut self, session: SessionId) {
        self.parked.retain(|w| w.session != session);
        let held: Vec<LeaseId> = self.leases.iter().filter(|l| l.session == session).map(|l| l.id).collect();
        for lease in held {
            self.end_lease(lease);
        }
        self.sessions.remove(&session);
    }

    fn acquire(&mut self, a: Acquire) {
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

    fn relocate(&mut self, session: SessionId, request: RequestId, id: LeaseId) {
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

    fn report(&mut self, pool: PoolId, member: MemberId, news: MemberNews) {
        let now = self.now;
        let Some(pool_state) = self.pools.get_mut(index(pool.0)) else { return };
        let (default, short) = (pool_state.policy.rate_limited_cooldown, pool_state.policy.overloaded_cooldown);
        let Some(member) = pool_state.members.get_mut(index(member.0)) else { return };
        match news {
            MemberNews::RateLimited { until } => {
                let until = until.filter(|at| *at > now).unwrap_or_else(|| now.after(default));
                member.rate_limited = Some(member.rate_limited.map_or(until, |at| at.max(until)));
            }
            MemberNews::Overloaded => {
                let until = now.after(short);
                member.overloaded = Some(member.overloaded.map_or(until, |at| at.max(until)));
            }
            MemberNews::Up => (member.rate_limited, member.overloaded) = (None, None),
        }
        self.forget_past_cooldowns(pool);
    }

    fn register(&mut self, held: Held) {
        self.open_session(held.session);
        let (now, ttl) = (self.now, self.node.lease_ttl);
        let sessions = &self.sessions;
        let takeable = |l: &&mut Lease| {
            let lost = sessions.get(&l.session).is_some_and(Option::is_some);
            l.id == held.lease && l.pool == held.pool && (l.session == held.session || lost)
        };
        let new = if let Some(lease) = self.leases.iter_mut().find(takeable) {
            (lease.session, lease.expires) = (held.session, now.after(ttl));
            Some(lease.id)
        } else if self.pool(held.pool).is_none() || held.kind == Kind::Exempt {
            None
        } else {
            let id = LeaseId(self.epoch + self.next_lease);
            self.next_lease += 1;
            let age = u64::try_from(held.age.as_nanos()).unwrap_or(u64::MAX);
            let granted = Instant(now.0.saturating_sub(age));
            self.leases.push(Lease {
                id,
                session: held.session,
                pool: held.pool,
                key: held.key,
                member: held.member.filter(|m| self.member(held.pool, *m).is_some()),
                kind: held.kind,
                candidates: None,
                granted,
                expires: now.after(ttl),
                until: granted.after(self.pools[index(held.pool.0)].policy.max_wait),
                deadline: None,
                relocated: false,
            });
            Some(id)
        };
        self.out.push(Output::Registered { session: held.session, old: held.lease, new });
    }

    pub(super) fn obey(&mut self, policy: Policy) {
        self.node = policy.node;
        for pool in &mut self.pools {
            pool.present = false;
        }
        let now = self.now;
        for wanted in policy.pools {
            let at = self.pools.iter().position(|p| p.policy.name == wanted.name).unwrap_or_else(|| {
                self.pools.push(Pool {
                    policy: wanted.clone(),
                    present: true,
                    members: vec![],
                    ends: vec![],
                    tail: Instant::ZERO,
                    typical: None,
                });
                self.pools.len() - 1
            });
            let pool = &mut self.pools[at];
            pool.members.iter_mut().for_each(|m| m.present = false);
            for member in &wanted.members {
                match pool.members.iter_mut().find(|m| m.policy.name == member.name) {
                    Some(known) => (known.policy, known.present) = (member.clone(), true),
                    None => pool.members.push(Member {
                        policy: member.clone(),
                        present: true,
                        rate_limited: None,
                        overloaded: None,
                    }),
                }
            }
            (pool.policy, pool.present) = (wanted, true);
            for member in &mut pool.members {
                member.rate_limited = member.rate_limited.filter(|at| *at > now);
                member.overloaded = member.overloaded.filter(|at| *at > now);
            }
        }
        for p in (0..self.pools.len()).filter(|p| !self.pools[*p].present).collect::<Vec<_>>() {
            let id = PoolId(u32::try_from(p).unwrap());
            let mut held: Vec<LeaseId> = self.leases.iter().filter(|l| l.pool == id).map(|l| l.id).collect();
            held.sort();
            for lease in held {
                let ended = self.end_lease(lease).unwrap();
                self.say_revoke(ended.session, lease, RevokeReason::PoolGone);
            }
            let (gone, rest) = std::mem::take(&mut self.parked).into_iter().partition(|w| w.pool == id);
            self.parked = rest;
            for w in gone as Vec<Parked> {
                self.reject(w.session, w.request, RejectReason::UnknownPool);
            }
        }
    }
}
