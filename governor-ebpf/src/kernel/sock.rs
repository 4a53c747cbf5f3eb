//! A kernel socket, read through the offsets of the running kernel.

use crate::kernel::offsets::{self, offset};
use aya_ebpf::helpers::{bpf_get_socket_cookie, bpf_probe_read_kernel, bpf_skc_to_tcp_sock};
use core::ffi::c_void;
use governor_common::abi::{AF_INET, AF_INET6};

/// `IPPROTO_MPTCP`.
const IPPROTO_MPTCP: u16 = 262;
/// `IPPROTO_TCP`. An MPTCP socket reports states of its own under another number and is left out; its subflows are TCP.
const IPPROTO_TCP: u16 = 6;

/// A socket the kernel handed to a program. Fields are read by plain loads: the verifier knows the pointer's type, and
/// a bad pointer behind it reads as 0 instead of faulting.
#[derive(Clone, Copy)]
pub(crate) struct Sock(*const u8);

impl Sock {
    /// Wraps a `struct sock` pointer.
    ///
    /// # Safety
    /// It must be a pointer that the verifier knows as a socket and that is not null.
    #[inline(always)]
    pub(crate) const unsafe fn new(sk: *const c_void) -> Self {
        Self(sk.cast())
    }

    /// The `struct sock` of a `struct socket`.
    ///
    /// # Safety
    /// It must be a pointer that the verifier knows as a `struct socket` and that has a sock.
    #[inline(always)]
    pub(crate) unsafe fn of_socket(socket: *const c_void) -> Self {
        Self(Self(socket.cast()).read(offset!(socket_sock)))
    }

    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0.cast_mut().cast()
    }

    #[inline(always)]
    fn read<T: Copy>(self, offset: usize) -> T {
        // SAFETY: `new` asked for a socket, and the offset is this kernel's for a field of T's size.
        unsafe { self.0.add(offset).cast::<T>().read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn is_tcp(self) -> bool {
        self.read::<u16>(offset!(sock_protocol)) == IPPROTO_TCP
    }

    /// A Multipath TCP socket as accept hands it over: not one of its subflows, which are TCP.
    #[inline(always)]
    pub(crate) fn is_mptcp(self) -> bool {
        self.read::<u16>(offset!(sock_protocol)) == IPPROTO_MPTCP
    }

    /// IPv4 or IPv6.
    #[inline(always)]
    pub(crate) fn is_internet(self) -> bool {
        let family = self.family();
        family == AF_INET || family == AF_INET6
    }

    /// Whether a TCP socket is a subflow of Multipath TCP.
    #[inline(always)]
    pub(crate) fn is_subflow(self) -> bool {
        if !offsets::has_mptcp() {
            return false;
        }
        // SAFETY: the helper takes any socket.
        let tcp = unsafe { bpf_skc_to_tcp_sock(self.as_ptr()) };
        !tcp.is_null() && Self(tcp.cast_const().cast()).read::<u8>(offset!(tcp_is_subflow)) != 0
    }

    /// Cookie of the first subflow of a Multipath TCP socket; 0 if it has none or it was not requested yet.
    #[inline(always)]
    pub(crate) fn first_subflow_cookie(self) -> u64 {
        if !offsets::has_mptcp() {
            return 0;
        }
        // SAFETY: the helper checks the address itself; the verifier knows the socket as a `struct sock`, which is
        // shorter.
        let first = unsafe { bpf_probe_read_kernel(self.0.add(offset!(mptcp_first)).cast::<*const u8>()) };
        let Ok(first) = first else { return 0 };
        // SAFETY: the helper checks the address itself.
        unsafe { bpf_probe_read_kernel(first.wrapping_add(offset!(sock_cookie)).cast()) }.unwrap_or(0)
    }

    /// Whether it has no socket storage of any map, as far as this kernel shows: then the helper need not be called.
    #[inline(always)]
    pub(crate) fn has_no_storage(self) -> bool {
        offset!(has_storage) != 0 && self.read::<*const u8>(offset!(sock_storage)).is_null()
    }

    /// Whether no process holds it: it is in an accept queue, or its last descriptor is closed.
    #[inline(always)]
    pub(crate) fn is_held_by_nobody(self) -> bool {
        self.read::<*const u8>(offset!(sock_socket)).is_null()
    }

    #[inline(always)]
    pub(crate) fn state(self) -> i32 {
        i32::from(self.read::<u8>(offset!(sock_state)))
    }

    #[inline(always)]
    pub(crate) fn family(self) -> u16 {
        self.read(offset!(sock_family))
    }

    /// Local port in host order.
    #[inline(always)]
    pub(crate) fn port(self) -> u16 {
        self.read(offset!(sock_port))
    }

    /// Connections in the accept queue; only a listener's own value means anything.
    #[inline(always)]
    pub(crate) fn depth(self) -> u32 {
        self.read(offset!(sock_depth))
    }

    #[inline(always)]
    pub(crate) fn backlog(self) -> u32 {
        self.read(offset!(sock_backlog))
    }

    /// Inode number of the socket's network namespace.
    #[inline(always)]
    pub(crate) fn netns(self) -> u32 {
        self.net().read(offset!(net_inode))
    }

    /// Half-open connections of a listener that the verifier knows as a `struct tcp_sock`.
    #[inline(always)]
    pub(crate) fn half_open(self) -> u32 {
        self.read(offset!(queue_half_open))
    }

    /// Whether the namespace answers a SYN by a cookie when there are too many half-open connections.
    #[inline(always)]
    pub(crate) fn sends_cookies(self) -> bool {
        self.net().read::<u8>(offset!(net_cookies)) != 0
    }

    /// Whether the queue of this listener, which has just left its group, moves to another one.
    #[inline(always)]
    pub(crate) fn hands_its_queue_on(self) -> bool {
        offsets::has_migration()
            && self.net().read::<u8>(offset!(net_migrate)) != 0
            && self.pointer(offset!(sock_group)).is_some_and(|group| group.read::<u16>(offset!(group_members)) != 0)
    }

    /// What a field points to, unless it is null.
    #[inline(always)]
    pub(crate) fn pointer(self, offset: usize) -> Option<Self> {
        let target = self.read::<*const u8>(offset);
        if target.is_null() { None } else { Some(Self(target)) }
    }

    /// As [`Self::pointer`], without a look: what is read behind a null pointer is 0, and no helper takes it for a
    /// socket.
    #[inline(always)]
    pub(crate) fn pointer_or_null(self, offset: usize) -> Self {
        Self(self.read(offset))
    }

    #[inline(always)]
    fn net(self) -> Self {
        Self(self.read(offset!(sock_net)))
    }

    /// Local address in network order.
    #[inline(always)]
    pub(crate) fn address(self) -> [u8; 16] {
        let mut address = [0; 16];
        if self.family() == AF_INET6 {
            if offsets::has_ipv6() {
                // SAFETY: the helper checks the address itself.
                address =
                    unsafe { bpf_probe_read_kernel(self.0.add(offset!(sock_address6)).cast()) }.unwrap_or(address);
            }
        } else {
            let [a, b, c, d] = self.read::<u32>(offset!(sock_address4)).to_ne_bytes();
            address[0] = a;
            address[1] = b;
            address[2] = c;
            address[3] = d;
        }
        address
    }

    /// cgroup-v2 id of the task that made the socket; a listener's child has its listener's. 0 when this kernel does
    /// not tell.
    #[inline(always)]
    pub(crate) fn cgroup(self) -> u64 {
        if !offsets::has_cgroups() {
            return 0;
        }
        let cgroup = Self(self.read(offset!(sock_cgroup)));
        let node = Self(cgroup.read(offset!(cgroup_node)));
        node.read(offset!(node_id))
    }

    /// The socket's cookie if it was requested before, else 0.
    #[inline(always)]
    pub(crate) fn known_cookie(self) -> u64 {
        self.read(offset!(sock_cookie))
    }

    /// The socket's cookie: its identity, never used twice.
    #[inline(always)]
    pub(crate) fn cookie(self) -> u64 {
        match self.known_cookie() {
            // SAFETY: the pointer is a socket.
            0 => unsafe { bpf_get_socket_cookie(self.as_ptr()) },
            known => known,
        }
    }
}
