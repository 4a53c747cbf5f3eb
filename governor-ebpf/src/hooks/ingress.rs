//! `cgroup_skb/ingress` at the root of the v2 hierarchy: SYNs refused because the accept queue was full, which the kernel
//! drops without saying why. It sees each packet that a socket receives right before the socket does, so the daemon
//! attaches it only while a queue is nearly full or packets are being refused; all that is not for a full listener leaves
//! after a few loads. It lets every packet pass.
//!
//! The kernel decides a moment later by the same fields. An accept in that moment makes room for a SYN that is counted
//! here as refused.

use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::overflow;
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_socket_cookie, bpf_skb_load_bytes, bpf_skc_to_tcp_sock};
use aya_ebpf::programs::SkBuffContext;
use governor_ebpf::packet;
use governor_ebpf::transition::state;

#[inline(always)]
pub(crate) fn handle(ctx: &SkBuffContext) -> Result<(), Error> {
    // SAFETY: the context of this kind of program, whose socket may be null.
    let sk = unsafe { (*ctx.skb.skb).__bindgen_anon_2.sk };
    if sk.is_null() {
        return Ok(());
    }
    // SAFETY: just checked.
    let socket_state = unsafe { (&raw const (*sk).state).read_volatile() };
    if socket_state != state::LISTEN.unsigned_abs() {
        return Ok(());
    }
    // SAFETY: the helper takes any socket; it gives null for what is not TCP's.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast()) };
    if tcp.is_null() {
        return Ok(());
    }
    // SAFETY: just checked.
    let listener = unsafe { Sock::new(tcp.cast_const().cast()) };
    if !overflow::is_full(listener)
        || !packet::asks_to_connect(|at| byte(ctx, at))
        || overflow::is_half_open_full(listener)
    {
        return Ok(());
    }
    // SAFETY: takes the context and reads the socket in it.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.as_ptr()) };
    overflow::syn(listener, cookie)
}

/// One byte of the packet, from the network header on.
#[inline(always)]
fn byte(ctx: &SkBuffContext, at: u32) -> Option<u8> {
    let mut byte = 0_u8;
    // SAFETY: the destination is on the stack and has the length given.
    let failed = unsafe { bpf_skb_load_bytes(ctx.as_ptr(), at, (&raw mut byte).cast(), 1) };
    if failed == 0 { Some(byte) } else { None }
}
