//! The accept queue itself: a list of requests, oldest first, each with the connection it became. Read without a lock of
//! its own. A connection taken out meanwhile stays readable until the program ends and at worst tells the age of another
//! one, once.

use crate::kernel::offsets::offset;
use crate::kernel::sock::Sock;
use crate::state::maps;
use crate::state::quick;
use aya_ebpf::helpers::bpf_skc_to_tcp_sock;
use governor_common::abi::QUEUE_WALK;
use governor_ebpf::transition::{abandoned, state};

/// What a walk over the queue found.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// Connections looked at: all of them, or [`QUEUE_WALK`].
    pub(crate) walked: u32,
    /// Of those, connections that their client has closed or reset.
    pub(crate) abandoned: u32,
    /// When the oldest came, in `CLOCK_MONOTONIC` nanoseconds; 0 when that was not seen of all.
    pub(crate) oldest_ns: u64,
}

/// When the connection at the head of a listener's queue entered it; 0 when there is none or it is not known.
#[inline(always)]
pub(crate) fn head_ns(listener: Sock) -> u64 {
    let Some(listener) = as_tcp(listener) else { return 0 };
    let Some(request) = listener.pointer(offset!(queue_head)) else { return 0 };
    let Some(child) = request.pointer(offset!(request_child)) else { return 0 };
    stamp(child)
}

/// When a connection entered the queue, by either kind of mark; 0 when that was not seen.
#[inline(always)]
fn stamp(child: Sock) -> u64 {
    match quick::stamp(child) {
        0 => maps::marker(child).map_or(0, |marker| marker.enqueued_ns.load()),
        known => known,
    }
}

/// Whether the connection that came last into a listener's queue was in another one at `moment`: it came then already,
/// as its stamp says, or it is older than the programs. One that others overtook meanwhile tells theirs.
#[inline(always)]
pub(crate) fn last_was_there_at(listener: Sock, moment: u64) -> bool {
    let last = as_tcp(listener)
        .and_then(|listener| listener.pointer(offset!(queue_tail)))
        .and_then(|request| request.pointer(offset!(request_child)));
    // A Fast Open connection enters before it is established and stamped.
    let Some(child) = last.filter(|child| child.state() != state::SYN_RECV) else { return false };
    stamp(child) < moment
}

/// The socket as the verifier has to know it to let its queue be read.
#[inline(always)]
fn as_tcp(listener: Sock) -> Option<Sock> {
    // SAFETY: the helper takes any socket.
    let tcp = unsafe { bpf_skc_to_tcp_sock(listener.as_ptr()) };
    // SAFETY: just checked.
    if tcp.is_null() { None } else { Some(unsafe { Sock::new(tcp.cast_const().cast()) }) }
}

/// Walks over the queue of a listener that the verifier knows as a `struct tcp_sock`, and whose lock is held.
///
/// The verifier follows every turn of the loop, and older ones as many paths as its branches make: so there are as few as
/// can be, and none depends on what an earlier turn found.
#[inline(always)]
pub(crate) fn walk(listener: Sock) -> Walk {
    let mut found = Walk { walked: 0, abandoned: 0, oldest_ns: u64::MAX };
    let mut next = listener.pointer(offset!(queue_head));
    for _ in 0..QUEUE_WALK {
        let Some(request) = next else { break };
        // Never null in the queue. If it were, everything would read as 0.
        let child = request.pointer_or_null(offset!(request_child));
        found.walked += 1;
        found.abandoned += abandoned(child.state());
        found.oldest_ns = found.oldest_ns.min(stamp(child));
        next = request.pointer(offset!(request_next));
    }
    found
}
