//! Records of the socket iterator, and the note it keeps while it runs.

use bytemuck::{Pod, Zeroable};

/// `TCP_LISTEN` of the kernel's socket states.
pub const TCP_LISTEN: u32 = 10;
/// Listening ports one scan can remember.
pub const MAX_LISTEN_PORTS: u32 = 16_384;

/// One TCP socket of the scanned namespace: a listener, or a connection that is established or closing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ScanRecord {
    /// Socket cookie.
    pub cookie: u64,
    /// cgroup under which it is counted; a listener's is its owner's. 0 when unknown or uncounted.
    pub cgroup: u64,
    /// The kernel's socket state; [`TCP_LISTEN`] for a listener.
    pub state: u32,
    /// A [`super::Direction`] for a counted connection, else 0.
    pub direction: u32,
    /// Depth of a listener, else 0.
    pub depth: u32,
    /// Backlog of a listener, else 0.
    pub backlog: u32,
}

/// Connections of one accept queue that a scan looks at, from the oldest on.
pub const QUEUE_WALK: u32 = 512;

/// One accept queue that is not empty, as a scan of the queues found it under the listener's lock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct QueueRecord {
    /// The listener's socket cookie.
    pub cookie: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when the oldest of those looked at entered the queue; 0 when that was not seen of all.
    pub oldest_ns: u64,
    /// Connections in the queue.
    pub depth: u32,
    /// Connections looked at: all, or [`QUEUE_WALK`].
    pub walked: u32,
    /// Of those, connections that their client has closed or reset.
    pub abandoned: u32,
    /// Always 0.
    pub _pad: u32,
}

/// Key of the set of listening ports. A scan sees a namespace's listeners before its connections, and takes a
/// connection whose local port is in the set for inbound.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct ListenPort {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Local port in host order.
    pub port: u32,
}

super::plain!(ScanRecord, 32);
super::plain!(QueueRecord, 32);
super::plain!(ListenPort, 8);

#[cfg(test)]
mod tests {
    use crate::abi::{Direction, EventKind};

    #[test]
    fn numbers_that_are_not_known_are_not_guessed() {
        assert_eq!(Direction::from_raw(Direction::Outbound.to_raw()), Some(Direction::Outbound));
        assert_eq!(Direction::from_raw(0), None);
        assert_eq!(EventKind::from_raw(EventKind::Relistened.to_raw()), Some(EventKind::Relistened));
        assert_eq!(EventKind::from_raw(4), None);
    }
}
