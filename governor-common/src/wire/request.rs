//! Messages a proxy sends. The request id of the frame header correlates an `Acquire`, `Move`, `Register`, `Hello`
//! or `Ping` with its answer; it is unique among the session's unanswered requests.

use super::KeyHash;
use core::net::SocketAddr;

/// Everything a proxy can say. `S` is how the strings of what comes most often are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<S = String> {
    /// First frame of every session.
    Hello(Hello),
    /// Ask for one slot.
    Acquire(Acquire<S>),
    /// Members for the `Acquire` with the same request id, which does not fit one frame: such frames come directly
    /// before it, and what the `Acquire` names is added to them. Not answered.
    Candidates {
        /// Names of members.
        candidates: Vec<S>,
    },
    /// Withdraw the unanswered or parked `Acquire` whose request id is `request`. Answered by nothing: a grant that
    /// crossed it on the wire is released by the client.
    Cancel {
        /// Request id of the `Acquire` to withdraw.
        request: u32,
    },
    /// Give leases back. Idempotent by lease id.
    Release {
        /// The leases that ended.
        leases: Vec<u64>,
    },
    /// Keep leases alive for another ttl.
    Renew {
        /// The leases whose guards are alive.
        leases: Vec<Renewal>,
    },
    /// The member refused before the first response byte: move the lease to another candidate, once.
    /// Answered by `Grant` with the same lease id and another member, or by `Shed`.
    Move {
        /// The lease to move.
        lease: u64,
    },
    /// A member answered 429, 529 or with a transport error, or an operator cleared it.
    MemberReport(MemberReport),
    /// After a reconnect: the leases this proxy still holds. Answered by `Registered`.
    Register {
        /// What the proxy holds.
        leases: Vec<HeldLease>,
    },
    /// Give the slot of a lease back and keep the lease, for work that is idle for a while. Not answered; the lease is
    /// still renewed and still released at its end.
    Suspend {
        /// The lease.
        lease: u64,
    },
    /// Ask for a slot for a suspended lease: admission again. Answered like an `Acquire`; the `Grant` has the same
    /// lease id. After a `Shed` the lease is still suspended.
    Resume {
        /// The lease.
        lease: u64,
        /// Longest park in milliseconds; `None` means the pool's `park.max_wait`.
        max_wait_ms: Option<u32>,
    },
    /// Answers `TierAsk`, or reports a tier unasked.
    TierIs(TierIs),
    /// Liveness probe; answered by `Pong`.
    Ping,
}

/// Opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Highest protocol version the client speaks.
    pub version: u16,
    /// Name of the proxy for display, at most [`super::MAX_NAME`] bytes.
    pub name: String,
    /// Session id of the broken connection this one continues.
    pub resume: Option<u64>,
}

/// What kind of work an `Acquire` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary request: fair share, then member slots.
    #[default]
    Ordinary,
    /// A re-attach to a running upstream session: bypasses fair share, may use the reserve, only on `sticky`.
    Reattach,
    /// Exempt work (health, metrics, model lists): counted apart, never shed by the node cap, takes no slot.
    Exempt,
}

/// Asks for one slot of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquire<S = String> {
    /// Pool name.
    pub pool: S,
    /// Fairness identity; requests without one share the identity `anonymous` of their pool.
    pub key: Option<KeyHash>,
    /// Human label of the key for the operator's screen, never the key itself.
    pub label: Option<S>,
    /// Parent level of the key.
    pub org: Option<KeyHash>,
    /// Endpoint class for records, e.g. `chat`.
    pub endpoint: Option<S>,
    /// Members this request may use; empty means all of the pool.
    pub candidates: Vec<S>,
    /// Preferred member.
    pub sticky: Option<S>,
    /// Longest park in milliseconds; `None` means the pool's `park.max_wait`.
    pub max_wait_ms: Option<u32>,
    /// The client's own deadline in milliseconds from now.
    pub deadline_ms: Option<u32>,
    /// What kind of work this is.
    pub kind: Kind,
    /// Plan of the org or key, by its name in the daemon's configuration; an unknown name counts as none.
    pub class: Option<S>,
    /// What goes first under overload.
    pub priority: Priority,
    /// Kind of traffic by its name in the pool's configuration, for a sub-capacity; an unknown name counts as none.
    pub traffic: Option<S>,
    /// The running work this request belongs to.
    pub parent: Option<Parent>,
    /// The client's connection as the proxy holds it: the kernel reports its end.
    pub client: Option<ClientSocket>,
    /// The lease may be taken back some time after the client's connection is gone: no upstream call outlives it.
    pub ends_with_client: bool,
    /// Where in the proxy this is asked, e.g. `src/chat.rs:42` or a route: leases that are lost count by it.
    pub site: Option<S>,
}

