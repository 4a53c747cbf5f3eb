//! Settings of the programs that the daemon changes while they run. Everything known before they load is in `.rodata`
//! instead.

use bytemuck::{Pod, Zeroable};

/// The only entry of the control map; written by the daemon, read by the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Control {
    /// Not 0: accepts are seen here, so an inbound connection counts from its accept and under the cgroup of the task
    /// that accepted. 0: from its establishment and under the owner's.
    pub counts_at_accept: u64,
    /// Number of the interval that waits are collected for; see [`super::Longest`].
    pub interval: u64,
}

super::plain!(Control, 16);
