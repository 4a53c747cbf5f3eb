//! Leases from grant to end. A lease ends exactly once: released by its holder, expired, reclaimed, gone with its session,
//! or revoked. Whatever comes for an id that is not live touches nothing else.

use crate::collections::heap::Place;
use crate::collections::slots::Slot;
use crate::id::SetId;
use crate::id::{LeaseId, MemberId, PoolId, SessionId, SiteId, TrafficId};
use crate::identity::party::Holder;
use crate::io::{Kind, Priority};
use crate::time::Instant;

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

/// Where a lease counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) member: Option<MemberId>,
    pub(crate) holder: Holder,
    /// Where it may run.
    pub(crate) set: SetId,
    pub(crate) traffic: Option<TrafficId>,
    /// It went through the ordinary door: it is neither re-attached nor a child.
    pub(crate) ordinary: bool,
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

    /// What ends it first is that its client is gone.
    pub(crate) fn ends_by_reclaim(&self) -> bool {
        self.reclaimed.0 <= self.expires
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
