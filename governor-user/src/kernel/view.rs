//! What the kernel plane tells the rest of the daemon: one immutable [`Observation`] per tick. Plain data; knows no
//! BPF, no netlink. A value that is not known is `None`, never 0.

use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};

/// How the kernel is observed (design: tiers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Depth only.
    #[default]
    Procfs,
    /// Depth, backlog, drops and connections by polling.
    Netlink,
    /// BTF tracepoints: exact depth, peak and connections.
    Tracepoint,
    /// fentry/fexit: everything.
    Trampoline,
}

impl Tier {
    /// Stable lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Procfs => "procfs",
            Self::Netlink => "netlink",
            Self::Tracepoint => "tracepoint",
            Self::Trampoline => "trampoline",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything seen at one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Monotonic nanoseconds when it was taken.
    pub taken_ns: u64,
    /// The tier in use.
    pub tier: Tier,
    /// Why it is not a better one, one line each; empty on the best tier asked for.
    pub degraded: Vec<String>,
    /// Listeners, by (netns, port, address, cookie).
    pub listeners: Vec<ListenerView>,
    /// What became of listeners that closed, by (netns, port, address). Empty where closings are not seen.
    pub closed: Vec<ClosedListeners>,
    /// Cgroups with open connections, by path. `None`: per-cgroup counts are unavailable, see `degraded`.
    pub cgroups: Option<Vec<CgroupView>>,
    /// Network namespaces, by inode number.
    pub namespaces: Vec<NamespaceView>,
    /// Health of the plane itself.
    pub health: Health,
    /// Hooks and what became of them, for `doctor`.
    pub hooks: Vec<HookView>,
    /// Whether counting outlives the daemon.
    #[serde(default)]
    pub pins: PinsView,
}

/// Whether the programs go on counting when the daemon dies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsView {
    /// What became of it.
    pub state: PinState,
    /// The folder of the pins; `None` unless something is pinned.
    pub folder: Option<String>,
    /// Monotonic nanoseconds when the programs began to count, in whichever life of the daemon; `None` unless something
    /// is pinned.
    pub counting_since_ns: Option<u64>,
    /// Why nothing is pinned, or why counting started clean though an earlier start had left something; else empty.
    pub note: String,
}

/// What became of pinning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// Not asked for, or nothing to pin on this tier.
    #[default]
    Off,
    /// It does not work here: the note says why. Counts end with the daemon.
    Unavailable,
    /// Everything is pinned by this daemon.
    Pinned,
    /// This daemon took over what an earlier one had pinned and goes on with its counts.
    Adopted,
}

impl PinState {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Unavailable => "unavailable",
            Self::Pinned => "pinned",
            Self::Adopted => "adopted",
        }
    }
}

/// One listening socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerView {
    /// Socket cookie; `None` on the procfs tier.
    pub cookie: Option<u64>,
    /// Inode number of the network namespace.
    pub netns: u64,
    /// `mptcp` for a listener that takes both; it is listed once.
    pub protocol: Protocol,
    /// `ipv4` or `ipv6` (a dual-stack listener is `ipv6`).
    pub family: Family,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Limit of the accept queue; full when depth > backlog.
    pub backlog: Option<u32>,
    /// Connections in the accept queue now.
    pub depth: u32,
    /// Of those, how many the client has closed already; accept would still return them. Clients that reset theirs do
    /// not show. `None` where it is not known: on the procfs tier, and for one of several sockets on the same port.
    pub abandoned: Option<u32>,
    /// Deepest since it was first seen; `None` where it is only polled.
    pub depth_peak: Option<u32>,
    /// Connections that entered the queue since it was first seen.
    pub enqueued_total: Option<u64>,
    /// Connections that left it by accept since it was first seen.
    pub accepted_total: Option<u64>,
    /// Packets refused because the queue was full, since it was first seen: attempts and not clients, because each retry
    /// counts. `None` where something was dropped and nobody saw why; never 0 then.
    pub overflows_total: Option<u64>,
    /// For how long `overflows_total` has missed nothing, where that is not since it was first seen: on the tracepoint
    /// tier SYNs are looked at only while a queue is nearly full or handshakes are refused.
    pub overflows_since_seconds: Option<f64>,
    /// Of those, SYNs. `None` where that stage is not seen.
    pub overflow_syn_total: Option<u64>,
    /// Of those, last packets of a handshake. `None` where that stage is not seen.
    pub overflow_ack_total: Option<u64>,
    /// How long the connection that waits longest has waited; `None` when nothing waits or it is not known. On the
    /// tracepoint tier this is the age of the queue's head as at the last enqueue or scan.
    pub oldest_queued_seconds: Option<f64>,
    /// How long accepted connections had waited; `None` where that is not measured.
    pub sojourn: Option<SojournView>,
    /// Any kernel discard at this socket (`SK_MEMINFO_DROPS`), since it was first seen.
    pub drops_total: Option<u64>,
    /// cgroup-v2 path of the listener's creator.
    pub owner_cgroup: Option<String>,
    /// Processes that hold it, where they can be read.
    pub pids: Vec<u32>,
    /// Tier this row comes from.
    pub tier: Tier,
}

