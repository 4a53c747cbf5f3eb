//! `tp_btf/kfree_skb(skb, location, reason, rx_sk)`: handshakes refused at their last packet, by the reason that the
//! kernel gives for dropping it. The tracepoint fires for every packet that the host drops, so all but two reasons leave
//! at once.

use crate::kernel::offsets::offset;
use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::maps;
use crate::state::overflow;
use aya_ebpf::programs::BtfTracePointContext;
use core::ffi::c_void;
use governor_ebpf::transition::state;

/// Counts a refusal and leaves word for the twin.
#[inline(always)]
pub(crate) fn handle(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(sk) = refused_by(ctx) else { return Ok(()) };
    maps::leave_discard_word(ctx.arg(0));
    overflow::ack(sk, sk.cookie())
}

/// Counts a refusal for which the first program left no word on this CPU: it was interrupted and did not run. Packets
/// reach a listener with softirqs off, so between the word and this nothing else can be refused here.
#[inline(always)]
pub(crate) fn handle_missed(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(sk) = refused_by(ctx) else { return Ok(()) };
    if maps::take_discard_word() == ctx.arg::<u64>(0) {
        return Ok(());
    }
    overflow::ack(sk, sk.cookie())
}

/// The listener whose queue was full for this packet.
#[inline(always)]
fn refused_by(ctx: &BtfTracePointContext) -> Option<Sock> {
    let reason = ctx.arg::<u32>(2) as usize;
    // A handshake by SYN cookie is refused in the kernel's words by "no socket", and by the listener.
    if reason != offset!(reason_overflow) && reason != offset!(reason_no_socket) {
        return None;
    }
    let sk = ctx.arg::<*const c_void>(3);
    if sk.is_null() {
        return None;
    }
    // SAFETY: the tracepoint's fourth argument is a `struct sock *`, and it is not null.
    let sk = unsafe { Sock::new(sk) };
    (sk.state() == state::LISTEN && sk.is_tcp()).then_some(sk)
}
