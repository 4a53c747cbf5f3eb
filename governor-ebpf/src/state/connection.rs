//! Connections in their cgroup's counters. A mark on the socket says that it is counted, how and where; only a marked
//! socket is ever taken out again. All callers but one hold the socket's lock, and that one is why `counted` is swapped.
//!
//! ```text
//!                     accepts are seen                          accepts are not seen
//!   inbound    marked when it is queued, counted at its      marked and counted at its establishment,
//!              accept, under the task's cgroup               under the listener's owner
//!   outbound   counted at its establishment, under the socket's creator
//! ```
//!
//! A subflow of Multipath TCP is not what accept hands over, so it counts as where accepts are not seen; the first one
//! leaves word of its wait for the accept.
//!
//! What counts from its establishment has a quick mark, see `quick`; the rest, and what finds no place there, has a mark in
//! socket storage. No connection has both, but for one that was established before the loader had found out that accepts
//! are seen.

use crate::kernel::offsets;
use crate::kernel::sock::Sock;
use crate::state::cells::MarkerCell;
use crate::state::error::Error;
use crate::state::maps;
use crate::state::quick::{self, Claim};
use aya_ebpf::helpers::bpf_get_current_cgroup_id;
use governor_common::abi::{Direction, Marker, Stage};
use governor_ebpf::transition::{is_open, state};

/// Values of a mark's `counted`.
pub(crate) mod counted {
    /// Not yet.
    pub(crate) const NO: u64 = 0;
    /// It is in its cgroup's counters.
    pub(crate) const YES: u64 = 1;
    /// The connection is over, whether it was ever counted or not.
    pub(crate) const OVER: u64 = 2;
}

/// Remembers the direction of a connection that is not established yet.
#[inline(always)]
pub(crate) fn expect(sk: Sock, direction: Direction) -> Result<(), Error> {
    mark(sk, direction, 0).map(drop)
}

/// Counts a connection that is established, unless it is counted or waits for its accept. `entered_ns` is when it
/// entered an accept queue, 0 if it did not or that was not seen.
#[inline(always)]
pub(crate) fn open(sk: Sock, direction: Direction, entered_ns: u64) -> Result<(), Error> {
    if is_quick(sk, direction) && open_quick(sk, direction, entered_ns)? {
        return Ok(());
    }
    let marker = mark(sk, direction, entered_ns)?;
    if is_inbound(marker) && maps::counts_at_accept() && is_queued(marker) {
        if !sk.is_subflow() {
            return Ok(());
        }
        // A subflow that joins others enters no queue.
        let listener = marker.listener.load();
        if listener != 0 {
            maps::note_subflow(sk.cookie(), listener, marker.enqueued_ns.load());
        }
    }
    count(sk, marker)
}

/// Counts a connection that was open and uncounted when a scan came by, as one that is past its accept queue.
#[inline(always)]
pub(crate) fn seed(sk: Sock, direction: Direction) -> Result<(), Error> {
    if is_quick(sk, direction) && open_quick(sk, direction, 0)? {
        return Ok(());
    }
    let marker = mark(sk, direction, 0)?;
    if is_inbound(marker) && maps::counts_at_accept() {
        marker.stage.store(Stage::Accepted.to_raw());
    }
    count(sk, marker)
}

/// Counts a connection that a task takes out of the accept queue, under the task's cgroup, if it is still open.
#[inline(always)]
pub(crate) fn accept(sk: Sock, marker: &MarkerCell) -> Result<(), Error> {
    if !maps::counts_at_accept() || marker.counted.load() != counted::NO || quick::find(sk).is_some() {
        return Ok(());
    }
    // SAFETY: takes no argument; the current task is the one that accepts.
    marker.cgroup.store(unsafe { bpf_get_current_cgroup_id() });
    match sk.state() {
        open if is_open(open) => count(sk, marker),
        // Accepted before its handshake is over (Fast Open): it counts when it is established.
        state::SYN_RECV => Ok(()),
        _ => {
            marker.counted.store(counted::OVER);
            Ok(())
        }
    }
}

/// Takes a connection out of the count that it is in. The mark stays: a connection that died in the queue is still
/// accepted, and its wait measured.
#[inline(always)]
pub(crate) fn close(sk: Sock) {
    if let Some((cgroup, direction)) = quick::release(sk) {
        count_close(sk, cgroup, direction);
        return;
    }
    let Some(marker) = stored(sk) else {
        return;
    };
    let was = |value| marker.counted.replace(value, counted::OVER).is_ok();
    // Between the first and the second attempt an accept may count it.
    if was(counted::YES) || (!was(counted::NO) && was(counted::YES)) {
        count_close(sk, marker.cgroup.load(), marker.direction.load());
    }
}

