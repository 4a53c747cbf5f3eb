//! What the programs saw, as their maps have it: plain data, and the one place where a listener's entry is read.

use crate::programs::events::ListenerEvent;
use crate::programs::iter::OpenConnections;
use governor_common::abi::{AF_INET, AF_INET6, ListenerState};
use governor_observation::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the programs saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Listeners seen since attach and not closed, by cookie.
    pub listeners: Vec<ListenerReading>,
    /// Listeners closed since the last reading, with their last figures.
    pub closed: Vec<ListenerReading>,
    /// Open connections by cgroup id, also of cgroups with none left; `None` when this kernel does not count them.
    pub cgroups: Option<Vec<(u64, OpenConnections)>>,
    /// `CLOCK_MONOTONIC` nanoseconds since when every SYN refused for a full queue is counted; `None` while they are
    /// not.
    pub syns_since_ns: Option<u64>,
    /// The same for the last packets of handshakes.
    pub acks_since_ns: Option<u64>,
    /// Inbound connections count from their accept and under the cgroup of the task that accepted.
    pub sees_accepts: bool,
    /// Rare events since the last reading, oldest first.
    pub events: Vec<ListenerEvent>,
    /// Events lost because the buffer was not read for long, since attach.
    pub lost_events: u64,
    /// Listeners and connections that no entry could be made for, since attach.
    pub untracked: u64,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerReading {
    /// Socket cookie.
    pub cookie: u64,
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Address family.
    pub family: Family,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Limit of the queue at the last enqueue, re-listen or scan.
    pub backlog: u32,
    /// Depth at the last enqueue or scan.
    pub depth: u32,
    /// Deepest at any enqueue; `None` when this kernel shows no enqueues.
    pub depth_peak: Option<u32>,
    /// Connections that entered the queue since it was first seen; `None` as above.
    pub enqueued: Option<u64>,
    /// Connections that entered it from the queue of another listener, which closed; `None` as above. A kernel that
    /// does not wake who it hands them to shows none.
    pub moved: Option<u64>,
    /// Connections that an accept took out of it since it was first seen; `None` where accepts are not seen.
    pub accepted: Option<u64>,
    /// Of those, connections whose client had gone by then; `None` as above.
    pub abandoned: Option<u64>,
    /// SYNs refused because the queue was full, since it was first seen; `None` where that is not seen.
    pub overflow_syn: Option<u64>,
    /// Handshakes refused at their last packet because the queue was full; `None` where that is not seen.
    pub overflow_ack: Option<u64>,
    /// Connections still queued when it closed and reset, over all generations; `None` where that is not seen.
    pub lost: Option<u64>,
    /// Connections still queued when it closed and handed to another listener, over all generations.
    pub handed_on: u64,
    /// How often the socket stopped listening and began again under this entry: the cookie stays, and the counters go
    /// on.
    pub reopened: u32,
    /// `CLOCK_MONOTONIC` nanoseconds when the connection that has waited longest entered the queue; `None` when
    /// nothing waits or that is not known.
    pub oldest_queued_ns: Option<u64>,
    /// How long accepted connections had waited; `None` where that is not measured.
    pub sojourn: Option<SojournReading>,
    /// cgroup-v2 id of its creator; `None` when unknown.
    pub owner_cgroup: Option<u64>,
    /// `CLOCK_MONOTONIC` nanoseconds of the `listen()` that began this generation; `None` when it listened before the
    /// programs came.
    pub opened_ns: Option<u64>,
}

/// How long the accepted connections of a listener had waited in its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SojournReading {
    /// Waits per bucket since the listener was first seen, by [`governor_common::abi::bucket_of`]; buckets without any
    /// are left out, the rest ascends.
    pub buckets: Vec<(usize, u64)>,
    /// Sum of all waits, in nanoseconds.
    pub sum_ns: u64,
    /// Longest wait since the reading before; `None` when nothing was accepted since.
    pub longest_ns: Option<u64>,
}

/// Which events the programs see as they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sees {
    pub(crate) enqueues: bool,
    pub(crate) accepts: bool,
}

impl ListenerReading {
    /// `None` for a family that is not TCP's.
    pub(crate) fn new(cookie: u64, state: &ListenerState, sees: Sees) -> Option<Self> {
        let [a, b, c, d, ..] = state.address;
        let (family, address) = match state.family {
            AF_INET => (Family::Ipv4, IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            AF_INET6 => (Family::Ipv6, IpAddr::V6(Ipv6Addr::from(state.address))),
            _ => return None,
        };
        Some(Self {
            cookie,
            netns: u64::from(state.netns),
            family,
            address,
            port: state.port,
            backlog: u32::try_from(state.backlog).unwrap_or(u32::MAX),
            depth: state.depth,
            depth_peak: sees.enqueues.then(|| u32::try_from(state.peak).unwrap_or(u32::MAX)),
            enqueued: sees.enqueues.then_some(state.enqueued),
            moved: sees.enqueues.then_some(state.moved),
            accepted: sees.accepts.then_some(state.accepted),
            abandoned: sees.accepts.then_some(state.abandoned),
            overflow_syn: Some(state.overflow_syn),
            overflow_ack: Some(state.overflow_ack),
            lost: Some(state.lost),
            handed_on: state.handed_on,
            reopened: state.reopened,
            oldest_queued_ns: (state.head_ns != 0).then_some(state.head_ns),
            sojourn: None,
            owner_cgroup: (state.owner_cgroup != 0).then_some(state.owner_cgroup),
            opened_ns: (state.opened_ns != 0).then_some(state.opened_ns),
        })
    }
}
