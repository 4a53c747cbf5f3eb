//! The socket iterator: one pass over every TCP socket of a network namespace, which counts what was not counted, and
//! the audit that compares what is open with what the counters say.
//!
//! How a connection that was open before the programs came is distinguished: the iterator sees the namespace's
//! listeners first, and a connection whose local port has a listener counts as inbound. A connection whose listener has
//! closed since counts as outbound; the socket itself keeps no better trace.

use crate::programs::maps::Maps;
use crate::programs::pin::Programs;
use crate::programs::stale::{Gone, Marks};
use governor_common::abi::{CgroupKey, CgroupState, Direction, QueueRecord, ScanRecord, TCP_LISTEN};
use std::collections::BTreeMap;
use std::io::{self, Read};

/// What the kernel fills at once when it runs an iterator.
const SCAN_BYTES: usize = 32 * 1024;

/// Connections open in one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenConnections {
    /// Accepted, or still in an accept queue.
    pub inbound: u64,
    /// Made by the cgroup itself.
    pub outbound: u64,
}

/// What one pass saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Listeners, by cookie.
    pub listeners: BTreeMap<u64, ScannedListener>,
    /// Counted connections per cgroup id, by the marks on the sockets.
    pub cgroups: BTreeMap<u64, OpenConnections>,
    /// Connections that were not counted before this pass and are now: all of them on the first pass, drift later.
    pub seeded: u64,
    /// Open connections that could not be counted.
    pub uncounted: u64,
    /// Socket cookies of the counted ones.
    pub cookies: Vec<u64>,
}

/// A listener as the iterator saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedListener {
    /// Connections in its accept queue.
    pub depth: u32,
    /// Limit of the queue.
    pub backlog: u32,
    /// cgroup-v2 id of its creator; `None` when unknown.
    pub owner_cgroup: Option<u64>,
}

/// Runs the iterator over the calling thread's network namespace.
pub(crate) fn scan(programs: &mut Programs, maps: &mut Maps) -> io::Result<Scan> {
    let before = maps.stats().map_err(io::Error::other)?.seeded;
    let program = programs.iterator("scan_tcp")?;
    let link = program.attach().map_err(io::Error::other)?;
    let link = program.take_link(link).map_err(io::Error::other)?;
    // The iterator belongs to the namespace of the thread that makes this file.
    let mut bytes = Vec::new();
    let read = link.into_file().map_err(io::Error::other)?.read_to_end(&mut bytes);
    maps.clear_listen_ports().map_err(io::Error::other)?;
    read?;
    let mut scan = tally(&bytes);
    scan.seeded = maps.stats().map_err(io::Error::other)?.seeded.saturating_sub(before);
    Ok(scan)
}

/// An accept queue that is not empty, as it was under its listener's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedQueue {
    /// Connections in it.
    pub depth: u32,
    /// `CLOCK_MONOTONIC` nanoseconds when the oldest of them entered it; `None` when that was not seen of all.
    pub oldest_ns: Option<u64>,
    /// How many of them their client has closed or reset; `None` for a queue too long to look at whole.
    pub abandoned: Option<u32>,
}

/// Visits the listeners of the calling thread's network namespace: the accept queues that are not empty, by their
/// listener's cookie. Costs what the listeners cost; connections are not visited.
pub(crate) fn scan_queues(programs: &mut Programs) -> io::Result<BTreeMap<u64, ScannedQueue>> {
    let program = programs.iterator("scan_queues")?;
    let link = program.attach().map_err(io::Error::other)?;
    let link = program.take_link(link).map_err(io::Error::other)?;
    let mut file = link.into_file().map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    let mut part = vec![0; SCAN_BYTES];
    loop {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(part.get(..length).unwrap_or_default()),
            // The program ends the scan at the first socket that does not listen, and the kernel calls that so.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.chunks_exact(size_of::<QueueRecord>()).map(|raw| queue(&bytemuck::pod_read_unaligned(raw))).collect())
}

fn queue(record: &QueueRecord) -> (u64, ScannedQueue) {
    // More may have come while the queue was walked over; they are younger.
    let whole = record.walked >= record.depth;
    let queue = ScannedQueue {
        depth: record.depth,
        // Arrivals are in order but for connections handed on by another listener, and those are few.
        oldest_ns: (record.oldest_ns != 0).then_some(record.oldest_ns),
        abandoned: whole.then_some(record.abandoned),
    };
    (record.cookie, queue)
}

/// Sums up the records.
fn tally(bytes: &[u8]) -> Scan {
    let mut scan = Scan::default();
    for raw in bytes.chunks_exact(size_of::<ScanRecord>()) {
        let record: ScanRecord = bytemuck::pod_read_unaligned(raw);
        if record.state == TCP_LISTEN {
            let listener = ScannedListener {
                depth: record.depth,
                backlog: record.backlog,
                owner_cgroup: (record.cgroup != 0).then_some(record.cgroup),
            };
            scan.listeners.insert(record.cookie, listener);
            continue;
        }
        let Some(direction) = Direction::from_raw(record.direction) else {
            scan.uncounted += 1;
            continue;
        };
        scan.cookies.push(record.cookie);
        let open = scan.cgroups.entry(record.cgroup).or_default();
        match direction {
            Direction::Inbound => open.inbound += 1,
            Direction::Outbound => open.outbound += 1,
        }
    }
    scan
}

/// An audit in progress: the counters at its start and what the scans since then saw.
#[derive(Clone, Debug)]
pub struct Audit {
    before: BTreeMap<CgroupKey, CgroupState>,
    /// By network namespace; those that were not scanned are not judged.
    seen: BTreeMap<u32, BTreeMap<u64, OpenConnections>>,
    /// Of cgroups in doubt.
    pub(crate) marks: Marks,
}

/// How far the counters were from the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Sum of the absolute differences that no change during the audit explains and that the audit before found too.
    pub total: u64,
    /// What to add to a cgroup's counters from now on, where nothing changed during the audit, so that it is exact.
    pub(crate) corrections: BTreeMap<CgroupKey, (i64, i64)>,
    /// Differences found for the first time, with the correction each would need.
    pub(crate) doubts: BTreeMap<CgroupKey, (i64, i64)>,
    /// What the corrections take away.
    pub(crate) gone: Gone,
}

