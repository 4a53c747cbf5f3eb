//! Open connections per cgroup, and the marks of the sockets that are counted.

use bytemuck::{Pod, Zeroable};

/// Entries the map of cgroups holds; a connection of one more is counted as untracked.
pub const MAX_CGROUPS: u32 = 16_384;

/// Key of the cgroup map. A cgroup's connections are counted for each network namespace apart, because what is open can
/// be looked up for one namespace at a time, and not for one that is being torn down.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct CgroupKey {
    /// cgroup-v2 id.
    pub cgroup: u64,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Always 0.
    pub _pad: u32,
}

impl CgroupKey {
    /// Of this cgroup and namespace.
    #[must_use]
    pub const fn new(cgroup: u64, netns: u32) -> Self {
        Self { cgroup, netns, _pad: 0 }
    }
}

/// Value of the cgroup map. Four counters that only rise: a reader that sees them
/// unchanged knows that nothing opened or closed in between, which a gauge could not tell.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CgroupState {
    /// Inbound connections counted.
    pub inbound_opened: u64,
    /// Inbound connections closed again.
    pub inbound_closed: u64,
    /// Outbound connections counted.
    pub outbound_opened: u64,
    /// Outbound connections closed again.
    pub outbound_closed: u64,
}

impl CgroupState {
    /// Inbound connections open now.
    #[must_use]
    pub const fn inbound(&self) -> u64 {
        self.inbound_opened.saturating_sub(self.inbound_closed)
    }

    /// Outbound connections open now.
    #[must_use]
    pub const fn outbound(&self) -> u64 {
        self.outbound_opened.saturating_sub(self.outbound_closed)
    }
}

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The other side: a listener's child.
    Inbound,
    /// This side, by `connect()`.
    Outbound,
}

impl Direction {
    /// The number it crosses as.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Inbound => 1,
            Self::Outbound => 2,
        }
    }

    /// Reads the number back.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Inbound),
            2 => Some(Self::Outbound),
            _ => None,
        }
    }
}

/// Where an inbound connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In the accept queue.
    Queued,
    /// A task has it.
    Accepted,
}

impl Stage {
    /// The number it crosses as; 0 stands for a stage that is not known.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Queued => 1,
            Self::Accepted => 2,
        }
    }
}

/// Socket storage of a connection. The cgroup under which it was counted is the one under which its close is counted,
/// whatever became of the process since.
///
/// Only connections without a [`QuickMark`] have one: those that count from their accept, and those that found no place.
/// With what the kernel adds (72 bytes, rounded up to 128, and 176 for the first storage of a socket, rounded up to 192)
/// such a connection takes 320 bytes of kernel memory, freed with the socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Marker {
    /// cgroup-v2 id: the owner's until it is counted, then the one that it is counted under.
    pub cgroup: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when it entered the accept queue; 0 when that was not seen.
    pub enqueued_ns: u64,
    /// Cookie of the listener in whose queue it is or was; 0 when that was not seen.
    pub listener: u64,
    /// 0 not counted, 1 in the cgroup's counters, 2 closed before it could be counted.
    pub counted: u64,
    /// A [`Direction`].
    pub direction: u32,
    /// A [`Stage`], or 0.
    pub stage: u32,
}

/// Places of the table of quick marks, unless the loader says otherwise; a power of two.
pub const QUICK_MARKS: u32 = 65_536;

/// A place in the table of quick marks: the mark of a connection of which only its own socket's events need to know. Its
/// socket's cookie, modulo the table's length, is the place; a connection whose place is taken gets a [`Marker`]. What has
/// a quick mark is counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct QuickMark {
    /// Cookie of the socket; 0 for a free place.
    pub cookie: u64,
    /// cgroup-v2 id that it is counted under.
    pub cgroup: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when it entered the accept queue; 0 when it did not or that was not seen.
    pub enqueued_ns: u64,
    /// A [`Direction`].
    pub direction: u32,
    /// Always 0.
    pub _pad: u32,
}

super::plain!(CgroupKey, 16);
super::plain!(QuickMark, 32);
super::plain!(CgroupState, 32);
super::plain!(Marker, 40);
