//! Where the fields are that the programs read, in the running kernel.

use bytemuck::{Pod, Zeroable};

/// Byte offsets, resolved from the running kernel's BTF by the loader and frozen into `.rodata` before the programs
/// load, so that the verifier sees constants. The two flags cut out what this kernel cannot give.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Offsets {
    /// `sock.__sk_common.skc_family`, u16.
    pub sock_family: u32,
    /// `sock.__sk_common.skc_state`, u8.
    pub sock_state: u32,
    /// `sock.__sk_common.skc_num`, u16, the local port in host order.
    pub sock_port: u32,
    /// `sock.__sk_common.skc_rcv_saddr`, 4 bytes in network order.
    pub sock_address4: u32,
    /// `sock.__sk_common.skc_v6_rcv_saddr`, 16 bytes in network order; valid if `has_ipv6` is not 0.
    pub sock_address6: u32,
    /// `sock.__sk_common.skc_net.net`, pointer to `net`.
    pub sock_net: u32,
    /// `sock.sk_protocol`, u16.
    pub sock_protocol: u32,
    /// `sock.sk_ack_backlog`, u32, the depth of the accept queue.
    pub sock_depth: u32,
    /// `sock.sk_max_ack_backlog`, u32, the backlog.
    pub sock_backlog: u32,
    /// `sock.sk_cgrp_data.cgroup`, pointer to `cgroup`; valid if `has_cgroups` is not 0.
    pub sock_cgroup: u32,
    /// `cgroup.kn`, pointer to `kernfs_node`.
    pub cgroup_node: u32,
    /// `kernfs_node.id`, u64.
    pub node_id: u32,
    /// `net.ns.inum`, u32.
    pub net_inode: u32,
    /// Not 0: connections are counted per cgroup.
    pub has_cgroups: u32,
    /// Not 0: sockets have an IPv6 address.
    pub has_ipv6: u32,
}

super::plain!(Offsets, 60);
