//! `tp_btf/sk_data_ready`: a listener woken is an enqueue. The tracepoint fires for every socket of the machine that
//! gets data, so everything that is not a TCP listener leaves after two loads.

use crate::error::Error;
use crate::listener;
use crate::sock::Sock;
use aya_ebpf::programs::BtfTracePointContext;
use core::ffi::c_void;
use governor_ebpf::transition::state;

#[inline(always)]
pub(crate) fn handle(ctx: &BtfTracePointContext) -> Result<(), Error> {
    // SAFETY: the tracepoint's only argument is a `struct sock *` and never null.
    let sk = unsafe { Sock::new(ctx.arg::<*const c_void>(0)) };
    // A Unix socket that listens has the same state number, so the protocol decides.
    if sk.state() != state::LISTEN || !sk.is_tcp() {
        return Ok(());
    }
    let cookie = sk.cookie();
    let listener = listener::find(sk, cookie)?;
    listener.enqueued.add(1);
    listener::refresh(sk, cookie, listener)
}