/// The cgroup and the direction under which a connection is counted now.
#[inline(always)]
pub(crate) fn counted_as(sk: Sock) -> Option<(u64, u32)> {
    if let Some(mark) = quick::find(sk) {
        return Some((mark.cgroup.load(), mark.direction.load()));
    }
    let marker = stored(sk).filter(|marker| marker.counted.load() == counted::YES)?;
    Some((marker.cgroup.load(), marker.direction.load()))
}

/// The mark of a connection, made unless it is there. A socket whose connection is over and that connects again gets a
/// new one.
#[inline(always)]
pub(crate) fn mark(sk: Sock, direction: Direction, entered_ns: u64) -> Result<&'static MarkerCell, Error> {
    // One call of the helper: looking first costs a second one for every new connection.
    let marker = maps::marker_or_insert(sk, fresh(sk, direction, entered_ns))?;
    if marker.counted.load() == counted::OVER {
        let Marker { cgroup, enqueued_ns, listener, counted, direction, stage } = fresh(sk, direction, entered_ns);
        marker.cgroup.store(cgroup);
        marker.enqueued_ns.store(enqueued_ns);
        marker.listener.store(listener);
        marker.direction.store(direction);
        marker.stage.store(stage);
        marker.counted.store(counted);
    }
    Ok(marker)
}

/// Whether it is in an accept queue, as far as was seen.
#[inline(always)]
pub(crate) fn is_queued(marker: &MarkerCell) -> bool {
    marker.stage.load() == Stage::Queued.to_raw()
}

/// Whether a connection is one for a quick mark. One that has a mark in storage keeps it, or the programs' twins could
/// count it there and here.
#[inline(always)]
fn is_quick(sk: Sock, direction: Direction) -> bool {
    (direction == Direction::Outbound || !maps::counts_at_accept()) && stored(sk).is_none()
}

/// The mark of a connection in socket storage.
#[inline(always)]
fn stored(sk: Sock) -> Option<&'static MarkerCell> {
    if sk.has_no_storage() { None } else { maps::marker(sk) }
}

/// Counts a connection by a quick mark, unless it has one; false when there is no place for it.
#[inline(always)]
fn open_quick(sk: Sock, direction: Direction, entered_ns: u64) -> Result<bool, Error> {
    let cgroup = sk.cgroup();
    let counters = if offsets::has_cgroups() { Some(maps::cgroup_or_insert(sk, cgroup)?) } else { None };
    match (quick::claim(sk, cgroup, direction.to_raw(), entered_ns), counters) {
        (Claim::Made, Some(counters)) => {
            let counter = match direction {
                Direction::Inbound => &counters.inbound_opened,
                Direction::Outbound => &counters.outbound_opened,
            };
            counter.add(1);
            Ok(true)
        }
        (Claim::Made | Claim::There, _) => Ok(true),
        (Claim::Taken, _) => Ok(false),
    }
}

#[inline(always)]
fn count_close(sk: Sock, cgroup: u64, direction: u32) {
    if let Some(counters) = maps::cgroup(sk, cgroup) {
        let inbound = direction == Direction::Inbound.to_raw();
        let counter = if inbound { &counters.inbound_closed } else { &counters.outbound_closed };
        counter.add(1);
    }
}

#[inline(always)]
fn count(sk: Sock, marker: &MarkerCell) -> Result<(), Error> {
    if !offsets::has_cgroups() || marker.counted.load() != counted::NO {
        return Ok(());
    }
    let cgroup = maps::cgroup_or_insert(sk, marker.cgroup.load())?;
    if marker.counted.replace(counted::NO, counted::YES).is_ok() {
        let counter = if is_inbound(marker) { &cgroup.inbound_opened } else { &cgroup.outbound_opened };
        counter.add(1);
    }
    Ok(())
}

#[inline(always)]
fn is_inbound(marker: &MarkerCell) -> bool {
    marker.direction.load() == Direction::Inbound.to_raw()
}

#[inline(always)]
fn fresh(sk: Sock, direction: Direction, enqueued_ns: u64) -> Marker {
    let stage = match direction {
        Direction::Inbound => Stage::Queued.to_raw(),
        Direction::Outbound => 0,
    };
    Marker { cgroup: sk.cgroup(), enqueued_ns, listener: 0, counted: counted::NO, direction: direction.to_raw(), stage }
}
