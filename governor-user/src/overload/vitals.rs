//! How the machine and the proxies' processes fare at one moment. Plain data; what cannot be read is `None` or absent, and
//! presses nothing.

use super::evidence::Descriptors;
use std::collections::BTreeMap;

/// Everything that is read of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Share of the last 10 s, in ‰, in which some task waited for a CPU: of the proxies' cgroup that fares worst, or of the
    /// whole machine.
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
    /// Bytes it uses and could not give back at once: without page cache that nobody uses.
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
