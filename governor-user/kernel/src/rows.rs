//! Listeners as the sources show them: identity and row of a table, and what outlives the daemon beside the counts.

use governor_observation::Protocol;
use std::net::IpAddr;

/// Identity of a listener: its cookie, or its inode where there is no cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Id {
    Cookie(u64),
    Inode(u64),
}

/// One listening socket as a table shows it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: Id,
    pub(crate) inode: u64,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) depth: u32,
    pub(crate) backlog: Option<u32>,
    /// Discards since the socket exists; wraps at 2³².
    pub(crate) drops: Option<u32>,
    pub(crate) cgroup: Option<u64>,
    pub(crate) protocol: Protocol,
    /// Queued connections whose client is gone.
    pub(crate) abandoned: Option<u32>,
    /// `CLOCK_MONOTONIC` nanoseconds when the connection that has waited longest came; `None` when nothing waits or it
    /// is not known.
    pub(crate) oldest_ns: Option<u64>,
}

/// What is known of a listener older than the programs from when it was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// What to add to the programs' count of enqueues, so that what was queued then has entered the queue.
    pub(crate) base: i64,
    /// Its discards then.
    pub(crate) drops: Option<u32>,
}
