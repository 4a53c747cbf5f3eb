//! When the level rises: ranges of the monitors, ports, ceilings of cgroups. The configuration fills them in.

use std::time::Duration;

/// When the level rises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverloadConfig {
    /// Ports to watch; empty: those of connected proxies.
    pub ports: Vec<u16>,
    /// Causes that raise no pressure, as bits.
    pub ignored: u32,
    /// How long pressure must last.
    pub hold: Duration,
    /// How far below its entry a level is left, in ‰.
    pub hysteresis: u16,
    /// The range of each monitor.
    pub ranges: Ranges,
}

/// The range of each monitor: no pressure at the first value, 1000 ‰ at the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// Fill of an accept queue, in ‰.
    pub accept_fill: (u32, u32),
    /// The least that any connection waits in a standing queue, in microseconds.
    pub accept_sojourn: (u32, u32),
    /// Attempts refused per second.
    pub accept_overflow: (u32, u32),
    /// How long nothing was accepted, in microseconds.
    pub acceptor_stalled: (u32, u32),
    /// Connections of a cgroup, in ‰ of its ceiling.
    pub connections: (u32, u32),
    /// Counted requests, in ‰ of the node's cap.
    pub node_in_flight: (u32, u32),
    /// Requests in flight and parked, in ‰ of a pool's capacity.
    pub pool_use: (u32, u32),
    /// Descriptors of a proxy, in ‰ of its limit.
    pub descriptors: (u32, u32),
    /// Share of time in which some task waited for a CPU, in ‰.
    pub cpu_pressure: (u32, u32),
    /// The same for memory.
    pub memory_pressure: (u32, u32),
    /// Memory of a proxy's cgroup, in ‰ of its limit.
    pub cgroup_memory: (u32, u32),
}

impl Default for OverloadConfig {
    /// The built-in values.
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            ignored: 0,
            hold: Duration::from_secs(2),
            hysteresis: 100,
            ranges: Ranges {
                accept_fill: (500, 1000),
                accept_sojourn: (5_000, 500_000),
                accept_overflow: (0, 10),
                acceptor_stalled: (1_000_000, 5_000_000),
                connections: (700, 1000),
                node_in_flight: (800, 1000),
                pool_use: (1000, 2000),
                descriptors: (850, 980),
                cpu_pressure: (700, 950),
                memory_pressure: (100, 500),
                cgroup_memory: (850, 980),
            },
        }
    }
}

/// Ceiling of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupCeiling {
    /// Path below the v2 root.
    pub path: String,
    /// Open connections at most.
    pub max_connections: u32,
}
