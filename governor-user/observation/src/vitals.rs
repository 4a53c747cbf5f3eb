//! How the machine and the proxies' processes fare at one moment. Plain data; what cannot be read is `None` or absent,
//! and raises no pressure.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that is read of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Share of the last 10 s, in ‰, in which some task waited for a CPU: of the proxies' cgroup that fares worst, or
    /// of the whole machine.
    pub cpu: Option<u16>,
    /// The same for memory.
    pub memory: Option<u16>,
    /// Of the proxies' cgroups and those above them, the one closest to its limit of memory.
    pub cgroup_memory: Option<CgroupMemory>,
    /// Descriptors of proxies and of processes in front of whom connections wait, by process.
    pub descriptors: BTreeMap<u32, Descriptors>,
}

/// Memory of one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMemory {
    /// Path below the v2 root.
    pub path: String,
    /// Bytes it uses and could not give back at once: without unused page cache.
    pub used: u64,
    /// Bytes at most.
    pub limit: u64,
}

impl CgroupMemory {
    /// Use in ‰ of the limit.
    #[must_use]
    pub fn permille(&self) -> u64 {
        let share = u128::from(self.used) * 1000 / u128::from(self.limit.max(1));
        u64::try_from(share.min(1000)).unwrap_or(1000)
    }
}

/// Descriptors of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors {
    /// The process.
    pub pid: u32,
    /// Open now.
    pub open: u64,
    /// Its soft `RLIMIT_NOFILE`; at it, accept fails.
    pub limit: u64,
}

impl Descriptors {
    /// None is left.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.open >= self.limit
    }

    /// Use in ‰ of the limit.
    #[must_use]
    pub fn permille(&self) -> u64 {
        (self.open.saturating_mul(1000) / self.limit.max(1)).min(1000)
    }
}
