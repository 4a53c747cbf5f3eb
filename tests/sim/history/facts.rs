//! Facts at random, sensible and senseless ones.

use super::policies::{any_entitlement, any_policy, broken};
use governor_engine::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, SiteId, TrafficId};
use governor_engine::io::{Acquire, Held, Input, Kind, Level, MemberNews, MemberOrder, Output, Parent, Priority, Work};
use governor_engine::policy::{Override, Policy};
use governor_engine::time::{Duration, Instant};
use support::random::Random;

/// A proxy that is not in its right mind: knows what it holds and awaits, and does anything with it.
pub(crate) struct Facts {
    random: Random,
    policy: Policy,
    now: Instant,
    next_request: u32,
    leases: Vec<(SessionId, LeaseId)>,
    waiting: Vec<(SessionId, RequestId)>,
    /// Questions for tiers.
    asks: Vec<(SessionId, OrgId)>,
    /// Leases that were suspended, resumed since or not.
    idle: Vec<(SessionId, LeaseId)>,
}

const SESSIONS: u64 = 4;

impl Facts {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policy = any_policy(&mut random);
        Self {
            random,
            policy,
            now: Instant::ZERO,
            next_request: 0,
            leases: vec![],
            waiting: vec![],
            idle: vec![],
            asks: vec![],
        }
    }

    /// The policy that the history starts with.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.clone()
    }

    /// What the engine answered.
    pub(crate) fn learn(&mut self, outputs: &[Output]) {
        for output in outputs {
            if let Some(asked) = output.answers() {
                self.waiting.retain(|it| *it != asked);
            }
            if let Some(grant) = output.grant() {
                self.leases.push((grant.context.session, grant.lease));
            }
            if let Output::Parked { context, request } = output {
                self.waiting.push((context.session, *request));
            }
            if let Output::Registered { session, new: Some(new), .. } = output {
                self.leases.push((*session, new.lease));
            }
            if let Output::TierAsk { session, org } = output {
                self.asks.push((*session, *org));
            }
        }
    }

    /// The time of the next step.
    pub(crate) fn pass_time(&mut self, deadline: Option<Instant>) -> Instant {
        let by = match self.random.below(100) {
            0..30 => 0,
            30..85 => self.random.below(400),
            85..95 => self.random.below(4_000),
            95..98 => {
                // Exactly at the deadline.
                self.now = self.now.max(deadline.unwrap_or(self.now));
                return self.now;
            }
            _ => self.random.below(40_000),
        };
        self.now = self.now.after(Duration::from_millis(by));
        self.now
    }

    /// The next fact; sometimes only time passes.
    pub(crate) fn next(&mut self) -> Option<Input> {
        if self.random.chance(10) {
            return None;
        }
        let session = self.any_session();
        Some(match self.random.below(125) {
            0..47 => Input::Acquire(self.any_acquire(session)),
            47..64 => {
                let (session, lease) = self.any_lease(session);
                Input::Release { session, lease }
            }
            64..70 => {
                let (session, lease) = self.any_lease(session);
                let idle = self.random.chance(50).then(|| self.any_millis(9_000));
                Input::Renew { session, lease, idle }
            }
            70..73 => {
                let (session, request) = self.any_waiting(session);
                Input::Cancel { session, request }
            }
            73..79 => {
                let (session, lease) = self.any_lease(session);
                Input::Move { session, request: self.any_request(), lease }
            }
            79..86 => {
                Input::MemberReport { session, pool: self.any_pool(), member: self.any_member(), news: self.any_news() }
            }
            86..89 => Input::Register(self.any_held(session)),
            89 => Input::SessionOpened { session },
            90..92 => Input::SessionLost { session },
            92 => Input::SessionGone { session },
            93 => Input::Revoke { lease: self.any_lease(session).1 },
            94 => Input::Bypass { on: self.random.chance(30) },
            95..98 => Input::PolicyChanged(Box::new(self.changed_policy())),
            98..103 => {
                let (session, lease) = self.any_lease(session);
                self.idle.push((session, lease));
                Input::Suspend { session, lease }
            }
            103..109 => {
                let idle = self.idle.pop().filter(|_| self.random.chance(85));
                let (session, lease) = idle.unwrap_or_else(|| self.any_lease(session));
                let max_wait = self.random.chance(30).then(|| self.any_millis(4_000));
                Input::Resume { session, request: self.any_request(), lease, max_wait }
            }
            109..113 => {
                let (session, work) = self.any_work(session);
                Input::ClientGone { session, work }
            }
            113..115 => Input::OverloadChanged { level: self.any_level() },
            115..117 => {
                // Mostly the last question's answer, else one that nothing asked for.
                let asked = self.asks.last().copied().filter(|_| self.random.chance(75));
                let (session, org) = asked.unwrap_or_else(|| (session, self.any_org()));
                Input::TierIs { session, org, class: self.any_class(), ttl: self.any_millis(9_000) }
            }
            117..120 => {
                Input::MemberOrder { pool: self.any_pool(), member: self.any_member(), order: self.any_order() }
            }
            120 => Input::Drain { on: self.random.chance(30) },
            _ => Input::Override { key: self.any_key(), with: self.random.chance(80).then(|| self.any_override()) },
        })
    }

    fn any_acquire(&mut self, session: SessionId) -> Acquire {
        let kind = match self.random.below(100) {
            0..88 => Kind::Ordinary,
            88..96 => Kind::Reattach,
            _ => Kind::Exempt,
        };
        let candidates = if self.random.chance(30) {
            (0..self.random.below(4)).map(|_| self.any_member()).collect()
        } else {
            vec![]
        };
        let sticky = (kind == Kind::Reattach && self.random.chance(95)) || self.random.chance(20);
        let key = self.random.chance(88).then(|| self.any_key());
        let parent = self.random.chance(12).then(|| {
            let lease = self.any_lease(session).1;
            if self.random.chance(60) { Parent::Child(lease) } else { Parent::Hop(lease) }
        });
        Acquire {
            session,
            request: self.any_request(),
            pool: self.any_pool(),
            key,
            org: self.org_of(key),
            class: self.any_class(),
            priority: self.any_priority(),
            traffic: self.any_traffic(),
            parent,
            ends_with_client: self.random.chance(40),
            site: SiteId::default(),
            candidates,
            sticky: sticky.then(|| self.any_member()),
            max_wait: self.random.chance(30).then(|| self.any_millis(4_000)),
            deadline: self.random.chance(25).then(|| self.now.after(self.any_millis(9_000))),
            kind,
        }
    }

    fn any_held(&mut self, session: SessionId) -> Held {
        let key = self.random.chance(88).then(|| self.any_key());
        Held {
            session,
            lease: self.any_lease(session).1,
            pool: self.any_pool(),
            key,
            org: self.org_of(key),
            class: self.any_class(),
            priority: self.any_priority(),
            traffic: self.any_traffic(),
            ends_with_client: self.random.chance(40),
            site: SiteId::default(),
            suspended: self.random.chance(15),
            member: self.random.chance(70).then(|| self.any_member()),
            kind: if self.random.chance(90) { Kind::Ordinary } else { Kind::Reattach },
            age: self.any_millis(20_000),
            restored: self.random.chance(30),
        }
    }

    fn any_override(&mut self) -> Override {
        let mut entitlement = any_entitlement(&mut self.random);
        if self.random.chance(5) {
            entitlement.weight = Some(0);
        }
        let until = self.random.chance(80).then(|| self.now.after(self.any_millis(8_000)));
        Override { entitlement, suspend: self.random.chance(25), until }
    }

    fn any_news(&mut self) -> MemberNews {
        match self.random.below(4) {
            0 => {
                let reset = self.any_millis(9_000);
                MemberNews::RateLimited { until: self.random.chance(60).then(|| self.now.after(reset)) }
            }
            1 => MemberNews::Overloaded,
            _ => MemberNews::Up,
        }
    }

    fn any_order(&mut self) -> MemberOrder {
        match self.random.below(5) {
            0 => MemberOrder::Up,
            1 | 2 => MemberOrder::Cool { until: self.now.after(self.any_millis(9_000)) },
            _ => MemberOrder::Drain { on: self.random.chance(40) },
        }
    }

    fn any_level(&mut self) -> Level {
        match self.random.below(6) {
            0..3 => Level::Normal,
            3 => Level::Elevated,
            4 => Level::High,
            _ => Level::Overloaded,
        }
    }

    fn any_priority(&mut self) -> Priority {
        match self.random.below(5) {
            0 => Priority::Critical,
            1 => Priority::Sheddable,
            _ => Priority::Normal,
        }
    }

    fn any_session(&mut self) -> SessionId {
        SessionId(self.random.below(SESSIONS) + 1)
    }

    /// Mostly a lease of that session, else of another, else of nobody.
    fn any_lease(&mut self, session: SessionId) -> (SessionId, LeaseId) {
        let recent = self.leases.len().saturating_sub(24);
        match self.random.pick(&self.leases[recent..]) {
            Some(lease) if self.random.below(100) < 92 => *lease,
            Some((_, lease)) => (session, *lease),
            None => (session, LeaseId(3)),
        }
    }

    fn any_waiting(&mut self, session: SessionId) -> (SessionId, RequestId) {
        self.random.pick(&self.waiting).copied().unwrap_or((session, RequestId(0)))
    }

    fn any_work(&mut self, session: SessionId) -> (SessionId, Work) {
        if self.random.chance(50) {
            let (session, request) = self.any_waiting(session);
            return (session, Work::Request(request));
        }
        let (session, lease) = self.any_lease(session);
        (session, Work::Lease(lease))
    }

    fn any_request(&mut self) -> RequestId {
        if !self.random.chance(2) {
            self.next_request += 1;
        }
        RequestId(self.next_request)
    }

    fn any_pool(&mut self) -> PoolId {
        let last = if self.random.chance(2) { 9 } else { 1 };
        PoolId(self.random.within(0, last))
    }

    fn any_member(&mut self) -> MemberId {
        let last = if self.random.chance(2) { 9 } else { 2 };
        MemberId(self.random.within(0, last))
    }

    fn any_traffic(&mut self) -> Option<TrafficId> {
        let last = if self.random.chance(5) { 9 } else { 1 };
        self.random.chance(20).then(|| TrafficId(self.random.within(0, last)))
    }

    fn any_class(&mut self) -> Option<ClassId> {
        let last = if self.random.chance(5) { 9 } else { 2 };
        self.random.chance(60).then(|| ClassId(self.random.within(0, last)))
    }

    fn any_key(&mut self) -> KeyId {
        KeyId(u128::from(self.random.below(6)))
    }

    fn any_org(&mut self) -> OrgId {
        OrgId(u128::from(self.random.below(2) + 1))
    }

    /// Keys 0 and 1 are one org's, 2 and 3 the other's, the rest nobody's; now and then a proxy sees it differently.
    fn org_of(&mut self, key: Option<KeyId>) -> Option<OrgId> {
        match key {
            _ if self.random.chance(4) => Some(self.any_org()),
            Some(KeyId(key @ 0..4)) => Some(OrgId(key / 2 + 1)),
            Some(_) => None,
            None => self.random.chance(20).then(|| self.any_org()),
        }
    }

    fn any_millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.random.below(end))
    }

    fn changed_policy(&mut self) -> Policy {
        match self.random.below(4) {
            // The same once more.
            0 => {}
            // Something impossible.
            1 => return broken(self.policy.clone(), &mut self.random),
            _ => self.policy = any_policy(&mut self.random),
        }
        self.policy.clone()
    }
}
