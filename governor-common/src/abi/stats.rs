//! Health of the programs themselves.

use bytemuck::{Pod, Zeroable};

/// The only entry of the statistics map. Every field only rises.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GlobalStats {
    /// Events that found the ring buffer full.
    pub lost_events: u64,
    /// Times a listener got no map entry; one that stays untracked counts again at each of its enqueues.
    pub untracked_listeners: u64,
    /// Connections that got no mark or no cgroup entry, and so are in no count.
    pub untracked_connections: u64,
    /// Connections that a scan found open and uncounted, and counted.
    pub seeded: u64,
    /// Times a peak was not raised because other CPUs kept raising it: it may read too low by the connections that
    /// entered in those nanoseconds.
    pub contended: u64,
    /// Listeners that closed and handed their queue on.
    pub handed_on: u64,
}

super::plain!(GlobalStats, 48);
