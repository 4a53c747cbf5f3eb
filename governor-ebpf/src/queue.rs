//! The accept queue itself: a list of requests, oldest first, each with the connection it became. Read without a lock of
//! its own. A connection taken out meanwhile stays readable until the program ends and at worst tells the age of another
//! one, once.

use crate::maps;
use crate::offsets::offset;
use crate::sock::Sock;
use aya_ebpf::helpers::bpf_skc_to_tcp_sock;
use governor_common::abi::QUEUE_WALK;
use governor_ebpf::transition::is_waiting;

/// What a walk over the queue found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walk {
    /// Connections looked at: all of them, or [`QUEUE_WALK`].
    pub(crate) walked: u32,
    /// Of those, connections that their client has closed or reset.
    pub(crate) abandoned: u32,
    /// Of those, connections whose time of arrival is not known.
    pub(crate) unstamped: u32,
    /// When the oldest of the others came, in `CLOCK_MONOTONIC` nanoseconds; 0 when there is none.
    pub(crate) oldest_ns: u64,
}

/// When the connection at the head of a listener's queue entered it; 0 when there is none or it is not known.
#[inline(always)]
pub(crate) fn head_ns(listener: Sock) -> u64 {
    // SAFETY: the helper takes any socket.
    let tcp = unsafe { bpf_skc_to_tcp_sock(listener.as_ptr()) };
    if tcp.is_null() {
        return 0;
    }
    // SAFETY: just checked.
    let listener = unsafe { Sock::new(tcp.cast_const().cast()) };
    let Some(request) = listener.pointer(offset!(queue_head)) else { return 0 };
    let Some(child) = request.pointer(offset!(request_child)) else { return 0 };
    maps::marker(child).map_or(0, |marker| marker.enqueued_ns.load())
}

/// Walks over the queue of a listener that the verifier knows as a `struct tcp_sock`, and whose lock is held.
#[inline(always)]
pub(crate) fn walk(listener: Sock) -> Walk {
    let mut found = Walk { walked: 0, abandoned: 0, unstamped: 0, oldest_ns: 0 };
    let mut next = listener.pointer(offset!(queue_head));
    for _ in 0..QUEUE_WALK {
        let Some(request) = next else { break };
        found.walked += 1;
        if let Some(child) = request.pointer(offset!(request_child)) {
            if !is_waiting(child.state()) {
                found.abandoned += 1;
            }
            match maps::marker(child).map_or(0, |marker| marker.enqueued_ns.load()) {
                0 => found.unstamped += 1,
                stamp if found.oldest_ns == 0 || stamp < found.oldest_ns => found.oldest_ns = stamp,
                _ => {}
            }
        }
        next = request.pointer(offset!(request_next));
    }
    found
}
