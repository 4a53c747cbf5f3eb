//! The socket iterator: one pass over every TCP socket of a network namespace, which counts what was not counted, and
//! the audit that compares what is open with what the counters say.
//!
//! How a connection that was open before the programs came is told apart: the iterator sees the namespace's listeners
//! first, and a connection whose local port has a listener counts as inbound. A connection whose listener has closed
//! since counts as outbound; the socket itself keeps no better trace.

use super::maps::Maps;
use aya::Ebpf;
use aya::programs::Iter;
use governor_common::abi::{CgroupState, Direction, ScanRecord, TCP_LISTEN};
use std::collections::BTreeMap;
use std::io::{self, Read};

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
pub(super) fn scan(object: &mut Ebpf, maps: &mut Maps) -> io::Result<Scan> {
    let before = maps.stats().map_err(io::Error::other)?.seeded;
    let program = object.program_mut("scan_tcp").ok_or_else(|| io::Error::other("the object has no scan_tcp"))?;
    let program: &mut Iter = program.try_into().map_err(io::Error::other)?;
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
        let open = scan.cgroups.entry(record.cgroup).or_default();
        match direction {
            Direction::Inbound => open.inbound += 1,
            Direction::Outbound => open.outbound += 1,
        }
    }
    scan
}

/// An audit in progress: the counters at its start and what the scans since then saw. It is conclusive only if every
/// network namespace with connections was scanned.
#[derive(Clone, Debug)]
pub struct Audit {
    before: BTreeMap<u64, CgroupState>,
    seen: BTreeMap<u64, OpenConnections>,
}

/// How far the counters were from the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Sum of the absolute differences that no change during the audit explains and that the audit before found too.
    pub total: u64,
    /// What to add to a cgroup's counters from now on, where nothing changed during the audit, so that it is exact.
    pub(super) corrections: BTreeMap<u64, (i64, i64)>,
    /// Differences found for the first time, with the correction each would need.
    pub(super) doubts: BTreeMap<u64, (i64, i64)>,
}

impl Audit {
    pub(super) fn new(before: BTreeMap<u64, CgroupState>) -> Self {
        Self { before, seen: BTreeMap::new() }
    }

    /// Adds what a namespace's scan saw.
    pub fn add(&mut self, scan: &Scan) {
        for (&id, open) in &scan.cgroups {
            let sum = self.seen.entry(id).or_default();
            sum.inbound += open.inbound;
            sum.outbound += open.outbound;
        }
    }

    /// Compares with the counters as they are now. Counters only rise, so their rise since the start bounds what can
    /// have changed while the scans ran. A difference counts once the next audit finds it again: a missed event stays
    /// missed, but the sockets of a namespace that is being torn down are open and nowhere to be seen for a moment.
    pub(super) fn finish(
        self,
        after: &BTreeMap<u64, CgroupState>,
        corrections: &BTreeMap<u64, (i64, i64)>,
        doubts: &BTreeMap<u64, (i64, i64)>,
    ) -> Drift {
        let mut drift = Drift::default();
        for (id, now) in after {
            let seen = self.seen.get(id).copied().unwrap_or_default();
            let then = self.before.get(id).copied().unwrap_or_default();
            let inbound_changes =
                rise(then.inbound_opened, now.inbound_opened) + rise(then.inbound_closed, now.inbound_closed);
            let outbound_changes =
                rise(then.outbound_opened, now.outbound_opened) + rise(then.outbound_closed, now.outbound_closed);
            let earlier = corrections.get(id).copied().unwrap_or_default();
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
            if doubts.get(id) != Some(&correction) {
                drift.doubts.insert(*id, correction);
                continue;
            }
            drift.total += unexplained;
            if correction != earlier {
                drift.corrections.insert(*id, correction);
            }
        }
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

    fn counters(opened: u64, closed: u64) -> BTreeMap<u64, CgroupState> {
        let state = CgroupState { inbound_opened: opened, inbound_closed: closed, ..CgroupState::default() };
        BTreeMap::from([(7, state)])
    }

    fn audit(before: BTreeMap<u64, CgroupState>, inbound: u64, after: &BTreeMap<u64, CgroupState>) -> Drift {
        let mut audit = Audit::new(before);
        let cgroups = BTreeMap::from([(7, OpenConnections { inbound, outbound: 0 })]);
        audit.add(&Scan { cgroups, ..Scan::default() });
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
        assert_eq!((drift.total, drift.corrections), (1, BTreeMap::from([(7, (-1, 0))])));
    }

    #[test]
    fn a_difference_that_the_next_audit_does_not_find_is_none() {
        let torn_down = BTreeMap::from([(7, (-1, 0))]);
        let seen =
            Scan { cgroups: BTreeMap::from([(7, OpenConnections { inbound: 5, outbound: 0 })]), ..Scan::default() };
        let mut audit = Audit::new(counters(10, 5));
        audit.add(&seen);
        assert_eq!(audit.finish(&counters(10, 5), &BTreeMap::new(), &torn_down), Drift::default());
    }

    #[test]
    fn changes_during_the_audit_explain_a_difference_up_to_their_number() {
        assert_eq!(audit(counters(10, 4), 6, &counters(12, 5)), Drift::default());
        assert_eq!(audit(counters(10, 4), 2, &counters(12, 5)).total, 2);
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
