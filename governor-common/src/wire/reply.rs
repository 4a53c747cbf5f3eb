//! Messages the daemon sends. A `Grant`, `Parked`, `Shed`, `Reject`, `Registered`, `Welcome`, `Error` or `Pong` carries
//! the request id it answers; `Revoke`, `Overload`, `Limits`, `TierAsk`, `ClientGone` and `Drain` are unsolicited and
//! carry 0.

use super::KeyHash;

/// Everything the daemon can say. `S` is how the name in what comes most often is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<S = String> {
    /// Answers `Hello`.
    Welcome(Welcome),
    /// A slot: the terminal answer of an `Acquire`, or the new member after a `Move`.
    Grant(Grant<S>),
    /// Not yet: a `Grant` or `Shed` follows. Informational.
    Parked,
    /// No, because of a limit or overload: terminal.
    Shed(Shed),
    /// No, and never valid: terminal.
    Reject {
        /// What is wrong, in one sentence safe to show to an API client.
        reason: String,
    },
    /// Answers `Register`: old lease id, and the id it is now known by (0: not taken, the pool is unknown).
    Registered {
        /// Pairs of old and new lease id.
        leases: Vec<(u64, u64)>,
    },
    /// The daemon no longer counts this lease; the stream goes on.
    Revoke {
        /// The lease.
        lease: u64,
        /// Why.
        reason: RevokeReason,
    },
    /// The overload level changed.
    Overload(Overload),
    /// What the client's fallback needs while the daemon is away; sent after `Welcome` and at each change.
    Limits(Limits),
    /// More of the last [`Self::Limits`], which did not fit one frame: members of pools it has, and further pools.
    MoreLimits {
        /// Pools, each with some of its members.
        pools: Vec<PoolLimits>,
    },
    /// The daemon is about to stop; nothing new is granted by it.
    Drain,
    /// The frame with this request id was not understood or not allowed; the session lives on.
    Error {
        /// What kind of mistake.
        code: ErrorCode,
        /// One sentence.
        message: String,
    },
    /// An organisation has reached its base ceiling: which tier does it have? Answered by `TierIs`; no answer means the
    /// base. Nothing waits for it.
    TierAsk {
        /// The organisation.
        org: KeyHash,
    },
    /// The kernel closed the connection of this lease's client. The lease lives on; one that ends with its client is
    /// taken back after a grace.
    ClientGone {
        /// The lease.
        lease: u64,
    },
    /// Answers `Ping`.
    Pong,
}

/// Answers `Hello`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Protocol version of this session: the lower of both sides' highest.
    pub version: u16,
    /// Session id, for `Hello.resume`.
    pub session: u64,
    /// Changes with every start of the daemon.
    pub epoch: u32,
    /// A lease not renewed for this long expires, in milliseconds.
    pub lease_ttl_ms: u32,
}

/// A granted slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<S = String> {
    /// Lease id; 0 for work that takes no slot.
    pub lease: u64,
    /// Member to use; `None` for exempt work.
    pub member: Option<S>,
    /// Milliseconds this request was parked.
    pub waited_ms: u32,
}

/// A refusal by limit or overload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shed {
    /// HTTP status for the client: 429 or 529; 403 for a suspended key, where waiting does not help.
    pub status: u16,
    /// Which level refused.
    pub origin: Origin,
    /// Machine-readable reason, e.g. `fair_share`, `pool_exhausted`, `node_cap`, `deadline`, `queue_full`.
    pub reason: String,
    /// When to try again, in milliseconds.
    pub retry_after_ms: u32,
    /// Id that `governorctl explain` answers.
    pub decision: u64,
    /// One sentence with the numbers of the decision, safe to show to the client.
    pub detail: String,
    /// Concurrent requests that the limit which refused allows; `None` where no such number refused.
    pub quota: Option<u32>,
}

/// Which level a refusal comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The caller's own key.
    Key,
    /// The caller's organisation.
    Org,
    /// The pool's slots.
    Pool,
    /// This node.
    Node,
    /// The fleet-wide budget.
    Fleet,
    /// The upstream itself.
    Upstream,
}

