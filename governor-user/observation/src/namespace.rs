//! Network namespaces: what the kernel counts once for each, and what its counters mean.

use serde::{Deserialize, Serialize};

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
    /// The same of the last 10 s.
    #[serde(default)]
    pub recent: NamespaceCounters,
    /// Its connection-tracking table.
    pub conntrack: Conntrack,
    /// What the counters of the last 10 s mean; advice only.
    pub findings: Vec<Finding>,
}

/// What the kernel counts once for a whole namespace. `None`: not known.
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

/// What half-open attempts do to a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HalfOpen {
    /// No table of them was full.
    #[default]
    Quiet,
    /// One was full, and most of those that got a cookie came back with it: clients.
    Burst,
    /// One was full of attempts that do not complete; cookies let real clients in.
    Pressure,
    /// The same without cookies: real clients are turned away.
    Critical,
}

impl NamespaceCounters {
    /// Half-open attempts wait in a table of their own and never in the accept queue. Whether they are a burst of
    /// clients or a flood shows in how many of them become connections.
    #[must_use]
    pub fn half_open(&self) -> HalfOpen {
        let sent = self.syncookies_sent.unwrap_or(0);
        let received = self.syncookies_received.unwrap_or(0);
        if self.request_queue_full_drops.unwrap_or(0) > 0 {
            HalfOpen::Critical
        } else if sent == 0 && self.request_queue_full_cookies.unwrap_or(0) == 0 {
            HalfOpen::Quiet
        } else if sent > 0 && received >= sent.div_ceil(2) {
            HalfOpen::Burst
        } else {
            HalfOpen::Pressure
        }
    }
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

    /// Whether an operator should look at it.
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
