//! Connections in their cgroup's counters. A mark on the socket says that it is counted, how and where; only a marked
//! socket is ever taken out again. All callers hold the socket's lock.

use crate::cells::MarkerCell;
use crate::error::Error;
use crate::sock::Sock;
use crate::{maps, offsets};
use governor_common::abi::{Direction, Marker};

/// Remembers the direction of a connection that is not established yet.
#[inline(always)]
pub(crate) fn expect(sk: Sock, direction: Direction) -> Result<(), Error> {
    if !offsets::has_cgroups() || maps::marker(sk).is_some() {
        return Ok(());
    }
    maps::put_marker(sk, fresh(sk, direction, 0)).map(drop)
}

/// Counts a connection unless it is counted. `entered_ns` is when it entered an accept queue, 0 if it did not or that was
/// not seen.
#[inline(always)]
pub(crate) fn open(sk: Sock, direction: Direction, entered_ns: u64) -> Result<(), Error> {
    if !offsets::has_cgroups() {
        return Ok(());
    }
    let marker = match maps::marker(sk) {
        Some(marker) => marker,
        None => maps::put_marker(sk, fresh(sk, direction, entered_ns))?,
    };
    if marker.counted.load() != 0 {
        return Ok(());
    }
    let cgroup = maps::cgroup_or_insert(sk, marker.cgroup.load())?;
    marker.counted.store(1);
    let counter = if is_inbound(marker) { &cgroup.inbound_opened } else { &cgroup.outbound_opened };
    counter.add(1);
    Ok(())
}

/// Takes a connection out of the count that it is in.
#[inline(always)]
pub(crate) fn close(sk: Sock) {
    let Some(marker) = maps::marker(sk) else {
        return;
    };
    if marker.counted.load() != 0
        && let Some(cgroup) = maps::cgroup(sk, marker.cgroup.load())
    {
        let counter = if is_inbound(marker) { &cgroup.inbound_closed } else { &cgroup.outbound_closed };
        counter.add(1);
    }
    maps::remove_marker(sk);
}

#[inline(always)]
fn is_inbound(marker: &MarkerCell) -> bool {
    marker.direction.load() == Direction::Inbound.to_raw()
}

#[inline(always)]
fn fresh(sk: Sock, direction: Direction, enqueued_ns: u64) -> Marker {
    Marker { cgroup: sk.cgroup(), enqueued_ns, listener: 0, counted: 0, direction: direction.to_raw(), stage: 0 }
}
