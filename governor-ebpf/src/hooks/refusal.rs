//! Where the kernel refuses a connection because the accept queue is full: the same test a moment earlier, by `fentry`, and by
//! kprobe for functions that have more arguments than the kernel's trampolines pass on. Softirqs are off, so nothing
//! interrupts and no hook here needs a twin.

use crate::kernel::offsets::offset;
use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::maps;
use crate::state::overflow;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_skc_to_tcp_sock};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;

/// `ETH_P_IP` in network order.
const IPV4: u16 = 0x0800_u16.to_be();

/// `tcp_conn_request(rsk_ops, af_ops, sk, skb)`: a SYN, of either family and of Multipath TCP.
#[inline(always)]
pub(crate) fn at_syn(sk: *const c_void) -> Result<(), Error> {
    // SAFETY: a `struct sock *`, never null.
    let sk = unsafe { Sock::new(sk) };
    if sk.is_tcp() && overflow::is_full(sk) && !is_refused_before(sk) { overflow::syn(sk, sk.cookie()) } else { Ok(()) }
}

/// Whether the kernel refuses it for too many half-open connections, which it looks at first and counts elsewhere.
#[inline(always)]
fn is_refused_before(sk: Sock) -> bool {
    // SAFETY: the helper takes any socket.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.as_ptr()) };
    if tcp.is_null() {
        return false;
    }
    // SAFETY: just checked.
    overflow::is_half_open_full(unsafe { Sock::new(tcp.cast_const().cast()) })
}

/// `tcp_v4_syn_recv_sock(sk, …)`: the last packet of a handshake, by SYN cookie too.
#[inline(always)]
pub(crate) fn at_ack(sk: *const c_void) -> Result<(), Error> {
    // SAFETY: a `struct sock *`, never null.
    let sk = unsafe { Sock::new(sk) };
    if sk.is_tcp() && overflow::is_full(sk) { overflow::ack(sk, sk.cookie()) } else { Ok(()) }
}

/// `tcp_v6_syn_recv_sock(sk, skb, …)`: an IPv4 packet for a dual-stack listener goes on to the function for IPv4.
#[inline(always)]
pub(crate) fn at_ack_v6(sk: *const c_void, packet: *const c_void) -> Result<(), Error> {
    // SAFETY: a `struct sk_buff *`, never null, and the offset is this kernel's.
    let protocol = unsafe { packet.byte_add(offset!(packet_protocol)).cast::<u16>().read_volatile() };
    if protocol == IPV4 { Ok(()) } else { at_ack(sk) }
}

/// `tcp_v4_syn_recv_sock` by kprobe: the verifier knows none of the pointers, so that everything is read through a helper,
/// and a listener that has no entry yet cannot get one here.
#[inline(always)]
pub(crate) fn at_ack_probed(ctx: &ProbeContext) -> Result<(), Error> {
    let Some(sk) = ctx.arg::<*const u8>(0) else { return Ok(()) };
    let depth: Option<u32> = probe(sk, offset!(sock_depth));
    let backlog: Option<u32> = probe(sk, offset!(sock_backlog));
    let (Some(depth), Some(backlog)) = (depth, backlog) else { return Ok(()) };
    if depth <= backlog {
        return Ok(());
    }
    let listener = probe(sk, offset!(sock_cookie)).and_then(maps::listener).ok_or(Error::ListenerUntracked)?;
    listener.overflow_ack.add(1);
    Ok(())
}

/// `tcp_v6_syn_recv_sock` by kprobe.
#[inline(always)]
pub(crate) fn at_ack_v6_probed(ctx: &ProbeContext) -> Result<(), Error> {
    let packet = ctx.arg::<*const u8>(1);
    let protocol: Option<u16> = packet.and_then(|packet| probe(packet, offset!(packet_protocol)));
    if protocol == Some(IPV4) { Ok(()) } else { at_ack_probed(ctx) }
}

#[inline(always)]
fn probe<T>(base: *const u8, offset: usize) -> Option<T> {
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset).cast()) }.ok()
}