/// What became of the listeners of one place that closed since the daemon's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedListeners {
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// How many closed.
    pub listeners: u64,
    /// Connections that were still queued then and were reset; `None` where that is not seen.
    pub lost: Option<u64>,
}

/// How long the accepted connections of a listener had waited in its queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SojournView {
    /// Waits measured since the listener was first seen.
    pub count: u64,
    /// Their sum.
    pub sum_seconds: f64,
    /// The same as a histogram, ascending; buckets without any wait are left out.
    pub buckets: Vec<SojournBucket>,
    /// Length of the interval that the following figures are of: the last one that is complete.
    pub interval_seconds: f64,
    /// Waits in the interval.
    pub interval_count: u64,
    /// Half of them waited at most so long, to the bucket's upper bound; `None` when there were none.
    pub p50_seconds: Option<f64>,
    /// 99 % of them waited at most so long, to the bucket's upper bound; `None` when there were none.
    pub p99_seconds: Option<f64>,
    /// The longest of them, exactly; `None` when there were none.
    pub max_seconds: Option<f64>,
}

/// Waits of one bucket, not summed over shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SojournBucket {
    /// Inclusive upper bound, a multiple of a power of two of a second; `None`: more than 64 s.
    pub up_to_seconds: Option<f64>,
    /// Waits.
    pub count: u64,
}

impl ListenerView {
    /// Whether the accept queue is full; `None` where the backlog is unknown. The kernel refuses when depth > backlog, so a
    /// queue holds backlog + 1.
    #[must_use]
    pub fn is_full(&self) -> Option<bool> {
        self.backlog.map(|backlog| self.depth > backlog)
    }
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP. Also a listener whose protocol cannot be read.
    #[default]
    Tcp,
    /// TCP and Multipath TCP.
    Mptcp,
}

impl Protocol {
    /// Stable lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
        }
    }
}

/// The sockets that listen on one address and port: one, or the members of an SO_REUSEPORT group. Each member has a
/// queue and a limit of its own, and the hash that picks one does not look at them: room in one does not help another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerGroup {
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Sockets.
    pub members: u32,
    /// Connections in all their accept queues.
    pub depth: u64,
    /// Sum of their limits; `None` when one is unknown.
    pub backlog: Option<u64>,
    /// How many are full; `None` when a limit is unknown.
    pub full: Option<u32>,
    /// Fill of the fullest, 0 to 1; `None` as above.
    pub worst_utilisation: Option<f64>,
    /// Depth of the deepest over the mean depth: 1 is even, `members` is all in one. `None` when nothing is queued.
    pub skew: Option<f64>,
    /// Cookies of the members; empty on the procfs tier.
    pub cookies: Vec<u64>,
}

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// AF_INET.
    Ipv4,
    /// AF_INET6.
    Ipv6,
}

