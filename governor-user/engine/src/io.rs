//! What goes in (facts) and what comes out (orders). Inputs never fail: a fact that makes no sense is answered or
//! counted, never panicked on.

use crate::id::{ClassId, DecisionId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, TrafficId};
use crate::policy::{Override, Policy};
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
    /// The holder goes idle: the slot goes back in this step, the lease stays and is renewed or ended like any other, and
    /// counts nowhere until it is resumed (A14). Nothing is answered, but an unknown or foreign id is: by `Revoke` with
    /// [`RevokeReason::Unknown`]. A lease that is suspended already, or waits to move, stays as it is.
    Suspend {
        /// The session.
        session: SessionId,
        /// The lease.
        lease: LeaseId,
    },
    /// A suspended lease wants a slot again: admission like an `Acquire` of the same key, org, priority, traffic and
    /// candidates, its old member preferred, without a deadline. Answered by `Grant` with the
    /// same lease (its time runs anew and it may move once again), or by `Shed`, after which it is suspended still. If the
    /// lease ends while this waits, and if it is not this session's, not suspended or resuming already: `Reject` with
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
    /// The kernel closed the client's socket. A request that waits is over, answered by `Reject` with
    /// [`RejectReason::ClientGone`], and never granted. A lease is announced to its holder once (`ClientGone`); if it is
    /// flagged `ends_with_client` and not ended within `reclaim_grace`, it is taken back ([`RevokeReason::Reclaimed`]),
    /// renewed or not. What is not there is counted as unknown.
    ClientGone {
        /// The session.
        session: SessionId,
        /// Whose client.
        work: Work,
    },
    /// The node's overload level changed. Acts on arrivals from now on (A24); who waits stays, and is served newest first
    /// within its key while the node is overloaded.
    OverloadChanged {
        /// The level from now on.
        level: Level,
    },
    /// The answer to [`Output::TierAsk`], or news without having been asked (B4). The last one holds.
    TierIs {
        /// The org.
        org: OrgId,
        /// A class whose ceiling may raise, and never lowers, that of the org's own class. `None`, and a class that is not
        /// there: nothing found, the base holds.
        class: Option<ClassId>,
        /// How long this holds; until then the org's tier is not asked for again.
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
    /// cap, level, caps and sub-capacity are as for any other.
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
    /// Fairness identity; `None` bypasses fair share but counts in T.
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
    /// Holds no slot now. Says nothing about a lease that is adopted: that goes on as it is.
    pub suspended: bool,
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

/// What a decision came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Refused.
    #[default]
    Shed,
    /// Observe mode: enforce would have parked it.
    WouldPark,
    /// Observe mode: enforce would have refused it.
    WouldRefuse,
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Over the fair share (origin key; origin org where the share is the org's).
    #[default]
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
    /// Shed by the overload level (origin node, 529).
    Overload,
    /// An operator suspended the key (origin key).
    Suspended,
    /// Over the cap of the key (origin key).
    KeyCap,
    /// Over the cap of the org (origin org).
    OrgCap,
    /// Over the ceiling of the class (origin org; origin key where there is no org).
    ClassCap,
    /// Its kind of traffic fills its sub-capacity (origin pool).
    SubCapacity,
}

/// Which level decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The key.
    #[default]
    Key,
    /// The org.
    Org,
    /// The pool.
    Pool,
    /// The node.
    Node,
    /// The upstream.
    Upstream,
}

/// A refusal or delay, in numbers (A8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The org.
    pub org: Option<OrgId>,
    /// The class it was judged by: of the org, or of the key where there is no org.
    pub class: Option<ClassId>,
    /// Its priority.
    pub priority: Priority,
    /// The overload level of the node.
    pub level: Level,
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

/// The numbers of a decision, over the request's candidate members but for those of the pool and the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// In flight of the key.
    pub key_in_flight: u32,
    /// What the key may hold while the pool is congested; of a key in an org under `max-min`, what the org may hold.
    pub share: u32,
    /// In flight of whom the share is for: of the org under `max-min`, else of the key.
    pub unit_in_flight: u32,
    /// Weight of whom the share is for.
    pub weight: u32,
    /// Floor of whom the share is for, scaled if the pool is oversubscribed; 0 but under `max-min`.
    pub floor: u32,
    /// Slots kept for newcomers, H; 0 but under `max-min`.
    pub headroom: u32,
    /// What would be held if the requester had one more and all others filled up to its level, F of A20: refused when
    /// more than C − H. 0 but under `max-min`.
    pub filled: u32,
    /// The cap, ceiling or sub-capacity that refused; 0 if none did.
    pub limit: u32,
    /// What was counted against `limit`, the request itself left out; 0 if none refused.
    pub limited: u32,
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
