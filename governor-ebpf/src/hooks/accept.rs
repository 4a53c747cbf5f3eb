//! A task takes a connection out of an accept queue: in the task's context, before accept returns, also for a task that
//! was asleep in accept when the programs came. EAGAIN and a full descriptor table never get here: the first has no
//! connection, and the second is found out before a connection is taken.
//!
//! The connection's lock is held but at `inet_csk_accept`. A task can lose its CPU to another one in here, so the hooks
//! have twins; the stage in the mark makes an accept count once.

use crate::kernel::sock::Sock;
use crate::state::atomic::Cell;
use crate::state::cells::MarkerCell;
use crate::state::connection;
use crate::state::error::Error;
use crate::state::maps;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use core::ffi::c_void;
use core::hint::black_box;
use governor_common::abi::{Direction, Longest, Stage, bucket_of};
use governor_ebpf::transition::abandoned;

/// Attempts to raise the longest wait. Each failed one means that another CPU raised it.
const LONGEST_ATTEMPTS: usize = 16;

/// `fentry/__inet_accept(socket, newsock, newsk)`.
#[inline(always)]
pub(crate) fn from_socket(socket: *const c_void, child: *const c_void) -> Result<(), Error> {
    // SAFETY: `struct socket *` and `struct sock *`, never null; a listening socket has a sock.
    let (listener, child) = unsafe { (Sock::of_socket(socket), Sock::new(child)) };
    handle(Some(listener), child)
}

/// `fentry/security_sock_graft(sk, parent)`: every family's sockets, and the listener is only known from the mark.
#[inline(always)]
pub(crate) fn grafted(child: *const c_void) -> Result<(), Error> {
    // SAFETY: a `struct sock *`, never null.
    handle(None, unsafe { Sock::new(child) })
}

/// `fexit/inet_csk_accept(sk, …)`: null when there was none to accept.
#[inline(always)]
pub(crate) fn from_listener(sk: *const c_void, child: *const c_void) -> Result<(), Error> {
    if child.is_null() {
        return Ok(());
    }
    // SAFETY: both are `struct sock *`, the first never null and the second just checked.
    let (listener, child) = unsafe { (Sock::new(sk), Sock::new(child)) };
    handle(Some(listener), child)
}

#[inline(always)]
fn handle(listener: Option<Sock>, child: Sock) -> Result<(), Error> {
    let mptcp = child.is_mptcp();
    if !child.is_internet() || !(child.is_tcp() || mptcp) {
        return Ok(());
    }
    let marker = connection::mark(child, Direction::Inbound, 0)?;
    if marker.stage.load() == Stage::Accepted.to_raw() {
        return Ok(());
    }
    marker.stage.store(Stage::Accepted.to_raw());
    // SAFETY: takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    let [cookie, enqueued_ns] = origin(listener, child, marker);
    // Its first subflow is the connection that is open, and the one that can be gone.
    let is_gone = !mptcp && abandoned(child.state()) != 0;
    count(cookie, is_gone, enqueued_ns, now)?;
    if mptcp { Ok(()) } else { connection::accept(child, marker) }
}

/// Cookie of the listener in whose queue the connection was, and when it entered; 0 for what is not known.
#[inline(always)]
fn origin(listener: Option<Sock>, child: Sock, marker: &MarkerCell) -> [u64; 2] {
    let of_mark = [marker.listener.load(), marker.enqueued_ns.load()];
    match listener {
        // Not the one in the mark: that may have closed and handed its queue on unseen.
        Some(listener) if !listener.is_mptcp() => return [listener.cookie(), of_mark[1]],
        Some(_) | None if of_mark[0] != 0 => return of_mark,
        Some(_) | None => {}
    }
    if child.is_mptcp()
        && let Some(of_subflow) = maps::take_subflow(child.first_subflow_cookie())
    {
        return of_subflow;
    }
    [listener.map_or(0, Sock::first_subflow_cookie), 0]
}

/// Counts the accept on its listener, and its wait if it is known since when.
#[inline(always)]
fn count(cookie: u64, is_gone: bool, enqueued_ns: u64, now: u64) -> Result<(), Error> {
    let Some(entry) = maps::listener(cookie) else { return Ok(()) };
    entry.accepted.add(1);
    if is_gone {
        entry.abandoned.add(1);
    }
    if enqueued_ns == 0 {
        return Ok(());
    }
    let wait_ns = now.saturating_sub(enqueued_ns);
    let sojourn = maps::sojourn_or_insert(cookie)?;
    // The compiler knows that it is in range and would leave out the test, which the verifier wants to see.
    if let Some(bucket) = sojourn.buckets.get(black_box(bucket_of(wait_ns))) {
        bucket.add(1);
    }
    sojourn.sum_ns.add(wait_ns);
    let interval = maps::interval();
    let [even, odd] = &sojourn.longest;
    raise(if interval.is_multiple_of(2) { even } else { odd }, Longest { interval, wait_ns })
}

#[inline(always)]
fn raise(cell: &Cell<u64>, longest: Longest) -> Result<(), Error> {
    let mut before = cell.load();
    for _ in 0..LONGEST_ATTEMPTS {
        let Some(raised) = longest.raise(before) else { return Ok(()) };
        match cell.replace(before, raised) {
            Ok(()) => return Ok(()),
            Err(other) => before = other,
        }
    }
    Err(Error::Contended)
}
