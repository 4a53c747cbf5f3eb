//! What the reference makes of each fact, but for requests and policies.

use super::Lease;
use super::Model;
use super::Task;
use super::index;
use governor_engine::id::{LeaseId, MemberId, PoolId, SessionId};
use governor_engine::io::{
    EndCause, Held, Input, Kind, MemberNews, MemberOrder, Output, Reason, Registration, WaitEnd,
};
use governor_engine::policy::{CLAIMS_WITHOUT_LIMIT, SUSPENDED_CLAIMS, TIER_TTL_MAX};
use governor_engine::time::Instant;

impl Model {
    pub(super) fn take(&mut self, input: Input) {
        match input {
            Input::SessionOpened { session } => self.open_session(session),
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel { session, request } => {
                for w in self.take_parked(|w| (w.session, w.request) == (session, request)) {
                    self.say_unparked(&w, WaitEnd::Cancelled);
                }
            }
            Input::Release { session, lease } => {
                if self.leases.iter().any(|l| l.id == lease && l.session == session) {
                    let lease = self.end_lease(lease, EndCause::Released).unwrap();
                    if lease.suspended {
                        return;
                    }
                    let length = self.now.since(lease.granted);
                    let typical = &mut self.pools[index(lease.pool.0)].typical;
                    *typical = Some(typical.map_or(length, |t| length.clamp(t - t / 8, t + t / 8)));
                }
            }
            Input::Renew { session, lease, .. } => {
                let expires = self.now.after(self.node.lease_ttl);
                match self.leases.iter_mut().find(|l| l.id == lease && l.session == session) {
                    Some(lease) => lease.expires = expires,
                    None => self.say_unknown(session, lease),
                }
            }
            Input::Move { session, request, lease } => self.relocate(session, request, lease),
            Input::MemberReport { session, pool, member, news } => self.report(session, pool, member, news),
            Input::MemberOrder { pool, member, order } => self.order_member(pool, member, order),
            Input::Register(held) => self.register(held),
            Input::SessionLost { session } => {
                if self.node.session_grace.is_zero() {
                    return self.session_gone(session);
                }
                self.drop_parked(session);
                let grace = self.now.after(self.node.session_grace);
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.get_or_insert(grace);
                }
            }
            Input::SessionGone { session } => self.session_gone(session),
            Input::Revoke { lease } => {
                if self.end_lease(lease, EndCause::Revoked).is_some() {
                    self.revoked.push(lease);
                }
            }
            Input::Suspend { session, lease } => self.suspend(session, lease),
            Input::Resume { session, request, lease, max_wait } => self.resume(session, request, lease, max_wait),
            Input::ClientGone { session, work } => self.client_gone(session, work),
            Input::OverloadChanged { level } => {
                self.level = level;
                self.say_mode();
            }
            Input::TierIs { session, org, class, ttl } => {
                // Believed once, of the session that was asked.
                let until = self.now.after(ttl.min(TIER_TTL_MAX));
                let tier = self.tiers.entry(org).or_default();
                if tier.pending.take_if(|asked| *asked == session).is_some() {
                    tier.answer = Some((class, until));
                }
            }
            Input::Override { key, with } => self.set_override(key, with),
            Input::Bypass { on } => {
                self.bypass = on;
                self.say_mode();
            }
            Input::Drain { on } => self.drain(on),
            Input::PolicyChanged(policy) => {
                if policy.check().is_ok() {
                    self.obey(*policy);
                }
            }
        }
    }

    pub(super) fn open_session(&mut self, session: SessionId) {
        self.sessions.insert(session, None);
    }

    pub(super) fn session_gone(&mut self, session: SessionId) {
        self.drop_parked(session);
        let held: Vec<LeaseId> = self.leases.iter().filter(|l| l.session == session).map(|l| l.id).collect();
        for lease in held {
            self.end_lease(lease, EndCause::SessionGone);
        }
        if self.sessions.remove(&session).is_some() {
            self.out.push(Output::SessionEnded { at: self.now, session });
        }
    }

    fn drop_parked(&mut self, session: SessionId) {
        for w in self.take_parked(|w| w.session == session) {
            self.say_unparked(&w, WaitEnd::Gone);
        }
    }

    pub(super) fn report(&mut self, session: SessionId, pool: PoolId, id: MemberId, news: MemberNews) {
        let now = self.now;
        let Some(pool_state) = self.pools.get_mut(index(pool.0)) else { return };
        let (default, short) = (pool_state.policy.rate_limited_cooldown, pool_state.policy.overloaded_cooldown);
        let last = now.after(pool_state.policy.max_cooldown);
        let Some(member) = pool_state.members.get_mut(index(id.0)) else { return };
        let mut cut = None;
        match news {
            MemberNews::RateLimited { until } => {
                cut = until.filter(|at| *at > last).map(|at| at.since(now));
                let until = until.filter(|at| *at > now).unwrap_or_else(|| now.after(default)).min(last);
                member.rate_limited = Some(member.rate_limited.map_or(until, |at| at.max(until)));
            }
            MemberNews::Overloaded => {
                let until = now.after(short).min(last);
                member.overloaded = Some(member.overloaded.map_or(until, |at| at.max(until)));
            }
            MemberNews::Up => (member.rate_limited, member.overloaded) = (None, None),
        }
        self.forget_past_cooldowns(pool);
        self.say_members(pool, Some((session, id, cut)));
    }

    fn order_member(&mut self, pool: PoolId, member: MemberId, order: MemberOrder) {
        let Some(pool_state) = self.pools.get_mut(index(pool.0)) else { return };
        let Some(member) = pool_state.members.get_mut(index(member.0)) else { return };
        match order {
            MemberOrder::Up => (member.rate_limited, member.overloaded, member.ordered) = (None, None, None),
            MemberOrder::Cool { until } => member.ordered = Some(until),
            MemberOrder::Drain { on } => member.drained = on,
        }
        self.forget_past_cooldowns(pool);
        self.say_members(pool, None);
    }

    /// What waits is refused, but for what holds a lease that moves.
    fn drain(&mut self, on: bool) {
        self.draining = on;
        self.say_mode();
        if on {
            for w in self.take_parked(|w| !matches!(w.task, Task::Move(_))) {
                self.say_unparked(&w, WaitEnd::Refused);
                self.shed(&w, Reason::Draining, None, None);
            }
        }
    }

    pub(super) fn register(&mut self, held: Held) {
        self.open_session(held.session);
        let (now, ttl) = (self.now, self.node.lease_ttl);
        let sessions = &self.sessions;
        let takeable = |l: &&mut Lease| {
            let lost = sessions.get(&l.session).is_some_and(Option::is_some);
            l.id == held.lease && l.pool == held.pool && (l.session == held.session || lost)
        };
        let (mut unheard, mut from) = (false, None);
        let new = if let Some(lease) = self.leases.iter_mut().find(takeable) {
            unheard = lease.client_gone && lease.session != held.session;
            from = Some(lease.session);
            (lease.session, lease.expires) = (held.session, now.after(ttl));
            Some(lease.id)
        } else if self.pool(held.pool).is_none() || held.kind == Kind::Exempt || !self.believes(&held) {
            None
        } else {
            let id = LeaseId(self.epoch + self.next_lease);
            self.next_lease += 1;
            let age = u64::try_from(held.age.as_nanos()).unwrap_or(u64::MAX);
            let granted = Instant(now.0.saturating_sub(age));
            let who = self.identify(held.pool, held.key, held.org);
            if let Some(holder) = Self::class_holder(who) {
                self.named.insert(holder, held.class);
            }
            self.leases.push(Lease {
                id,
                session: held.session,
                pool: held.pool,
                who,
                priority: held.priority,
                traffic: self.known_traffic(held.pool, held.traffic),
                member: held.member.filter(|m| self.member(held.pool, *m).is_some()),
                kind: held.kind,
                child: false,
                claimed: (!held.restored).then_some(held.suspended),
                candidates: None,
                granted,
                expires: now.after(ttl),
                until: granted.after(self.pools[index(held.pool.0)].policy.max_wait),
                deadline: None,
                relocated: false,
                suspended: held.suspended,
                ends_with_client: held.ends_with_client,
                client_gone: false,
                reclaimed: None,
            });
            Some(id)
        };
        let new = new.and_then(|id| self.leases.iter().find(|l| l.id == id)).map(|l| Registration {
            context: self.context_of(l),
            lease: l.id,
            granted: l.granted,
            suspended: l.suspended,
            from,
        });
        self.out.push(Output::Registered { session: held.session, old: held.lease, new });
        if let Some(Registration { context, lease, .. }) = new.filter(|_| unheard) {
            self.out.push(Output::ClientGone { context, lease });
        }
    }

    /// A proxy's word for a lease that is not live: neither revoked nor an id of this run that was never handed out, and
    /// within the slots of the pool, all such leases together; suspended ones apart, at least 1,024 of them.
    fn believes(&self, held: &Held) -> bool {
        if held.restored {
            return true;
        }
        let invented = held.lease.0 & !0xffff_ffff_ffff == self.epoch && held.lease.0 >= self.epoch + self.next_lease;
        if invented || self.revoked.contains(&held.lease) {
            return false;
        }
        let claimed = self.leases.iter().filter(|l| l.pool == held.pool && l.claimed == Some(held.suspended)).count();
        let pool = &self.pools[index(held.pool.0)];
        let present = pool.members.iter().filter(|member| member.present);
        let slots = match (pool.policy.unlimited, self.node.cap) {
            (false, _) => present.map(|member| member.policy.slots).fold(0, u32::saturating_add),
            (true, 0) => CLAIMS_WITHOUT_LIMIT,
            (true, cap) => cap,
        };
        let room = if held.suspended { slots.max(SUSPENDED_CLAIMS) } else { slots };
        claimed < index(room)
    }
}
