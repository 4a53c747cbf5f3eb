//! What a request and a lease are said to be, and the news a fact carries.

use crate::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, SiteId, TrafficId};
use crate::time::{Duration, Instant};

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

/// What goes first when the node is overloaded; the last to go comes first here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Never shed by level.
    Critical,
    /// Shed while overloaded.
    #[default]
    Normal,
    /// Shed from `high` on.
    Sheddable,
}

/// Overload level of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing is shed.
    #[default]
    Normal,
    /// Nothing is shed.
    Elevated,
    /// Sheddable work is shed.
    High,
    /// Normal work too. A key's newest request is served first.
    Overloaded,
}

/// Work that the holder of another lease causes (A25). It counts only if that lease is live, not suspended, of the same
/// session and of the same org (both may have none); otherwise the request is judged as if it named no parent. Ignored
/// for kinds other than [`Kind::Ordinary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// New upstream work: granted at once, reserve included and without a share test, or refused; never parked. Node
    /// cap, level, caps and sub-capacity are as for any other. Its priority is the higher one of its own and the
    /// parent lease's, which its lease then has.
    Child(LeaseId),
    /// The same work: shares its parent's lease. Granted without a lease of its own, judged by nothing, counted nowhere.
    Hop(LeaseId),
}

/// Work whose client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A request that waits.
    Request(RequestId),
    /// A lease.
    Lease(LeaseId),
}

/// Asks for one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquire {
    /// The session.
    pub session: SessionId,
    /// Correlates the answer.
    pub request: RequestId,
    /// The pool; one the engine does not know is rejected.
    pub pool: PoolId,
    /// Fairness identity; `None` shares one with all others in the pool that name none, or bypasses fair share but counts
    /// in T: see [`crate::policy::Anonymous`].
    pub key: Option<KeyId>,
    /// The key's parent, if there is one. Its cap counts all its requests, with a key or without.
    pub org: Option<OrgId>,
    /// The plan of the org, or of the key where there is no org. The last `Acquire` (or `Register` that enters a lease)
    /// of an org or key decides its class, until it holds and awaits nothing. `None`, and one that is not there: the
    /// node's default class.
    pub class: Option<ClassId>,
    /// What goes first under overload.
    pub priority: Priority,
    /// Kind of traffic, for its sub-capacity (A13). One that is not there is none.
    pub traffic: Option<TrafficId>,
    /// Nested work names its parent.
    pub parent: Option<Parent>,
    /// Its lease may be reclaimed when its client's socket is gone.
    pub ends_with_client: bool,
    /// Where it is asked for.
    pub site: SiteId,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The session.
    pub session: SessionId,
    /// Its id so far.
    pub lease: LeaseId,
    /// The pool.
    pub pool: PoolId,
    /// Fairness identity.
    pub key: Option<KeyId>,
    /// The key's parent, if there is one.
    pub org: Option<OrgId>,
    /// The plan, as in [`Acquire::class`].
    pub class: Option<ClassId>,
    /// What goes first under overload, should it be suspended and resumed.
    pub priority: Priority,
    /// Kind of traffic.
    pub traffic: Option<TrafficId>,
    /// Its lease may be reclaimed when its client's socket is gone.
    pub ends_with_client: bool,
    /// Where it was asked for.
    pub site: SiteId,
    /// Holds no slot now. Says nothing about a lease that is adopted: that goes on as it is.
    pub suspended: bool,
    /// The daemon itself had recorded it: it is no claim of a proxy, and no bound of claims applies.
    pub restored: bool,
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

/// What an operator orders for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberOrder {
    /// Ends every cool-down now, reported or ordered. The next report may begin another.
    Up,
    /// Takes no new request until then, as after a 429. Replaces the end that was ordered before; a report `Up` does not
    /// end it.
    Cool {
        /// End of the cool-down.
        until: Instant,
    },
    /// Takes no new request until this is ordered off.
    Drain {
        /// On or off.
        on: bool,
    },
}
