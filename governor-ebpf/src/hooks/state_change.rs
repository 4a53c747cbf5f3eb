//! `tp_btf/inet_sock_set_state(sk, oldstate, newstate)`: runs under the socket's lock, before the new state is stored.
//! The current task is a stranger here (often a softirq), so everything is read from the socket.

use crate::kernel::sock::Sock;
use crate::state::connection;
use crate::state::error::Error;
use crate::state::leased;
use crate::state::listener;
use crate::state::maps;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use core::ffi::c_void;
use governor_common::abi::Direction;
use governor_ebpf::transition::{Change, classify};

/// Takes note of a change and leaves word for the twin.
#[inline(always)]
pub(crate) fn handle(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(change) = classify(ctx.arg(1), ctx.arg(2)) else {
        return Ok(());
    };
    maps::leave_state_word(ctx.arg(0), ctx.arg(2));
    note(ctx, change)
}

/// Takes note of a change for which the first program left no word on this CPU: it did not run, or another change came in
/// between. Then the change may be noted twice, which is harmless: the word only saves the time.
#[inline(always)]
pub(crate) fn handle_missed(ctx: &BtfTracePointContext) -> Result<(), Error> {
    let Some(change) = classify(ctx.arg(1), ctx.arg(2)) else {
        return Ok(());
    };
    if maps::take_state_word(ctx.arg(0), ctx.arg(2)) {
        return Ok(());
    }
    note(ctx, change)
}

#[inline(always)]
fn note(ctx: &BtfTracePointContext, change: Change) -> Result<(), Error> {
    // SAFETY: the tracepoint's first argument is a `struct sock *` and never null.
    let sk = unsafe { Sock::new(ctx.arg::<*const c_void>(0)) };
    if !sk.is_tcp() {
        return Ok(());
    }
    match change {
        Change::ListenerOpened => {
            if listener::open(sk, sk.cookie(), now())? {
                debug!(ctx, "port {} listens", sk.port());
            }
            Ok(())
        }
        Change::ListenerClosed => {
            if listener::close(sk, now())? {
                debug!(ctx, "port {} stops listening", sk.port());
            }
            Ok(())
        }
        Change::OutboundMet => connection::expect(sk, Direction::Outbound),
        // A child is in the accept queue by now, since a few instructions.
        Change::Opened(Direction::Inbound) => connection::open(sk, Direction::Inbound, now()),
        Change::Opened(Direction::Outbound) => connection::open(sk, Direction::Outbound, 0),
        Change::Closed => {
            connection::close(sk);
            leased::closed(sk)
        }
    }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: takes no argument.
    unsafe { bpf_ktime_get_ns() }
}
