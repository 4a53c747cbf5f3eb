//! Orders: every change of state, announced once, and the answers to sessions. An order carries whom and what it concerns,
//! so that a subscriber looks nothing up.

use crate::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId};
use crate::io::{CoolingCause, Decision, Level, MemberState};
use crate::time::{Duration, Instant};

/// An order.
///
/// *Terminal* orders answer a request: `Began`, `Passed`, `Moved`, `Resumed`, `Refused` and `Rejected`. Exactly one follows
/// each `Acquire`, `Move` and `Resume` that is not cancelled and whose session lives; [`Output::answers`] names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Terminal: a lease began and holds a slot.
    Began(Grant),
    /// Terminal: exempt work or a hop goes on without a lease. The member of a hop is its parent's, in its parent's pool.
    Passed {
        /// Whom it concerns.
        context: Context,
        /// The request.
        request: RequestId,
    },
    /// Terminal: a lease moved to another member, or has to be sent to the same one again in a pool without a gate.
    Moved {
        /// The lease, with its new member.
        grant: Grant,
        /// Where it ran before.
        from: Option<MemberId>,
    },
    /// Terminal: a suspended lease holds a slot again.
    Resumed(Grant),
    /// A lease gave its slot back and goes on without one.
    Suspended {
        /// Whom it concerns.
        context: Context,
        /// The lease.
        lease: LeaseId,
        /// How long it held its slot.
        held: Duration,
    },
    /// A lease is no longer counted.
    Ended {
        /// Whom it concerns.
        context: Context,
        /// The lease.
        lease: LeaseId,
        /// What ended it.
        cause: EndCause,
        /// How long it held its slot, since it last got one; 0 for a suspended lease.
        held: Duration,
    },
    /// Answers `Register`. `None`: its pool is unknown or its claim is not believed, and nothing was taken over.
    Registered {
        /// The session.
        session: SessionId,
        /// The id that the lease was known by.
        old: LeaseId,
        /// What is counted now.
        new: Option<Registration>,
    },
    /// Answers a renewal or suspension of a lease that this session does not hold: the session is to forget it.
    UnknownLease {
        /// The session.
        session: SessionId,
        /// The id it named.
        lease: LeaseId,
    },
    /// The client of a lease is gone.
    ClientGone {
        /// Whom it concerns.
        context: Context,
        /// The lease.
        lease: LeaseId,
    },
    /// A request waits. A terminal order follows [`Output::Unparked`].
    Parked {
        /// Whom it concerns; the member is the one that a lease moves away from.
        context: Context,
        /// The request.
        request: RequestId,
    },
    /// A request waits no longer. The terminal order, if there is one, is next.
    Unparked {
        /// Whom it concerns, as for [`Output::Parked`].
        context: Context,
        /// The request.
        request: RequestId,
        /// How the wait ended.
        end: WaitEnd,
        /// How long it waited.
        waited: Duration,
    },
    /// Terminal: no, by a limit. A refused `Move` ends its lease; `Ended` follows.
    Refused {
        /// The request.
        request: RequestId,
        /// Why, in numbers, and whom it concerns. On the heap: it is longer than every other order, and each one is moved
        /// into the stream and out of it.
        decision: Box<Decision>,
    },
    /// Terminal: no, never valid.
    Rejected {
        /// The session.
        session: SessionId,
        /// The request.
        request: RequestId,
        /// What is wrong.
        why: RejectReason,
    },
    /// Observe mode: what enforce would have done to a request (A6, C8). At most one a request: the first rule that
    /// would have refused or parked it.
    WouldHave {
        /// The decision that was not carried out; its `outcome` is `WouldPark` or `WouldRefuse`.
        decision: Box<Decision>,
    },
    /// An org reaches the ceiling of its class: is there a higher one (B4)? Asked, before the request is answered, when
    /// with it the org has as many requests as its base ceiling or more, unless an answer holds or it was asked within
    /// [`crate::policy::TIER_PATIENCE`]. No request waits for the answer.
    TierAsk {
        /// The session whose request reached it.
        session: SessionId,
        /// The org.
        org: OrgId,
    },
    /// A session is over; an `Ended` for each of its leases came before.
    SessionEnded {
        /// When.
        at: Instant,
        /// The session.
        session: SessionId,
    },
    /// A member's state changed, or the cause or end of its cool-down.
    MemberChanged {
        /// When.
        at: Instant,
        /// The session whose report changed it; `None`: an operator, a new policy, or time.
        session: Option<SessionId>,
        /// Its pool.
        pool: PoolId,
        /// The member.
        member: MemberId,
        /// Its state from now on.
        state: MemberState,
        /// What it cools for and until when. A cooling member that stays selectable is `Up`.
        cooling: Option<(CoolingCause, Instant)>,
        /// The time to its reset that the report named, where the pool's longest cool-down cut it.
        cut: Option<Duration>,
    },
    /// What a pool offers changed: its capacity, or by a new policy anything that sessions have as limits.
    LimitsChanged {
        /// When.
        at: Instant,
        /// The pool.
        pool: PoolId,
        /// C over all members that count now; 0 for a pool that left the policy.
        capacity: u32,
    },
    /// A switch of the node or its overload level changed.
    ModeChanged {
        /// When.
        at: Instant,
        /// Every `Acquire` passes at once.
        bypass: bool,
        /// Nothing new is taken.
        draining: bool,
        /// The overload level.
        level: Level,
    },
}