/// Open connections of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupView {
    /// cgroup-v2 id (inode number of its folder).
    pub id: u64,
    /// Path below the v2 root; `None` when the folder is gone.
    pub path: Option<String>,
    /// Accepted or acceptable connections open now.
    pub inbound: u64,
    /// Connections it opened itself.
    pub outbound: u64,
    /// Whose cgroup `inbound` counts under.
    pub inbound_basis: Basis,
    /// Where that is the acceptor's: open connections of the listeners that this cgroup created, queued ones included and
    /// whoever accepted them. Polled no more often than audits. `None` where `inbound` counts under the owner anyway.
    pub inbound_owned: Option<u64>,
}

/// Whose cgroup an inbound connection counts under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The creator of the listener (no accept event on this tier).
    Owner,
    /// The task that accepted.
    Acceptor,
}

/// One network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceView {
    /// Inode number.
    pub netns: u64,
    /// It is the daemon's own.
    pub home: bool,
    /// How often the inode number came to stand for another namespace since it was first seen.
    pub generation: u32,
    /// `net.core.somaxconn`: no backlog is longer. `None` where it cannot be read.
    pub somaxconn: Option<u32>,
    /// Kernel counters since it was first seen; they never fall.
    pub counters: NamespaceCounters,
    /// Its connection-tracking table.
    pub conntrack: Conntrack,
    /// What the counters of the last 10 s mean; advice only.
    pub findings: Vec<Finding>,
}

/// What the kernel counts once for a whole namespace, since it was first seen. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceCounters {
    /// Packets refused because an accept queue was full (`ListenOverflows`). One client may count several times.
    pub listen_overflows: Option<u64>,
    /// Any kernel discard at a listener, overflows included (`ListenDrops`).
    pub listen_drops: Option<u64>,
    /// SYNs refused because a listener's half-open table was full (`TCPReqQFullDrop`).
    pub request_queue_full_drops: Option<u64>,
    /// SYNs answered by a cookie because it was full (`TCPReqQFullDoCookies`).
    pub request_queue_full_cookies: Option<u64>,
    /// SYN cookies sent.
    pub syncookies_sent: Option<u64>,
    /// SYN cookies that came back and were right.
    pub syncookies_received: Option<u64>,
    /// SYN cookies that came back and were wrong.
    pub syncookies_failed: Option<u64>,
    /// Fast Open connections that fell back to the normal handshake (`TCPFastOpenListenOverflow`).
    pub fast_open_overflows: Option<u64>,
    /// Connections opened by the other side (`PassiveOpens`).
    pub passive_opens: Option<u64>,
}

/// A namespace's connection-tracking table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Conntrack {
    /// It could not be read.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// Its fill.
    Table {
        /// Connections in it.
        count: u64,
        /// At most so many.
        max: u64,
    },
}

/// What a namespace's counters mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which one.
    pub kind: FindingKind,
    /// Clients are turned away by it.
    pub critical: bool,
    /// One sentence with its figures.
    pub text: String,
}

/// The findings there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// An accept queue was full.
    AcceptQueueFull,
    /// A connection has waited so long in an accept queue that it is no burst: too little is accepted, or nothing.
    StandingQueue,
    /// Handshakes were dropped and no accept queue was full.
    DroppedOtherwise,
    /// Half-open attempts that do not complete fill the table of them.
    HalfOpenPressure,
    /// Many clients at once; most of them get in.
    Burst,
    /// Packets are dropped before TCP sees them.
    ConntrackFull,
    /// The connection-tracking table cannot be read.
    ConntrackUnknown,
    /// Fast Open fell back to the normal handshake.
    FastOpenFallback,
}

