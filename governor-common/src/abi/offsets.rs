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
    /// Not 0: the accept queue can be walked over; the next five are valid.
    pub has_queue: u32,
    /// `inet_connection_sock.icsk_accept_queue.rskq_accept_head`, pointer to the first `request_sock`.
    pub queue_head: u32,
    /// `inet_connection_sock.icsk_accept_queue.rskq_accept_tail`, pointer to the last one.
    pub queue_tail: u32,
    /// `inet_connection_sock.icsk_accept_queue.qlen`, u32, the half-open connections.
    pub queue_half_open: u32,
    /// `request_sock.sk`, pointer to the connection that the request became.
    pub request_child: u32,
    /// `request_sock.dl_next`, pointer to the next request.
    pub request_next: u32,
    /// Not 0: connections of a closing listener can move to another of its group; the next three are valid.
    pub has_migration: u32,
    /// `net.ipv4.sysctl_tcp_migrate_req`, u8.
    pub net_migrate: u32,
    /// `sock.sk_reuseport_cb`, pointer to `sock_reuseport`; null for a socket in no group.
    pub sock_group: u32,
    /// `sock_reuseport.num_socks`, u16, the members that listen.
    pub group_members: u32,
    /// `net.ipv4.sysctl_tcp_syncookies`, u8 or the low byte of an int.
    pub net_cookies: u32,
    /// `SKB_DROP_REASON_TCP_LISTEN_OVERFLOW` of this kernel.
    pub reason_overflow: u32,
    /// `SKB_DROP_REASON_NO_SOCKET` of this kernel.
    pub reason_no_socket: u32,
    /// `sock.sk_socket`, pointer to `socket`; null while no process holds the socket.
    pub sock_socket: u32,
    /// `sock.__sk_common.skc_cookie`, u64, 0 until the first request for it.
    pub sock_cookie: u32,
    /// `socket.sk`, pointer to `sock`.
    pub socket_sock: u32,
    /// `sk_buff.protocol`, u16 in network order.
    pub packet_protocol: u32,
    /// Not 0: this kernel has Multipath TCP; the next two are valid.
    pub has_mptcp: u32,
    /// `tcp_sock.is_mptcp`, u8, not 0 for a subflow.
    pub tcp_is_subflow: u32,
    /// `mptcp_sock.first`, pointer to the `sock` of the first subflow.
    pub mptcp_first: u32,
    /// Not 0: the next one is valid.
    pub has_storage: u32,
    /// `sock.sk_bpf_storage`, pointer to the socket's storage in all maps; null while there is none.
    pub sock_storage: u32,
}

super::plain!(Offsets, 148);