impl Output {
    /// The request that this order answers, if it is terminal.
    #[must_use]
    pub fn answers(&self) -> Option<(SessionId, RequestId)> {
        match self {
            Self::Began(grant) | Self::Resumed(grant) | Self::Moved { grant, .. } => {
                Some((grant.context.session, grant.request))
            }
            Self::Passed { context, request } => Some((context.session, *request)),
            Self::Refused { request, decision } => Some((decision.session, *request)),
            Self::Rejected { session, request, .. } => Some((*session, *request)),
            Self::Suspended { .. }
            | Self::Ended { .. }
            | Self::Registered { .. }
            | Self::UnknownLease { .. }
            | Self::ClientGone { .. }
            | Self::Parked { .. }
            | Self::Unparked { .. }
            | Self::WouldHave { .. }
            | Self::TierAsk { .. }
            | Self::SessionEnded { .. }
            | Self::MemberChanged { .. }
            | Self::LimitsChanged { .. }
            | Self::ModeChanged { .. } => None,
        }
    }

    /// The slot that this order gives, whether the lease is new, moved or resumed.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        let (Self::Began(grant) | Self::Resumed(grant) | Self::Moved { grant, .. }) = self else { return None };
        Some(grant)
    }
}

/// Whom and what an order concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// When.
    pub at: Instant,
    /// The session.
    pub session: SessionId,
    /// The pool.
    pub pool: PoolId,
    /// The key; `None` if the request names none.
    pub key: Option<KeyId>,
    /// The org.
    pub org: Option<OrgId>,
    /// The class it is judged by: of the org, or of the key where there is no org.
    pub class: Option<ClassId>,
    /// The member; `None` in a pool whose gate is inactive, and for a request that has none yet.
    pub member: Option<MemberId>,
}

/// A slot that a lease got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whom it concerns.
    pub context: Context,
    /// The request.
    pub request: RequestId,
    /// The lease.
    pub lease: LeaseId,
    /// Time parked.
    pub waited: Duration,
}

/// A lease that a session took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whom it concerns.
    pub context: Context,
    /// Its id from now on.
    pub lease: LeaseId,
    /// When it got its slot.
    pub granted: Instant,
    /// It holds no slot.
    pub suspended: bool,
    /// It is not new here: the session that held it until now.
    pub from: Option<SessionId>,
}

/// What ended a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// Its holder released it.
    Released,
    /// It had to move and no other member had a slot for it.
    NotMoved,
    /// Its session ended.
    SessionGone,
    /// Not renewed within its ttl.
    Expired,
    /// Its client was gone for longer than the grace.
    Reclaimed,
    /// An operator's command.
    Revoked,
    /// Its pool left the policy.
    PoolGone,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitEnd {
    /// It got a slot.
    Granted,
    /// It is refused.
    Refused,
    /// Its session withdrew it.
    Cancelled,
    /// Its session, client, lease or pool is gone.
    Gone,
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
