//! Orders, and the answers in them.

use crate::id::{LeaseId, MemberId, OrgId, RequestId, SessionId};
use crate::io::Decision;
use crate::time::Duration;

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Terminal: here is the slot.
    Grant(Grant),
    /// Informational: a terminal answer follows.
    Parked {
        /// The session.
        session: SessionId,
        /// The request.
        request: RequestId,
    },
    /// Terminal: no, by a limit.
    Shed {
        /// The session.
        session: SessionId,
        /// The request.
        request: RequestId,
        /// Why, in numbers.
        decision: Decision,
    },
    /// Terminal: no, never valid.
    Reject {
        /// The session.
        session: SessionId,
        /// The request.
        request: RequestId,
        /// What is wrong.
        why: RejectReason,
    },
    /// Answers `Register`. `None`: the pool is unknown, the lease was not taken.
    Registered {
        /// The session.
        session: SessionId,
        /// The id it was known by.
        old: LeaseId,
        /// The id it is known by now.
        new: Option<LeaseId>,
    },
    /// The lease is no longer counted.
    Revoke {
        /// The session that held it.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
        /// Why.
        reason: RevokeReason,
    },
    /// The client of a lease is gone.
    ClientGone {
        /// The session that holds it.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
    },
    /// An org reaches the ceiling of its class: is there a higher one (B4)? Asked, before the request is answered, when
    /// with it the org has as many requests as its base ceiling or more, unless an answer holds or it was asked within
    /// [`crate::policy::TIER_PATIENCE`]. Nobody waits for the answer.
    TierAsk {
        /// The session whose request reached it.
        session: SessionId,
        /// The org.
        org: OrgId,
    },
    /// Observe mode: what enforce would have done to a request (A6, C8). At most one a request: the first rule that
    /// would have refused or parked it.
    WouldHave {
        /// The decision that was not carried out; its `outcome` is `WouldPark` or `WouldRefuse`.
        decision: Decision,
    },
}

/// A granted slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The session.
    pub session: SessionId,
    /// The request.
    pub request: RequestId,
    /// The lease; `None` for exempt work and for a hop.
    pub lease: Option<LeaseId>,
    /// The member; `None` for exempt work and in a pool whose gate is inactive. A hop's is its parent's, in its pool.
    pub member: Option<MemberId>,
    /// Time parked.
    pub waited: Duration,
    /// The lease had its grant before, and moved to this member.
    pub moved: bool,
}

/// Why a request can never be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// No such pool.
    UnknownPool,
    /// A candidate or sticky member is not in the pool.
    UnknownMember,
    /// The request id is in use by an unanswered request of this session.
    DuplicateRequest,
    /// A `Reattach` without `sticky`.
    ReattachWithoutMember,
    /// `Move` of a lease this session does not hold, or a second time; `Resume` of one that is not suspended.
    NoSuchLease,
    /// Its client is gone.
    ClientGone,
}

/// Why a lease was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevokeReason {
    /// Not renewed within its ttl.
    Expired,
    /// An operator's command.
    Operator,
    /// Its pool left the policy.
    PoolGone,
    /// Its client was gone for longer than the grace.
    Reclaimed,
    /// No such lease.
    Unknown,
}
