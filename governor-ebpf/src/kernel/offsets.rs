//! Where this kernel keeps the fields: written by the loader, frozen before the programs load.

use governor_common::abi::Offsets;

/// Overwritten by the loader.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets {
    sock_family: 0,
    sock_state: 0,
    sock_port: 0,
    sock_address4: 0,
    sock_address6: 0,
    sock_net: 0,
    sock_protocol: 0,
    sock_depth: 0,
    sock_backlog: 0,
    sock_cgroup: 0,
    cgroup_node: 0,
    node_id: 0,
    net_inode: 0,
    has_cgroups: 0,
    has_ipv6: 0,
    has_queue: 0,
    queue_head: 0,
    queue_tail: 0,
    queue_half_open: 0,
    request_child: 0,
    request_next: 0,
    has_migration: 0,
    net_migrate: 0,
    sock_group: 0,
    group_members: 0,
    net_cookies: 0,
    reason_overflow: 0,
    reason_no_socket: 0,
    sock_socket: 0,
    sock_cookie: 0,
    socket_sock: 0,
    packet_protocol: 0,
    has_mptcp: 0,
    tcp_is_subflow: 0,
    mptcp_first: 0,
    has_storage: 0,
    sock_storage: 0,
};

/// Reads one offset. Volatile, or the compiler would take the zeros above for the values; the verifier still sees
/// constants, because the section is frozen.
macro_rules! offset {
    ($field:ident) => {
        $crate::kernel::offsets::load(|offsets| &raw const offsets.$field)
    };
}
pub(crate) use offset;

#[inline(always)]
pub(crate) fn load(field: impl FnOnce(&'static Offsets) -> *const u32) -> usize {
    // SAFETY: the pointer comes from a reference to a static.
    let offset = unsafe { field(&OFFSETS).read_volatile() };
    offset as usize
}

/// Whether connections can be counted per cgroup here.
#[inline(always)]
pub(crate) fn has_cgroups() -> bool {
    offset!(has_cgroups) != 0
}

/// Whether there is Multipath TCP here.
#[inline(always)]
pub(crate) fn has_mptcp() -> bool {
    offset!(has_mptcp) != 0
}

/// Whether sockets have an IPv6 address here.
#[inline(always)]
pub(crate) fn has_ipv6() -> bool {
    offset!(has_ipv6) != 0
}

/// Whether accept queues can be walked over here.
#[inline(always)]
pub(crate) fn has_queue() -> bool {
    offset!(has_queue) != 0
}

/// Whether a closing listener's queue can move to another listener here.
#[inline(always)]
pub(crate) fn has_migration() -> bool {
    offset!(has_migration) != 0
}
