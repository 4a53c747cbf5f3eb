//! What goes in (facts) and what comes out (orders). Inputs never fail: a fact that makes no sense is answered or
//! counted, never panicked on.

mod decision;
mod member;
mod output;
mod request;

pub use decision::{Decision, Numbers, Origin, Outcome, Reason};
pub use member::{CoolingCause, MemberState};
pub use output::{Context, EndCause, Grant, Output, Registration, RejectReason, WaitEnd};
pub use request::{Acquire, Held, Kind, Level, MemberNews, MemberOrder, Parent, Priority, Work};

use crate::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId};
use crate::policy::{Override, Policy};
use crate::time::Duration;

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A session opened, or a lost one is back. A session that was not announced is opened by its first request.
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
    /// The holder's guard is alive. An unknown id is answered by [`Output::UnknownLease`].
    Renew {
        /// The session.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
        /// Time since the lease last moved bytes, if tracked.
        idle: Option<Duration>,
    },
    /// The member refused before the first byte: re-select once (A12). Answered by `Moved` with the same lease or by
    /// `Refused`, after which the lease is over. If no other candidate has a slot it waits (`Parked`) before all
    /// others, for what is left of its first wait, and holds its lease and the old member's slot meanwhile; its key is
    /// not judged again. A lease that ends while it waits is answered by `Rejected`. `Reattach` leases cannot move.
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
        /// The session that reports.
        session: SessionId,
        /// The pool.
        pool: PoolId,
        /// The member.
        member: MemberId,
        /// The news.
        news: MemberNews,
    },
    /// An operator's order for a member, in effect at once for what waits and comes; what runs goes on. Survives
    /// `PolicyChanged`, also where the member leaves and comes back.
    MemberOrder {
        /// The pool.
        pool: PoolId,
        /// The member.
        member: MemberId,
        /// The order.
        order: MemberOrder,
    },
    /// A lease held before a reconnect or a restart of the daemon. Adopted under its own id when it is live and its
    /// session is lost, else entered as a new lease (it may exceed capacity; then nothing is granted until it fits).
    /// Answered by `Registered`, without a lease where the claim is not believed: an id of this run that was never
    /// granted or was revoked, and more claims in a pool than it has slots (of suspended leases,
    /// [`crate::policy::SUSPENDED_CLAIMS`] if that is more), unless the daemon vouches for the lease by
    /// [`Held::restored`].
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
    /// An operator ends the accounting of a lease ([`EndCause::Revoked`]).
    Revoke {
        /// The lease.
        lease: LeaseId,
    },
    /// The holder goes idle: the slot goes back in this step, the lease stays and is renewed or ended like any other,
    /// and counts nowhere until it is resumed (A14). Nothing is answered, but an unknown or foreign id is: by
    /// [`Output::UnknownLease`]. A lease that is suspended already, or waits to move, stays as it is.
    Suspend {
        /// The session.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
    },
    /// A suspended lease wants a slot again: admission like an `Acquire` of the same key, org, priority, traffic and
    /// candidates, its old member preferred, without a deadline. Answered by `Resumed` with the same lease (its time
    /// runs anew and it may move once again), or by `Refused`, after which it is suspended still. If the lease ends
    /// while this waits, and if it is not this session's, not suspended or resuming already: `Rejected` with
    /// [`RejectReason::NoSuchLease`].
    Resume {
        /// The session.
        session: SessionId,
        /// Correlates the answer.
        request: RequestId,
        /// The lease.
        lease: LeaseId,
        /// Longest park, if shorter than the pool's. 0: never park.
        max_wait: Option<Duration>,
    },
    /// The kernel closed the client's socket. A request that waits is over, answered by `Rejected` with
    /// [`RejectReason::ClientGone`], and never granted. A lease is announced to its holder once (`ClientGone`); if it
    /// is flagged `ends_with_client` and not ended within `reclaim_grace`, it is taken back ([`EndCause::Reclaimed`]),
    /// renewed or not. What is not there is counted as unknown.
    ClientGone {
        /// The session.
        session: SessionId,
        /// Whose client.
        work: Work,
    },
    /// The node's overload level changed. Acts on arrivals from now on (A24); who waits stays, and is served newest
    /// first within its key while the node is overloaded.
    OverloadChanged {
        /// The level from now on.
        level: Level,
    },
    /// The answer to [`Output::TierAsk`] (B4). Counted and ignored unless this session was asked about this org and has
    /// not answered yet.
    TierIs {
        /// The session.
        session: SessionId,
        /// The org.
        org: OrgId,
        /// A class whose ceiling may raise, and never lowers, that of the org's own class. `None`, and a class that is
        /// not there: nothing found, the base holds.
        class: Option<ClassId>,
        /// How long this holds, at most [`crate::policy::TIER_TTL_MAX`]; until then the org's tier is not asked for
        /// again.
        ttl: Duration,
    },
    /// An operator's setting for one key, in effect at once for what runs, waits and comes (C7). Replaces the one there
    /// was; `None` takes it away. Survives `PolicyChanged`. One that fails [`Override::check`] is counted and changes
    /// nothing.
    Override {
        /// The key.
        key: KeyId,
        /// What is set.
        with: Option<Override>,
    },
    /// Every `Acquire` passes at once, counted (C7).
    Bypass {
        /// On or off.
        on: bool,
    },
    /// An operator drains the node (C7): new requests, re-attached and resumed ones included, are refused with
    /// [`Reason::Draining`], those that wait at once, whether bypass is on or not. What runs goes on: moves, hops and
    /// children of running leases are served as ever.
    Drain {
        /// On or off.
        on: bool,
    },
    /// New policy: all-or-nothing, no lease is cut, waiters are woken at once. One that fails [`Policy::check`] is
    /// counted and changes nothing. Leases of a pool that is no longer there are revoked; leases on a member that is no
    /// longer there run on, as on a draining one.
    PolicyChanged(Box<Policy>),
}
