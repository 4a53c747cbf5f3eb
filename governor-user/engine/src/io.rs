//! What goes in (facts) and what comes out (orders). Inputs never fail: a fact that makes no sense is answered or
//! counted, never panicked on.

use crate::id::{DecisionId, KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use crate::policy::Policy;
use crate::time::{Duration, Instant};

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A session opened, or a lost one is back. A session the engine was not told of is opened by its first request.
    SessionOpened {
        /// The session.
        session: SessionId,
    },
    /// A session asks for a slot. Exactly one terminal answer follows.
    Acquire(Acquire),
    /// A session withdraws an unanswered request. Never answered; a parked request vanishes, a granted one stays (the
    /// client releases it).
    Cancel {
        /// The session.
        session: SessionId,
        /// Its request.
        request: RequestId,
    },
    /// The holder gives a lease back. Idempotent; unknown or foreign ids are counted and change nothing.
    Release {
        /// The session.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
    },
    /// The holder's guard is alive. An unknown id is answered by `Revoke` with [`RevokeReason::Unknown`].
    Renew {
        /// The session.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
        /// Time since the lease last moved bytes, if tracked.
        idle: Option<Duration>,
    },
    /// The member refused before the first byte: re-select once (A12). Answered by `Grant` with the same lease or by
    /// `Shed`, after which the lease is over. If no other candidate has a slot it waits (`Parked`) before all others, for
    /// what is left of its first wait, and holds its lease and the old member's slot meanwhile; its key is not judged
    /// again. A lease that ends while it waits is answered by `Reject`. `Reattach` leases cannot move.
    Move {
        /// The session.
        session: SessionId,
        /// Correlates the answer.
        request: RequestId,
        /// The lease.
        lease: LeaseId,
    },
    /// News about a member.
    MemberReport {
        /// The pool.
        pool: PoolId,
        /// The member.
        member: MemberId,
        /// The news.
        news: MemberNews,
    },
    /// A lease held before a reconnect or a restart of the daemon. Adopted under its own id when it is live and its
    /// session is lost, else entered anew (it may exceed capacity; then nothing is granted until it fits).
    /// Answered by `Registered`.
    Register(Held),
    /// The connection broke, the process may live: leases stay for `session_grace`, parked requests vanish.
    SessionLost {
        /// The session.
        session: SessionId,
    },
    /// The process is gone or said goodbye: all leases return at once.
    SessionGone {
        /// The session.
        session: SessionId,
    },
    /// An operator ends the accounting of a lease. Answered by `Revoke` to its session.
    Revoke {
        /// The lease.
        lease: LeaseId,
    },
    /// Every `Acquire` passes at once, counted (C7).
    Bypass {
        /// On or off.
        on: bool,
    },
    /// New policy: all-or-nothing, no lease is cut, waiters are woken at once. One that fails [`Policy::check`] is
    /// counted and changes nothing. Leases of a pool that is no longer there are revoked; leases on a member that is no
    /// longer there run on, as on a draining one.
    PolicyChanged(Box<Policy>),
}

/// What kind of work an `Acquire` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Fair share, then member slots.
    #[default]
    Ordinary,
    /// Bypasses fair share, may use the reserve, only on `sticky` (A9).
    Reattach,
    /// Takes no slot, is never shed, has its own counter (B1).
    Exempt,
}

/// Asks for one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The session.
    pub session: SessionId,
    /// Correlates the answer.
    pub request: RequestId,
    /// The pool; one the engine does not know is rejected.
    pub pool: PoolId,
    /// Fairness identity; `None` bypasses fair share but counts in T.
    pub key: Option<KeyId>,
    /// Members it may use; empty means all.
    pub candidates: Vec<MemberId>,
    /// Preferred member.
    pub sticky: Option<MemberId>,
    /// Longest park, if shorter than the pool's. 0: never park.
    pub max_wait: Option<Duration>,
    /// The client's own deadline.
    pub deadline: Option<Instant>,
    /// What kind of work.
    pub kind: Kind,
}

/// A lease the proxy already holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The session.
    pub session: SessionId,
    /// Its id so far.
    pub lease: LeaseId,
    /// The pool.
    pub pool: PoolId,
    /// Fairness identity.
    pub key: Option<KeyId>,
    /// The member it runs on; `None` if it was granted by the client's fallback without one: it then counts in the
    /// pool and key, and on no member.
    pub member: Option<MemberId>,
    /// What kind of work.
    pub kind: Kind,
    /// How old it is.
    pub age: Duration,
}

/// News about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberNews {
    /// 429: cools until its reset or for the pool's default.
    RateLimited {
        /// When it resets.
        until: Option<Instant>,
    },
    /// 529 or transport error: short fixed cool-down; at least one member stays selectable.
    Overloaded,
    /// Well again.
    Up,
}

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
    /// Observe mode: what enforce would have done to a request that was granted (A6).
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
    /// The lease; `None` for exempt work.
    pub lease: Option<LeaseId>,
    /// The member; `None` for exempt work and in a pool whose gate is inactive.
    pub member: Option<MemberId>,
    /// Time parked.
    pub waited: Duration,
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
    /// `Move` of a lease this session does not hold, or a second time.
    NoSuchLease,
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
    /// No such lease.
    Unknown,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Refused.
    Shed,
    /// Observe mode: enforce would have parked it.
    WouldPark,
    /// Observe mode: enforce would have refused it.
    WouldRefuse,
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Over the fair share (origin key).
    FairShare,
    /// No member had a slot (origin pool).
    PoolExhausted,
    /// All candidates cool after 429 and the earliest reset is too far (origin upstream).
    AllCooling,
    /// Node cap (origin node, 529).
    NodeCap,
    /// Too many parked requests of this key (origin key).
    KeyQueueFull,
    /// Too many parked requests in the pool (origin pool) or on the node (origin node).
    QueueFull,
}

/// Which level decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The key.
    Key,
    /// The pool.
    Pool,
    /// The node.
    Node,
    /// The upstream.
    Upstream,
}

/// A refusal or delay, in numbers (A8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Id for `explain`.
    pub id: DecisionId,
    /// When.
    pub at: Instant,
    /// The session.
    pub session: SessionId,
    /// The pool.
    pub pool: PoolId,
    /// The key.
    pub key: Option<KeyId>,
    /// What it came to.
    pub outcome: Outcome,
    /// Which rule.
    pub reason: Reason,
    /// Which level.
    pub origin: Origin,
    /// HTTP status: 429 or 529.
    pub status: u16,
    /// When to try again.
    pub retry_after: Duration,
    /// How long it was parked before.
    pub waited: Duration,
    /// The numbers it was decided on.
    pub numbers: Numbers,
}

/// The numbers of a decision, all over the request's candidate members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// In flight of the key.
    pub key_in_flight: u32,
    /// What the key may hold while the pool is congested.
    pub share: u32,
    /// In flight of everybody, T.
    pub in_flight: u32,
    /// Capacity, C.
    pub capacity: u32,
    /// Active keys, the requester included.
    pub active_keys: u32,
    /// Parked requests in the pool.
    pub parked: u32,
    /// Counted requests on the node, granted or parked.
    pub node_counted: u32,
    /// The node cap.
    pub node_cap: u32,
}
