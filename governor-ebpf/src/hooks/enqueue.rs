//! `fexit/inet_csk_complete_hashdance` and `fexit/inet_csk_reqsk_queue_add`: a connection entered an accept queue. The
//! compiler puts the second into the first on most kernels, so that it shows SYN cookies and Fast Open only; where it
//! does not, both fire for one connection. The mark on the child makes that harmless.
//!
//! A connection enters its first queue while its handshake is not quite over, so in `SYN_RECV`. One that is past that,
//! or whose mark names another listener, was handed on by a listener that closed: it did not arrive. That tells the two
//! apart also where `inet_reqsk_clone` cannot be attached to.
//!
//! The child's lock is held, so no accept has seen it yet, and softirqs are off, so that nothing interrupts.

use crate::kernel::offsets::{self, offset};
use crate::kernel::sock::Sock;
use crate::state::connection;
use crate::state::error::Error;
use crate::state::listener;
use crate::state::maps;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use core::ffi::c_void;
use governor_common::abi::{Direction, Stage};
use governor_ebpf::transition::state;

/// `child` entered the queue of `sk`; null if it did not.
#[inline(always)]
pub(crate) fn handle(sk: *const c_void, child: *const c_void) -> Result<(), Error> {
    if child.is_null() {
        return Ok(());
    }
    // SAFETY: both are `struct sock *`, the first never null and the second just checked.
    let (sk, child) = unsafe { (Sock::new(sk), Sock::new(child)) };
    if !sk.is_tcp() {
        return Ok(());
    }
    let cookie = sk.cookie();
    // SAFETY: takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    let mut arrives = child.state() == state::SYN_RECV;
    // Without a mark it counts all the same, and its accept has no wait.
    if let Ok(marker) = connection::mark(child, Direction::Inbound, if arrives { now } else { 0 }) {
        let before = marker.listener.load();
        if before == cookie {
            return Ok(());
        }
        arrives &= before == 0;
        marker.listener.store(cookie);
        if arrives {
            marker.stage.store(Stage::Queued.to_raw());
        }
    } else {
        maps::count(|stats| &stats.untracked_connections);
    }
    let entry = listener::find(sk, cookie)?;
    let counter = if arrives { &entry.enqueued } else { &entry.moved };
    counter.add(1);
    listener::refresh(sk, cookie, entry)
}

/// `fentry/inet_reqsk_clone(request, sk)`: what waits in the queue of a listener that closes is handed on to `sk`. A
/// request that is no connection yet is copied too, and enters a queue later.
#[inline(always)]
pub(crate) fn moved(sk: *const c_void, request: *const c_void) -> Result<(), Error> {
    if !offsets::has_queue() {
        return Ok(());
    }
    // SAFETY: a `struct request_sock *` and a `struct sock *`, never null.
    let (request, sk) = unsafe { (Sock::new(request), Sock::new(sk)) };
    let Some(child) = request.pointer(offset!(request_child)) else { return Ok(()) };
    let cookie = sk.cookie();
    if let Some(marker) = maps::marker(child) {
        marker.listener.store(cookie);
    }
    let entry = listener::find(sk, cookie)?;
    entry.moved.add(1);
    listener::refresh(sk, cookie, entry)
}