impl FindingKind {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcceptQueueFull => "accept_queue_full",
            Self::StandingQueue => "standing_queue",
            Self::DroppedOtherwise => "dropped_otherwise",
            Self::HalfOpenPressure => "half_open_pressure",
            Self::Burst => "burst",
            Self::ConntrackFull => "conntrack_full",
            Self::ConntrackUnknown => "conntrack_unknown",
            Self::FastOpenFallback => "fast_open_fallback",
        }
    }

    /// Whether somebody should look at it.
    #[must_use]
    pub fn is_trouble(self) -> bool {
        match self {
            Self::AcceptQueueFull
            | Self::StandingQueue
            | Self::DroppedOtherwise
            | Self::HalfOpenPressure
            | Self::ConntrackFull => true,
            Self::Burst | Self::ConntrackUnknown | Self::FastOpenFallback => false,
        }
    }

    /// What helps, if anything does.
    #[must_use]
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::AcceptQueueFull => {
                Some("governorctl listeners shows whose; give listen() a longer backlog or accept faster")
            }
            Self::StandingQueue => Some(
                "governorctl listeners shows which process should accept; a longer backlog only stores what nobody takes",
            ),
            Self::DroppedOtherwise => Some("nstat -az and dropwatch show why; a longer backlog does not help"),
            Self::HalfOpenPressure => Some("keep net.ipv4.tcp_syncookies=1; a longer backlog does not help"),
            Self::ConntrackFull => Some("raise net.netfilter.nf_conntrack_max, or exempt this traffic from tracking"),
            Self::Burst | Self::ConntrackUnknown | Self::FastOpenFallback => None,
        }
    }
}

/// Health of the plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Ring-buffer events lost, counted in the kernel.
    pub lost_events: u64,
    /// Sockets or listeners that no map entry could be made for.
    pub untracked: u64,
    /// Absolute difference repaired by audits since start; must stay 0.
    pub drift: u64,
    /// Audits completed.
    pub audits: u64,
    /// Audits that failed or were interrupted (never read as "no sockets").
    pub audits_failed: u64,
}

/// What a hook is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A socket begins to listen.
    Listen,
    /// A connection enters an accept queue.
    Enqueue,
    /// A task takes one out.
    Accept,
    /// A connection or listener closes.
    Close,
    /// A SYN is refused because the queue is full.
    OverflowSyn,
    /// The last packet of a handshake is refused because the queue is full.
    OverflowAck,
    /// Connections are counted per cgroup.
    Connections,
    /// Sockets are visited: those that existed before are counted, and counts are held against what is open.
    Scan,
    /// The oldest connection in each accept queue is looked for.
    QueueAge,
    /// Depth and backlog as the kernel holds them now.
    Table,
}

impl HookEvent {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Enqueue => "enqueue",
            Self::Accept => "accept",
            Self::Close => "close",
            Self::OverflowSyn => "overflow_syn",
            Self::OverflowAck => "overflow_ack",
            Self::Connections => "connections",
            Self::Scan => "scan",
            Self::QueueAge => "queue_age",
            Self::Table => "table",
        }
    }
}

/// How one event is observed, or a program of somebody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookView {
    /// What it is for; `None` for a program of somebody else.
    pub event: Option<HookEvent>,
    /// The same in words.
    pub purpose: String,
    /// Kernel name of what fires, e.g. `tp_btf/sk_data_ready`; of the first candidate where nothing does.
    pub hook: String,
    /// Attached and counted in the self-test.
    pub active: bool,
    /// Why not, or what is lost.
    pub note: String,
    /// Everything that was tried, best first, down to the one that fires.
    pub candidates: Vec<HookCandidate>,
    /// What is not known without it.
    pub lost_without: String,
}

impl HookView {
    /// The tier of the candidate that fires; `None` when none does, and for a program of somebody else.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        self.candidates.iter().find(|candidate| candidate.fires).map(|candidate| candidate.tier)
    }
}

/// One way to observe an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCandidate {
    /// Kernel names, e.g. `fentry/__inet_accept`.
    pub hook: String,
    /// The tier that it belongs to.
    pub tier: Tier,
    /// It is attached and counted in the self-test.
    pub fires: bool,
    /// Why it does not; empty if it does.
    pub reason: String,
}