impl Audit {
    pub(crate) fn new(before: BTreeMap<CgroupKey, CgroupState>, marks: Marks) -> Self {
        Self { before, seen: BTreeMap::new(), marks }
    }

    /// Adds what the scan of a namespace saw. A namespace that is never added (it cannot be entered, or it is being
    /// torn down) is not judged: its sockets are open and nowhere to be seen.
    pub fn add(&mut self, netns: u64, scan: &Scan) {
        if let Ok(netns) = u32::try_from(netns) {
            self.seen.insert(netns, scan.cgroups.clone());
            self.marks.note(&scan.cookies);
        }
    }

    /// Compares with the counters as they are now. Counters only rise, so their rise since the start bounds what can
    /// have changed while the scans ran. A difference counts once the next audit finds it again: a missed event stays
    /// missed, but a task that the scheduler stops while it closes a socket has taken it out of the kernel's table and
    /// not yet reported it, and the iterator of older kernels can pass over a socket when its bucket changes.
    pub(crate) fn finish(
        &self,
        after: &BTreeMap<CgroupKey, CgroupState>,
        corrections: &BTreeMap<CgroupKey, (i64, i64)>,
        doubts: &BTreeMap<CgroupKey, (i64, i64)>,
    ) -> Drift {
        let mut drift = Drift::default();
        for (key, now) in after {
            let Some(scanned) = self.seen.get(&key.netns) else { continue };
            let seen = scanned.get(&key.cgroup).copied().unwrap_or_default();
            let then = self.before.get(key).copied().unwrap_or_default();
            let inbound_changes =
                rise(then.inbound_opened, now.inbound_opened) + rise(then.inbound_closed, now.inbound_closed);
            let outbound_changes =
                rise(then.outbound_opened, now.outbound_opened) + rise(then.outbound_closed, now.outbound_closed);
            let earlier = corrections.get(key).copied().unwrap_or_default();
            let shown =
                (now.inbound().saturating_add_signed(earlier.0), now.outbound().saturating_add_signed(earlier.1));
            let unexplained = seen.inbound.abs_diff(shown.0).saturating_sub(inbound_changes)
                + seen.outbound.abs_diff(shown.1).saturating_sub(outbound_changes);
            if unexplained == 0 {
                continue;
            }
            let correction = (
                if inbound_changes == 0 { difference(seen.inbound, now.inbound()) } else { earlier.0 },
                if outbound_changes == 0 { difference(seen.outbound, now.outbound()) } else { earlier.1 },
            );
            if doubts.get(key) != Some(&correction) {
                drift.doubts.insert(*key, correction);
                continue;
            }
            drift.total += unexplained;
            let of = |direction: Direction| (key.cgroup, direction.to_raw());
            for (of, fall) in [
                (of(Direction::Inbound), earlier.0 - correction.0),
                (of(Direction::Outbound), earlier.1 - correction.1),
            ] {
                *drift.gone.entry(of).or_default() += u64::try_from(fall).unwrap_or(0);
            }
            if correction != earlier {
                drift.corrections.insert(*key, correction);
            }
        }
        // Of a namespace that was not looked at nothing new is known.
        let unseen = doubts.iter().filter(|(key, _)| !self.seen.contains_key(&key.netns));
        drift.doubts.extend(unseen.map(|(key, correction)| (*key, *correction)));
        drift
    }
}

fn rise(before: u64, after: u64) -> u64 {
    after.saturating_sub(before)
}

