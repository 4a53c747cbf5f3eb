//! What the programs counted, as a tick uses it: totals by listener, waits, and when SYNs are looked at. Reads no table
//! of the kernel.

use super::Sampler;
use crate::accounting::assemble::{Counted, Entered};
use crate::accounting::refusals::Watched;
use crate::accounting::waits::Waits;
use crate::proc::cgroup::Group;
use crate::programs::tracepoint::{ListenerReading, Reading};
use crate::rows::{Note, Row};
use crate::sources::{HOST, Source};
use crate::tables::netstat;
use governor_observation::wording::chain;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

impl Sampler {
    /// What the programs saw; `None` on other tiers or when the maps cannot be read, which is reported.
    pub(super) fn read(&mut self, now: Instant) -> Option<Reading> {
        let reading = match self.tracepoint.as_mut()?.read() {
            Ok(reading) => reading,
            Err(error) => {
                self.sources.failed(Source::Programs, HOST, &chain(&error), now);
                return None;
            }
        };
        self.sources.works(Source::Programs, HOST);
        self.health.lost_events = reading.lost_events;
        self.health.untracked = reading.untracked;
        if !self.notes.is_empty() {
            let listening: BTreeSet<u64> = reading.listeners.iter().map(|listener| listener.cookie).collect();
            self.notes.retain(|cookie, _| listening.contains(cookie));
        }
        for listener in &reading.closed {
            if let Some(last) = counted(listener, Since::default(), &self.notes) {
                self.ledger.ended(listener.netns, listener.cookie, &last);
            }
        }
        self.closed.take(&reading);
        Some(reading)
    }

    /// Goes on with what is known of the waits, which is not shown while the maps cannot be read.
    pub(super) fn take_waits(&mut self, reading: Option<&Reading>, now: Instant) {
        let Some(reading) = reading else { return };
        self.sees_accepts = reading.sees_accepts;
        for listener in reading.closed.iter().chain(&reading.listeners) {
            if let Some(sojourn) = &listener.sojourn {
                let waits =
                    &mut self.waits.entry(listener.cookie).or_insert_with(|| (listener.netns, Waits::default())).1;
                waits.absorb(sojourn.clone(), now);
            }
        }
        // Its entry is removed, and with it what it measured.
        for listener in &reading.closed {
            if let Some((_, waits)) = self.waits.get_mut(&listener.cookie) {
                waits.ended();
            }
        }
        let listening: BTreeSet<u64> = reading.listeners.iter().map(|listener| listener.cookie).collect();
        let ledger = &self.ledger;
        self.waits.retain(|cookie, (netns, _)| listening.contains(cookie) || ledger.remembers(*netns, *cookie));
    }

    /// Reads again, after the table, what was counted for queues that hold more than it explains, and for listeners that
    /// are younger than the first reading. One that cannot be read shows what came a tick late.
    pub(super) fn read_again(&self, netns: u64, rows: &[Row], counts: &Counts) -> BTreeMap<u64, Counted> {
        let Some(tracepoint) = &self.tracepoint else { return BTreeMap::new() };
        let again = |cookie| {
            let now = tracepoint.read_listener(cookie).ok()??;
            let entered_later = Some(Entered { enqueued: now.enqueued?, moved: now.moved? });
            let before = match counts.by_cookie.get(&cookie) {
                Some(before) => *before,
                // It was not there, so nothing had entered it.
                None if now.opened_ns.is_some() => {
                    Counted { entered: Entered::default(), ..counted(&now, counts.since, &self.notes)? }
                }
                None => return None,
            };
            Some((cookie, Counted { entered_later, ..before }))
        };
        self.ledger.outgrown(netns, rows, |cookie| counts.of(cookie)).into_iter().filter_map(again).collect()
    }

    /// Looks at SYNs while there is reason to, and only then.
    pub(super) fn watch_for_refusals(&mut self, now: Instant) {
        let Some(tracepoint) = &mut self.tracepoint else { return };
        for (depth, backlog) in self.ledger.queues() {
            self.suspicion.queue(depth, backlog, now);
        }
        let overflows = self.counters.totals().filter_map(|(netns, totals)| {
            netstat::named(totals.all).listen_overflows.map(|overflows| (netns, overflows))
        });
        self.suspicion.namespaces(overflows, now);
        if !self.suspicion.is_awake(now) {
            tracepoint.unwatch_syns();
            self.unwatched = None;
            return;
        }
        let watched = tracepoint.watch_syns();
        self.unwatched = watched.err().map(|reason| format!("overflow at SYN is not counted: {reason}"));
    }

    /// Removes the counters of cgroups whose folder is gone and that have nothing open.
    pub(super) fn forget_gone_cgroups(&mut self, reading: Option<&Reading>) {
        let Some(tracepoint) = &mut self.tracepoint else { return };
        for (id, open) in reading.and_then(|reading| reading.cgroups.as_ref()).into_iter().flatten() {
            let idle = open.inbound == 0 && open.outbound == 0;
            if idle
                && self.cgroups.group(*id) == Group::Gone
                && let Err(error) = tracepoint.forget_cgroup(*id)
            {
                tracing::debug!(cgroup = id, %error, "counters of a removed cgroup stay");
            }
        }
    }
}

/// What the programs counted, read before any table.
#[derive(Debug, Default)]
pub(super) struct Counts {
    by_cookie: BTreeMap<u64, Counted>,
    since: Since,
}

/// From when on refusals of either stage are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    syns: Option<u64>,
    acks: Option<u64>,
}

impl Counts {
    /// Of one reading.
    pub(super) fn new(reading: &Reading, notes: &BTreeMap<u64, Note>) -> Self {
        let since = Since { syns: reading.syns_since_ns, acks: reading.acks_since_ns };
        let of = |listener: &ListenerReading| Some((listener.cookie, counted(listener, since, notes)?));
        Self { by_cookie: reading.listeners.iter().filter_map(of).collect(), since }
    }

    /// What was counted for a listener.
    pub(super) fn of(&self, cookie: u64) -> Option<Counted> {
        self.by_cookie.get(&cookie).copied()
    }
}

/// `None` where enqueues are not seen.
fn counted(listener: &ListenerReading, since: Since, notes: &BTreeMap<u64, Note>) -> Option<Counted> {
    Some(Counted {
        from_the_first: listener.opened_ns.is_some(),
        entered: Entered { enqueued: listener.enqueued?, moved: listener.moved? },
        entered_later: None,
        depth_peak: listener.depth_peak?,
        opened_ns: listener.opened_ns,
        refused: Watched {
            syn: listener.overflow_syn.unwrap_or(0),
            syn_since: since.syns,
            ack: listener.overflow_ack.unwrap_or(0),
            ack_since: since.acks,
        },
        note: notes.get(&listener.cookie).copied(),
        accepted: listener.accepted,
        abandoned: listener.abandoned,
        left_unaccepted: listener.lost.unwrap_or(0).saturating_add(listener.handed_on),
    })
}
