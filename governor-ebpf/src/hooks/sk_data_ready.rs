//! `tp_btf/sk_data_ready`: a listener woken is an enqueue. The tracepoint fires for every socket of the machine that
//! gets data, so everything that is not a TCP listener leaves after two loads.

use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::listener;
use crate::state::maps;
use crate::state::queue;
use aya_ebpf::programs::BtfTracePointContext;
use core::ffi::c_void;
use governor_ebpf::transition::state;

/// Counts an enqueue and leaves word for the twin.
#[inline(always)]
pub(crate) fn handle(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(sk) = listener_of(ctx) else { return Ok(()) };
    let cookie = sk.cookie();
    maps::leave_word(cookie);
    count(sk, cookie)
}

/// Counts an enqueue for which the first program left no word on this CPU: it was interrupted and did not run. A
/// listener is woken with softirqs off, so between the word and this nothing else can be counted here.
#[inline(always)]
pub(crate) fn handle_missed(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(sk) = listener_of(ctx) else { return Ok(()) };
    let cookie = sk.cookie();
    if maps::take_word() == cookie {
        return Ok(());
    }
    count(sk, cookie)
}

/// The socket that is woken, if it is a TCP listener.
#[inline(always)]
fn listener_of(ctx: &BtfTracePointContext) -> Option<Sock> {
    // SAFETY: the tracepoint's only argument is a `struct sock *` and never null.
    let sk = unsafe { Sock::new(ctx.arg::<*const c_void>(0)) };
    // A Unix socket that listens has the same state number, so the protocol decides.
    (sk.state() == state::LISTEN && sk.is_tcp()).then_some(sk)
}

#[inline(always)]
fn count(sk: Sock, cookie: u64) -> Result<(), Error> {
    let listener = listener::find(sk, cookie)?;
    let handed_on = maps::handed_on_at(listener.listen_port());
    let counter =
        if handed_on != 0 && queue::last_was_there_at(sk, handed_on) { &listener.moved } else { &listener.enqueued };
    counter.add(1);
    listener::refresh(sk, cookie, listener)
}