fn difference(truth: u64, counter: u64) -> i64 {
    let distance = i64::try_from(truth.abs_diff(counter)).unwrap_or(i64::MAX);
    if truth >= counter { distance } else { -distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CgroupKey = CgroupKey::new(7, 1);

    fn counters(opened: u64, closed: u64) -> BTreeMap<CgroupKey, CgroupState> {
        let state = CgroupState { inbound_opened: opened, inbound_closed: closed, ..CgroupState::default() };
        BTreeMap::from([(KEY, state)])
    }

    fn scan(inbound: u64) -> Scan {
        let cgroups = BTreeMap::from([(KEY.cgroup, OpenConnections { inbound, outbound: 0 })]);
        Scan { cgroups, ..Scan::default() }
    }

    fn audit(
        before: BTreeMap<CgroupKey, CgroupState>,
        inbound: u64,
        after: &BTreeMap<CgroupKey, CgroupState>,
    ) -> Drift {
        let mut audit = Audit::new(before, Marks::default());
        audit.add(KEY.netns.into(), &scan(inbound));
        let again = audit.clone();
        let first = audit.finish(after, &BTreeMap::new(), &BTreeMap::new());
        assert_eq!((first.total, first.corrections.len()), (0, 0), "one audit alone proves nothing");
        again.finish(after, &BTreeMap::new(), &first.doubts)
    }

    #[test]
    fn equal_counts_are_no_drift() {
        assert_eq!(audit(counters(10, 4), 6, &counters(10, 4)), Drift::default());
    }

    #[test]
    fn a_difference_at_rest_is_drift_and_is_repaired() {
        let drift = audit(counters(10, 4), 5, &counters(10, 4));
        assert_eq!((drift.total, drift.corrections), (1, BTreeMap::from([(KEY, (-1, 0))])));
        assert_eq!(drift.gone[&(KEY.cgroup, Direction::Inbound.to_raw())], 1);
    }

    #[test]
    fn a_difference_that_the_next_audit_does_not_find_is_none() {
        let doubts = BTreeMap::from([(KEY, (-1, 0))]);
        let mut audit = Audit::new(counters(10, 5), Marks::default());
        audit.add(KEY.netns.into(), &scan(5));
        assert_eq!(audit.finish(&counters(10, 5), &BTreeMap::new(), &doubts), Drift::default());
    }

    #[test]
    fn a_namespace_that_was_not_scanned_is_not_judged() {
        let elsewhere = u64::from(KEY.netns) + 1;
        let mut audit = Audit::new(counters(10, 5), Marks::default());
        audit.add(elsewhere, &scan(0));
        let doubts = BTreeMap::from([(KEY, (-5, 0))]);
        let drift = audit.finish(&counters(10, 5), &BTreeMap::new(), &doubts);
        assert_eq!((drift.total, drift.corrections.len()), (0, 0));
        assert_eq!(drift.doubts, doubts, "what was doubted before still is");
    }

    #[test]
    fn the_same_cgroup_is_judged_in_each_namespace_by_itself() {
        let other = CgroupKey::new(KEY.cgroup, 2);
        let mut both = counters(10, 4);
        both.insert(other, CgroupState { inbound_opened: 3, ..CgroupState::default() });
        let mut audit = Audit::new(both.clone(), Marks::default());
        audit.add(1, &scan(6));
        audit.add(2, &scan(2));
        let first = audit.finish(&both, &BTreeMap::new(), &BTreeMap::new());
        assert_eq!(first.doubts, BTreeMap::from([(other, (-1, 0))]));
    }

    #[test]
    fn changes_during_the_audit_explain_a_difference_up_to_their_number() {
        assert_eq!(audit(counters(10, 4), 6, &counters(12, 5)), Drift::default());
        assert_eq!(audit(counters(10, 4), 2, &counters(12, 5)).total, 2);
    }

    #[test]
    fn an_age_is_known_only_if_every_arrival_was_seen_and_the_dead_only_if_all_were_looked_at() {
        let record = QueueRecord { cookie: 5, oldest_ns: 70, depth: 3, walked: 3, abandoned: 1, _pad: 0 };
        assert_eq!(queue(&record), (5, ScannedQueue { depth: 3, oldest_ns: Some(70), abandoned: Some(1) }));
        let from_before = QueueRecord { oldest_ns: 0, ..record };
        assert_eq!(queue(&from_before).1.oldest_ns, None);
        let long = QueueRecord { depth: 900, walked: 512, ..record };
        assert_eq!(queue(&long).1, ScannedQueue { depth: 900, oldest_ns: Some(70), abandoned: None });
    }

    #[test]
    fn records_are_summed_by_cgroup_and_direction() {
        let connection = |cgroup, direction| ScanRecord { cgroup, direction, state: 1, ..ScanRecord::default() };
        let records = [
            ScanRecord { cookie: 5, state: TCP_LISTEN, depth: 2, backlog: 9, cgroup: 7, ..ScanRecord::default() },
            connection(7, Direction::Inbound.to_raw()),
            connection(7, Direction::Outbound.to_raw()),
            connection(7, Direction::Outbound.to_raw()),
            connection(0, 0),
        ];
        let scan = tally(bytemuck::cast_slice(&records));
        assert_eq!(scan.cgroups, BTreeMap::from([(7, OpenConnections { inbound: 1, outbound: 2 })]));
        assert_eq!(scan.listeners[&5], ScannedListener { depth: 2, backlog: 9, owner_cgroup: Some(7) });
        assert_eq!(scan.uncounted, 1);
    }
}