impl Origin {
    /// Stable lower-case name used in headers, metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Org => "org",
            Self::Pool => "pool",
            Self::Node => "node",
            Self::Fleet => "fleet",
            Self::Upstream => "upstream",
        }
    }
}

/// Why a lease was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Not renewed within its ttl.
    Expired,
    /// An operator's command.
    Operator,
    /// Its pool left the configuration.
    PoolGone,
    /// The daemon does not know this lease (it was renewed or released too late).
    Unknown,
    /// Its client was gone for longer than the grace.
    Reclaimed,
}

/// Overload level of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing to do.
    #[default]
    Normal,
    /// From 500 ‰: nothing is shed yet.
    Elevated,
    /// From 750 ‰: sheddable work goes.
    High,
    /// From 950 ‰: normal work goes too.
    Overloaded,
}

impl Level {
    /// Stable lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Elevated => "elevated",
            Self::High => "high",
            Self::Overloaded => "overloaded",
        }
    }
}

/// The overload level changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// Level.
    pub level: Level,
    /// Pressure, 0–1000 ‰.
    pub pressure: u16,
    /// Bit set of [`cause`] values.
    pub causes: u32,
    /// Advice for refusals made by the proxy itself, in milliseconds.
    pub retry_after_ms: u32,
}

/// Bits of [`Overload::causes`].
pub mod cause {
    /// A listener's accept queue is filling.
    pub const ACCEPT_FILL: u32 = 1 << 0;
    /// A cgroup's open connections approach their configured ceiling.
    pub const CGROUP_CONNECTIONS: u32 = 1 << 1;
    /// Requests in flight approach the node cap.
    pub const NODE_IN_FLIGHT: u32 = 1 << 2;

    /// A listener's accept queue stands: every connection waits in it.
    pub const ACCEPT_SOJOURN: u32 = 1 << 3;
    /// A listener refuses connections because its accept queue is full.
    pub const ACCEPT_OVERFLOW: u32 = 1 << 4;
    /// Connections wait and nothing is accepted.
    pub const ACCEPTOR_STALLED: u32 = 1 << 5;
    /// A proxy comes close to its limit of descriptors.
    pub const DESCRIPTORS: u32 = 1 << 6;
    /// More requests than a pool has slots for.
    pub const POOL_USE: u32 = 1 << 7;
    /// Tasks wait for a CPU.
    pub const CPU_PRESSURE: u32 = 1 << 8;
    /// Tasks wait for memory.
    pub const MEMORY_PRESSURE: u32 = 1 << 9;
    /// A proxy's cgroup comes close to its limit of memory.
    pub const CGROUP_MEMORY: u32 = 1 << 10;

    /// Every known bit with its stable name.
    pub const NAMES: &[(u32, &str)] = &[
        (ACCEPT_FILL, "accept_fill"),
        (CGROUP_CONNECTIONS, "cgroup_connections"),
        (NODE_IN_FLIGHT, "node_in_flight"),
        (ACCEPT_SOJOURN, "accept_sojourn"),
        (ACCEPT_OVERFLOW, "accept_overflow"),
        (ACCEPTOR_STALLED, "acceptor_stalled"),
        (DESCRIPTORS, "descriptors"),
        (POOL_USE, "pool_use"),
        (CPU_PRESSURE, "cpu_pressure"),
        (MEMORY_PRESSURE, "memory_pressure"),
        (CGROUP_MEMORY, "cgroup_memory"),
    ];
}

/// What a client needs to go on alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Proxy sessions that share the pools now, this one included; at least 1.
    pub sessions: u32,
    /// Node cap on counted requests.
    pub node_cap: u32,
    /// The pools.
    pub pools: Vec<PoolLimits>,
}

/// One pool, for the fallback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLimits {
    /// Pool name.
    pub name: String,
    /// Capacity now (cooling members do not count).
    pub capacity: u32,
    /// The members with their ordinary slots (slots − reserve).
    pub members: Vec<(String, u32)>,
}

/// What kind of mistake an `Error` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// Frame type unknown to this daemon.
    Unsupported,
    /// Frame known, content malformed.
    Malformed,
    /// `Hello` missing, repeated, or of a version not served.
    Handshake,
    /// The peer's uid or gid is not allowed.
    Denied,
}
