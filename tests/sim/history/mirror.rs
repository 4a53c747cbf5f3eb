//! A subscriber: begins with a snapshot, reads every order, and must then know what the engine knows.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId};
use governor_engine::io::{Context, CoolingCause, Level, MemberState, Output};
use governor_engine::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// What orders tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mirror {
    leases: BTreeMap<LeaseId, Held>,
    waiting: BTreeSet<(SessionId, RequestId)>,
    waiting_in: BTreeMap<PoolId, u32>,
    members: BTreeMap<(PoolId, MemberId), Member>,
    capacities: BTreeMap<PoolId, u32>,
    mode: (bool, bool, Level),
}

/// Its state, and why and until when it cools.
type Member = (MemberState, Option<(CoolingCause, Instant)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    session: SessionId,
    pool: PoolId,
    key: Option<KeyId>,
    org: Option<OrgId>,
    member: Option<MemberId>,
    suspended: bool,
    granted: Instant,
}

impl Held {
    fn of(context: &Context, granted: Instant, suspended: bool) -> Self {
        let Context { session, pool, key, org, member, .. } = *context;
        Self { session, pool, key, org, member, suspended, granted }
    }
}

impl Mirror {
    /// From the views.
    pub(super) fn of(engine: &Engine) -> Self {
        let snapshot = engine.snapshot();
        let mut mirror = Self { mode: (snapshot.bypass, snapshot.draining, snapshot.level), ..Self::default() };
        for lease in engine.leases() {
            let held = Held {
                session: lease.session,
                pool: lease.pool,
                key: lease.key,
                org: lease.org,
                member: lease.member,
                suspended: lease.suspended,
                granted: lease.granted,
            };
            mirror.leases.insert(lease.lease, held);
        }
        for pool in &snapshot.pools {
            mirror.capacities.insert(pool.pool, pool.capacity);
            if pool.parked > 0 {
                mirror.waiting_in.insert(pool.pool, pool.parked);
            }
            for member in &pool.members {
                let cooling = member.cooling.zip(member.cooling_until);
                mirror.members.insert((pool.pool, member.member), (member.state, cooling));
            }
        }
        mirror
    }

    /// The engine's views say what the orders told.
    pub(super) fn compare(&self, engine: &Engine) {
        let shown = Self::of(engine);
        assert_eq!(self.leases, shown.leases, "leases: orders (left) and views (right)");
        assert_eq!(self.waiting_in, shown.waiting_in, "waiting: orders (left) and views (right)");
        assert_eq!(self.mode, shown.mode, "mode: orders (left) and views (right)");
        // Views leave out what is not in the policy any more.
        for (id, member) in &shown.members {
            assert_eq!(self.members.get(id), Some(member), "{id:?}: orders (left) and views (right)");
        }
        for (pool, capacity) in &self.capacities {
            assert_eq!(*capacity, shown.capacities.get(pool).copied().unwrap_or(0), "{pool:?}: orders (left)");
        }
        assert!(shown.capacities.keys().all(|pool| self.capacities.contains_key(pool)));
    }

    pub(super) fn read(&mut self, order: &Output) {
        match order {
            Output::Began(grant) => {
                let held = Held::of(&grant.context, grant.context.at, false);
                assert_eq!(self.leases.insert(grant.lease, held), None, "a lease begins once");
            }
            Output::Moved { grant, from } => {
                let held = self.leases.get_mut(&grant.lease).expect("it moves while it lives");
                assert_eq!(held.member, *from);
                held.member = grant.context.member;
            }
            Output::Resumed(grant) => {
                let held = self.leases.get_mut(&grant.lease).expect("it resumes while it lives");
                assert!(held.suspended);
                *held = Held::of(&grant.context, grant.context.at, false);
            }
            Output::Suspended { context, lease, held } => {
                let known = self.leases.get_mut(lease).expect("it is suspended while it lives");
                assert!(!known.suspended && context.at.since(known.granted) == *held);
                known.suspended = true;
            }
            Output::Ended { context, lease, held, .. } => {
                let known = self.leases.remove(lease).expect("a lease ends once");
                assert_eq!(Held::of(context, known.granted, known.suspended), known, "its end says whose it was");
                let time = context.at.since(known.granted);
                assert_eq!(*held, if known.suspended { std::time::Duration::ZERO } else { time });
            }
            Output::Registered { new: Some(new), .. } => {
                let held = Held::of(&new.context, new.granted, new.suspended);
                let before = self.leases.insert(new.lease, held);
                assert_eq!(before.map(|before| before.session), new.from);
            }
            Output::Parked { context, request } => {
                assert!(self.waiting.insert((context.session, *request)));
                *self.waiting_in.entry(context.pool).or_default() += 1;
            }
            Output::Unparked { context, request, .. } => {
                assert!(self.waiting.remove(&(context.session, *request)), "it waits no longer, once");
                let waiting = self.waiting_in.get_mut(&context.pool).expect("one waits there");
                *waiting -= 1;
                if *waiting == 0 {
                    self.waiting_in.remove(&context.pool);
                }
            }
            Output::MemberChanged { pool, member, state, cooling, .. } => {
                let before = self.members.insert((*pool, *member), (*state, *cooling));
                assert_ne!(before, Some((*state, *cooling)), "only changes are announced");
            }
            Output::LimitsChanged { pool, capacity, .. } => drop(self.capacities.insert(*pool, *capacity)),
            Output::ModeChanged { bypass, draining, level, .. } => {
                let before = std::mem::replace(&mut self.mode, (*bypass, *draining, *level));
                assert_ne!(before, self.mode, "only changes are announced");
            }
            Output::SessionEnded { session, .. } => {
                assert!(self.leases.values().all(|held| held.session != *session), "its leases ended before");
                assert!(self.waiting.iter().all(|(of, _)| of != session));
            }
            Output::Passed { .. }
            | Output::Registered { new: None, .. }
            | Output::UnknownLease { .. }
            | Output::ClientGone { .. }
            | Output::Refused { .. }
            | Output::Rejected { .. }
            | Output::WouldHave { .. }
            | Output::TierAsk { .. } => {}
        }
    }
}
