//! Map values as the programs see them while several CPUs work on one: the structs of governor-common with every
//! field that changes as an atomic cell. Assertions prove that the layouts agree.

use crate::state::atomic::Cell;
use core::mem::offset_of;
use governor_common::abi::{BUCKETS, CgroupState, GlobalStats, ListenPort, ListenerState, Marker, QuickMark, Sojourn};

/// A value of the listener map.
#[repr(C)]
pub(crate) struct ListenerCell {
    opened_ns: u64,
    pub(crate) closed_ns: Cell<u64>,
    pub(crate) enqueued: Cell<u64>,
    pub(crate) moved: Cell<u64>,
    pub(crate) accepted: Cell<u64>,
    pub(crate) abandoned: Cell<u64>,
    pub(crate) overflow_syn: Cell<u64>,
    pub(crate) overflow_ack: Cell<u64>,
    pub(crate) lost: Cell<u64>,
    pub(crate) handed_on: Cell<u64>,
    pub(crate) head_ns: Cell<u64>,
    owner_cgroup: u64,
    pub(crate) peak: Cell<u64>,
    pub(crate) backlog: Cell<u64>,
    address: [u8; 16],
    netns: u32,
    pub(crate) depth: Cell<u32>,
    port: u16,
    family: u16,
    pub(crate) reopened: u32,
}

impl ListenerCell {
    /// Whether the entry was made when the socket began to listen, and not when it was first seen.
    #[inline(always)]
    pub(crate) fn was_opened(&self) -> bool {
        self.opened_ns != 0
    }

    /// Where it listens; the socket itself forgets a port that the kernel chose before its end is reported.
    #[inline(always)]
    pub(crate) fn listen_port(&self) -> ListenPort {
        ListenPort { netns: self.netns, port: u32::from(self.port) }
    }

    /// The value now; fields that other CPUs write may be of different moments.
    #[inline(always)]
    pub(crate) fn snapshot(&self) -> ListenerState {
        ListenerState {
            opened_ns: self.opened_ns,
            closed_ns: self.closed_ns.load(),
            enqueued: self.enqueued.load(),
            moved: self.moved.load(),
            accepted: self.accepted.load(),
            abandoned: self.abandoned.load(),
            overflow_syn: self.overflow_syn.load(),
            overflow_ack: self.overflow_ack.load(),
            lost: self.lost.load(),
            handed_on: self.handed_on.load(),
            head_ns: self.head_ns.load(),
            owner_cgroup: self.owner_cgroup,
            address: self.address,
            netns: self.netns,
            depth: self.depth.load(),
            peak: self.peak.load(),
            backlog: self.backlog.load(),
            port: self.port,
            family: self.family,
            reopened: self.reopened,
        }
    }
}

/// A value of the cgroup map.
#[repr(C)]
pub(crate) struct CgroupCell {
    pub(crate) inbound_opened: Cell<u64>,
    pub(crate) inbound_closed: Cell<u64>,
    pub(crate) outbound_opened: Cell<u64>,
    pub(crate) outbound_closed: Cell<u64>,
}

/// The value of the statistics map.
#[repr(C)]
pub(crate) struct StatsCell {
    pub(crate) lost_events: Cell<u64>,
    pub(crate) untracked_listeners: Cell<u64>,
    pub(crate) untracked_connections: Cell<u64>,
    pub(crate) seeded: Cell<u64>,
    pub(crate) contended: Cell<u64>,
    pub(crate) handed_on: Cell<u64>,
}

/// The mark on a socket; written under the socket's lock only, but cells all the same, so that no pointer is needed.
#[repr(C)]
pub(crate) struct MarkerCell {
    pub(crate) cgroup: Cell<u64>,
    pub(crate) enqueued_ns: Cell<u64>,
    pub(crate) listener: Cell<u64>,
    pub(crate) counted: Cell<u64>,
    pub(crate) direction: Cell<u32>,
    pub(crate) stage: Cell<u32>,
}

/// A place in the table of quick marks.
#[repr(C)]
pub(crate) struct QuickCell {
    pub(crate) cookie: Cell<u64>,
    pub(crate) cgroup: Cell<u64>,
    pub(crate) enqueued_ns: Cell<u64>,
    pub(crate) direction: Cell<u32>,
    _pad: u32,
}

/// A value of the sojourn map.
#[repr(C)]
pub(crate) struct SojournCell {
    pub(crate) buckets: [Cell<u64>; BUCKETS],
    pub(crate) sum_ns: Cell<u64>,
    pub(crate) longest: [Cell<u64>; 2],
}

/// Asserts that a cell and the struct it stands for have the same size and put the named fields at the same places.
macro_rules! same_layout {
    ($cell:ty, $state:ty: $($field:ident),*) => {
        const _: () = assert!(size_of::<$cell>() == size_of::<$state>() && align_of::<$cell>() == align_of::<$state>());
        $(const _: () = assert!(offset_of!($cell, $field) == offset_of!($state, $field));)*
    };
}

same_layout!(ListenerCell, ListenerState:
    opened_ns, closed_ns, enqueued, moved, accepted, abandoned, overflow_syn, overflow_ack, lost, handed_on, head_ns, owner_cgroup, address, netns, depth, peak, backlog, port, family, reopened);
same_layout!(CgroupCell, CgroupState: inbound_opened, inbound_closed, outbound_opened, outbound_closed);
same_layout!(StatsCell, GlobalStats: lost_events, untracked_listeners, untracked_connections, seeded, contended, handed_on);
same_layout!(MarkerCell, Marker: cgroup, enqueued_ns, listener, counted, direction, stage);
same_layout!(QuickCell, QuickMark: cookie, cgroup, enqueued_ns, direction);
same_layout!(SojournCell, Sojourn: buckets, sum_ns, longest);
