//! One listening socket, as the programs keep it.

use bytemuck::{Pod, Zeroable};

/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;
/// Listeners the map holds; one more is counted as untracked.
pub const MAX_LISTENERS: u32 = 16_384;

/// Value of the listener map; the key is the socket cookie, u64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ListenerState {
    /// `CLOCK_MONOTONIC` nanoseconds of the `listen()` that began the current generation; 0 when the socket listened
    /// before the programs were attached.
    pub opened_ns: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when it stopped listening; 0 while it listens. The reader then removes the entry:
    /// a program that removed it could not be sure that no other CPU is still writing to it.
    pub closed_ns: u64,
    /// Connections that entered the accept queue.
    pub enqueued: u64,
    /// Connections that entered it from the queue of another listener, which closed (`tcp_migrate_req`).
    pub moved: u64,
    /// Connections that an accept took out of the queue; stays 0 where accepts are not seen.
    pub accepted: u64,
    /// Of those, connections whose client had closed or reset them by then; Multipath TCP's are not looked at.
    pub abandoned: u64,
    /// SYNs refused because the queue was full; stays 0 where that is not seen.
    pub overflow_syn: u64,
    /// Handshakes refused at their last packet because the queue was full; stays 0 where that is not seen.
    pub overflow_ack: u64,
    /// Connections that were still queued when the listener closed and were reset, over all generations.
    pub lost: u64,
    /// Connections that were still queued when the listener closed and went to another listener, over all generations.
    pub handed_on: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when the connection at the head of the queue entered it, as at the last enqueue;
    /// 0 when unknown.
    pub head_ns: u64,
    /// cgroup-v2 id of the socket's creator; 0 when unknown.
    pub owner_cgroup: u64,
    /// Deepest at any enqueue. 64 bits, because that is what the programs can compare and swap.
    pub peak: u64,
    /// Limit of the accept queue at the last enqueue; fits 32 bits.
    pub backlog: u64,
    /// Local address in network order; an IPv4 address is in the first four bytes.
    pub address: [u8; 16],
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Depth at the last enqueue.
    pub depth: u32,
    /// Local port in host order.
    pub port: u16,
    /// [`AF_INET`] or [`AF_INET6`].
    pub family: u16,
    /// How often the socket stopped listening and began again under this entry (`shutdown()`, then `listen()`): the
    /// cookie stays the same and the counters go on. 0 in the first generation.
    pub reopened: u32,
}

super::plain!(ListenerState, 144);