/// A connected TCP socket of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientSocket {
    /// The proxy's own address and port.
    pub local: SocketAddr,
    /// The client's address and port.
    pub peer: SocketAddr,
    /// The socket's cookie (`SO_COOKIE`), if the proxy asked for it: tells it from a later one between the same ports.
    pub cookie: Option<u64>,
}

/// What goes first under overload: the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Goes from level high on.
    Sheddable,
    /// Goes at level overloaded.
    #[default]
    Normal,
    /// Never goes because of a level.
    Critical,
}

/// How a request belongs to running work. A lease of another session or org counts as no parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// New upstream work of the request that holds this lease: granted (reserve included) or refused, never parked.
    Child {
        /// The parent's lease.
        lease: u64,
    },
    /// The same work on its next hop: shares this lease and costs nothing.
    Hop {
        /// The lease of the work.
        lease: u64,
    },
}

/// The trust tier of an organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierIs {
    /// The organisation.
    pub org: KeyHash,
    /// A class by its name in the daemon's configuration, e.g. `tier3`, whose ceiling may raise the one of the org's
    /// own class; `None` when the look-up failed, which means the base.
    pub class: Option<String>,
    /// How long this may be believed, in milliseconds.
    pub ttl_ms: u32,
}

/// One renewed lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The lease.
    pub lease: u64,
    /// Milliseconds since this lease last moved bytes; `None` when the client does not track it.
    pub idle_ms: Option<u32>,
}

/// What a proxy learnt about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Pool name.
    pub pool: String,
    /// Member name.
    pub member: String,
    /// The news.
    pub state: MemberNews,
}

/// News about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberNews {
    /// Answered 429: cools until its reset, given in milliseconds from now; `None` means the pool's default.
    RateLimited {
        /// Milliseconds until the member's reset.
        reset_ms: Option<u32>,
    },
    /// Answered 529 or failed in transport: a short fixed cool-down.
    Overloaded,
    /// Known to be well again.
    Up,
}

/// A lease the proxy holds and wants counted again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLease {
    /// The id by which the proxy knows it.
    pub lease: u64,
    /// Pool name.
    pub pool: String,
    /// Fairness identity.
    pub key: Option<KeyHash>,
    /// Human label of the key.
    pub label: Option<String>,
    /// Parent level of the key.
    pub org: Option<KeyHash>,
    /// Plan of the org or key.
    pub class: Option<String>,
    /// As in [`Acquire::priority`], should it be suspended and resumed.
    pub priority: Priority,
    /// Kind of traffic.
    pub traffic: Option<String>,
    /// Member it runs on, if it was given one.
    pub member: Option<String>,
    /// What kind of work it is.
    pub kind: Kind,
    /// Age in milliseconds.
    pub age_ms: u32,
    /// It is suspended: it takes no slot until it is resumed.
    pub suspended: bool,
    /// As in [`Acquire::client`].
    pub client: Option<ClientSocket>,
    /// As in [`Acquire::ends_with_client`].
    pub ends_with_client: bool,
    /// As in [`Acquire::site`].
    pub site: Option<String>,
}
