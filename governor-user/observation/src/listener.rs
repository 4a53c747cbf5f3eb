//! Listeners and their accept queues: one socket, the sockets of one place, and what became of those that closed.

use super::Tier;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

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
    /// Of those, connections that their client had closed or reset by then: work without a client. Those of Multipath
    /// TCP are not looked at. `None` where accepts are not seen as they happen.
    #[serde(default)]
    pub abandoned_total: Option<u64>,
    /// Packets refused because the queue was full, since it was first seen: attempts and not clients, because each
    /// retry counts. `None` where something was dropped for an unknown reason; never 0 then.
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
    /// Inode number behind its descriptors; `None` where the table does not say, and for a socket that no process
    /// holds.
    #[serde(default)]
    pub inode: Option<u64>,
    /// Processes that hold it, where they can be read.
    pub pids: Vec<u32>,
    /// Tier this row comes from.
    pub tier: Tier,
    /// How long ago the kernel was asked for it: at most the time between two looks at its namespace, and a second more
    /// while its source fails. Then it comes from the next source, or is not listed.
    #[serde(default)]
    pub age_seconds: f64,
}

/// Which listener, in records and messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerName {
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Socket cookie.
    pub cookie: u64,
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
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
    /// Whether the accept queue is full; `None` where the backlog is unknown. The kernel refuses when depth > backlog,
    /// so a queue holds backlog + 1.
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

impl ListenerView {
    /// An empty IPv4 listener of namespace 1 at this port of the loopback address, of which nothing else is known.
    #[must_use]
    pub fn bare(port: u16) -> Self {
        Self {
            cookie: None,
            netns: 1,
            protocol: Protocol::Tcp,
            family: Family::Ipv4,
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            port,
            backlog: None,
            depth: 0,
            abandoned: None,
            depth_peak: None,
            enqueued_total: None,
            accepted_total: None,
            abandoned_total: None,
            overflows_total: None,
            overflows_since_seconds: None,
            overflow_syn_total: None,
            overflow_ack_total: None,
            oldest_queued_seconds: None,
            sojourn: None,
            drops_total: None,
            inode: None,
            owner_cgroup: None,
            pids: Vec::new(),
            tier: Tier::Procfs,
            age_seconds: 0.0,
        }
    }
}
