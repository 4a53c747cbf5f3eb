//! Open connections per cgroup, and the mark on each socket that is counted.

use bytemuck::{Pod, Zeroable};

/// Cgroups the map holds; a connection of one more is counted as untracked.
pub const MAX_CGROUPS: u32 = 8_192;

/// Value of the cgroup map; the key is the cgroup-v2 id, u64. Four counters that only rise: a reader that sees them
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

/// Socket storage of a counted connection. The cgroup under which it was counted is the one under which its close is
/// counted, whatever became of the process since.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Marker {
    /// cgroup-v2 id.
    pub cgroup: u64,
    /// A [`Direction`].
    pub direction: u32,
    /// 1 once it is in the cgroup's counters; 0 for a connection whose direction is known before it is established.
    pub counted: u32,
}

super::plain!(CgroupState, 32);
super::plain!(Marker, 16);
