//! The tracepoint tier: attaches the programs, proves with one connection that they count, and reads what they saw.
//! Knows nothing of ticks, namespaces' names or processes; its caller does.
//!
//! ```text
//!   attach ─▶ self-test ─▶ scan each namespace (seeds) ─▶ read, read, … ─▶ begin_audit, scan each, finish_audit ─▶ …
//! ```
//!
//! Depth and backlog here are those at the last enqueue: the depth *now* is in the kernel's tables. Everything detaches
//! when a [`Tracepoint`] is dropped, pinned or not; only [`Tracepoint::hand_over`] and the death of the process leave
//! the pins, and then the programs go on counting.

pub use crate::programs::events::ListenerEvent;
pub use crate::programs::iter::{Audit, Drift, OpenConnections, Scan, ScannedListener, ScannedQueue};
pub use crate::programs::loader::LOG_TARGET;
pub use crate::programs::reading::{ListenerReading, Reading, SojournReading};

use crate::proc::preflight;
use crate::programs::closings::Closings;
use crate::programs::iter;
use crate::programs::loader::{self, Loaded};
use crate::programs::maps;
use crate::programs::overflow_hooks::{self, SynWatch};
use crate::programs::pin::{self, PinOptions, Pins};
use crate::programs::reading::Sees;
use crate::programs::stale::Marks;
use crate::programs::waits::WaitReader;
use crate::rows::Note;
use governor_common::abi::{CgroupKey, CgroupState, MAX_LISTENERS, QUICK_MARKS};
use governor_observation::{HookView, PinsView, Tier};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// How to attach.
#[derive(Clone, Debug)]
pub struct Options {
    /// Have the programs report rare events as debug messages too (target [`LOG_TARGET`]).
    pub log: bool,
    /// Listeners that can be tracked, at most 16,384, which is also the default. More are counted as untracked; none is
    /// ever evicted for another.
    pub max_listeners: Option<u32>,
    /// Connections that can have a quick mark, at least one and at most 65,536, which is also the default; rounded down
    /// to a power of two. More are counted all the same, and each of those costs more.
    pub quick_marks: Option<u32>,
    /// Where the v2 hierarchy is mounted; without it refused SYNs cannot be counted.
    pub cgroup_root: Option<PathBuf>,
    /// Where to pin everything, so that it outlives this process; nothing is pinned when `None`.
    pub pins: Option<PinOptions>,
    /// Hooks of better tiers than this are not tried.
    pub best: Tier,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log: false,
            max_listeners: None,
            quick_marks: None,
            cgroup_root: None,
            pins: None,
            best: Tier::Trampoline,
        }
    }
}

impl Options {
    pub(crate) fn max_listeners(&self) -> u32 {
        self.max_listeners.unwrap_or(MAX_LISTENERS).clamp(1, MAX_LISTENERS)
    }

    /// A power of two.
    pub(crate) fn quick_marks(&self) -> u32 {
        1 << self.quick_marks.unwrap_or(QUICK_MARKS).clamp(1, QUICK_MARKS).ilog2()
    }
}

/// What was learned since the programs began to count and cannot be read from their maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// What audits found missing, added to what the counters say.
    pub(crate) corrections: Vec<Correction>,
}

/// What is added to the counters of one cgroup in one network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Correction {
    cgroup: u64,
    netns: u32,
    inbound: i64,
    outbound: i64,
}

/// Why the tier cannot be used; prints as one line with every cause.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct AttachError(String);

/// Why the maps cannot be read.
#[derive(Debug, Error)]
#[error("the eBPF maps cannot be read")]
pub struct ReadError(#[from] maps::Error);

/// Why a namespace was not scanned. Never to be read as "no sockets".
#[derive(Debug, Error)]
pub enum ScanError {
    /// This kernel has no usable socket iterator; the hook's note says why.
    #[error("the socket iterator is not available here")]
    Unavailable,
    /// The iterator failed.
    #[error("the socket iterator failed")]
    Failed(#[source] io::Error),
    /// The maps cannot be read.
    #[error(transparent)]
    Maps(#[from] ReadError),
}

/// The attached programs.
#[derive(Debug)]
pub struct Tracepoint {
    /// Goes before the programs: what is pinned stays attached.
    pins: Pins,
    loaded: Loaded,
    /// What audits found missing, added to what the counters say.
    corrections: BTreeMap<CgroupKey, (i64, i64)>,
    /// What the last audit found for the first time.
    doubts: BTreeMap<CgroupKey, (i64, i64)>,
    /// Listeners with an entry that the last scan of their namespace did not see.
    suspects: BTreeSet<u64>,
    syn_watch: Option<SynWatch>,
    waits: WaitReader,
}

impl Tracepoint {
    /// Loads and attaches the programs and proves that they count.
    ///
    /// # Errors
    /// One line that says what is missing. Then nothing is left attached.
    pub fn attach(options: &Options) -> Result<Self, AttachError> {
        // A missing right is better named before the kernel answers with a bare refusal.
        if let Some(obstacle) = preflight::tracepoint_obstacle() {
            return Err(AttachError(obstacle));
        }
        let (loaded, pins) = pin::start(options).map_err(AttachError)?;
        let learned = pins.memory().corrections.into_iter();
        let corrections =
            learned.map(|was| (CgroupKey::new(was.cgroup, was.netns), (was.inbound, was.outbound))).collect();
        let (doubts, suspects) = (BTreeMap::new(), BTreeSet::new());
        let waits = WaitReader::default();
        let mut this = Self { pins, loaded, corrections, doubts, suspects, syn_watch: None, waits };
        // What the self-test left behind is not reported.
        this.read().map_err(|error| AttachError(loader::chain(&error)))?;
        Ok(this)
    }

    /// Whether counting outlives this process, and since when it goes on.
    #[must_use]
    pub fn pins(&self) -> &PinsView {
        self.pins.view()
    }

    /// The ends of connections that are waited for; `None` when they were taken before.
    pub fn take_closings(&mut self) -> Option<Closings> {
        self.loaded.maps.take_closings()
    }

    /// What earlier runs of the daemon knew of the listeners older than the programs.
    pub(crate) fn notes(&self) -> BTreeMap<u64, Note> {
        self.pins.notes()
    }

    /// Keeps what is known of such a listener for the next run.
    pub(crate) fn note(&mut self, cookie: u64, note: Note) {
        self.pins.note(cookie, note);
    }

    /// Ends this process's part and leaves what is pinned to the next one. Without pins it is as good as a drop.
    pub fn hand_over(mut self) {
        self.pins.leave();
    }

    /// The lowest tier of what observes the events.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.loaded.facts.tier
    }

    /// Hooks and what became of them.
    #[must_use]
    pub fn hooks(&self) -> &[HookView] {
        &self.loaded.facts.hooks
    }

    /// Reads everything and clears what has ended. Call it often enough that 16,384 listeners cannot open and close, or
    /// 1,600 events happen, in between; what is missed is counted.
    ///
    /// # Errors
    /// When the kernel refuses to give the maps' contents.
    pub fn read(&mut self) -> Result<Reading, ReadError> {
        if let Some(log) = &mut self.loaded.log {
            log.flush();
        }
        let sees = self.sees();
        let all_syns = self.loaded.facts.syns_since_ns;
        let mut reading = Reading {
            syns_since_ns: all_syns.or_else(|| self.syn_watch.as_ref().map(|watch| watch.since_ns)),
            acks_since_ns: self.loaded.facts.acks_since_ns,
            sees_accepts: sees.accepts,
            ..Reading::default()
        };
        self.loaded.maps.drain(|event| reading.events.extend(ListenerEvent::parse(&event, sees)));
        if sees.accepts {
            self.waits.begin(&mut self.loaded.maps)?;
        }
        for (cookie, mut state) in self.loaded.maps.listeners()? {
            if state.closed_ns != 0
                && let Some(now) = self.loaded.maps.listener(cookie)?
            {
                // It may listen again since the map was read; then its entry goes on.
                state = now;
            }
            let Some(mut listener) = ListenerReading::new(cookie, &state, sees) else { continue };
            if sees.accepts {
                listener.sojourn = Some(self.waits.read(&self.loaded.maps, cookie, state.accepted)?);
            }
            if state.closed_ns == 0 {
                reading.listeners.push(listener);
                continue;
            }
            reading.closed.push(listener);
            self.loaded.maps.forget_listener(cookie)?;
            self.suspects.remove(&cookie);
            self.pins.forget(cookie);
        }
        self.waits.retain(&reading.listeners);
        if self.loaded.facts.counts_cgroups {
            let mut sums: BTreeMap<u64, OpenConnections> = BTreeMap::new();
            for (key, state) in self.loaded.maps.cgroups()? {
                let (here, sum) = (self.corrected(key, &state), sums.entry(key.cgroup).or_default());
                sum.inbound += here.inbound;
                sum.outbound += here.outbound;
            }
            reading.cgroups = Some(sums.into_iter().collect());
        }
        let stats = self.loaded.maps.stats()?;
        reading.lost_events = stats.lost_events;
        reading.untracked = stats.untracked_listeners.saturating_add(stats.untracked_connections);
        Ok(reading)
    }

    /// What the programs saw of one listener until now, without its waits; `None` when it has no entry.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub(crate) fn read_listener(&self, cookie: u64) -> Result<Option<ListenerReading>, ReadError> {
        let state = self.loaded.maps.listener(cookie)?;
        Ok(state.and_then(|state| ListenerReading::new(cookie, &state, self.sees())))
    }

    fn sees(&self) -> Sees {
        Sees { enqueues: self.loaded.facts.sees_enqueues, accepts: self.loaded.facts.sees_accepts }
    }

    /// Visits every TCP socket of the *calling thread's* network namespace, whose inode number is `netns`: counts the
    /// connections that are not counted yet, makes entries for listeners that have none, and removes entries whose
    /// listener was not there twice in a row. The first scan of a namespace seeds it, later ones audit it.
    ///
    /// # Errors
    /// When there is no iterator or it fails half-way; sockets seen until then stay counted.
    pub fn scan(&mut self, netns: u64) -> Result<Scan, ScanError> {
        if !self.loaded.facts.scans {
            return Err(ScanError::Unavailable);
        }
        let before = self.loaded.maps.listeners().map_err(ReadError)?;
        let scan = iter::scan(&mut self.loaded.programs, &mut self.loaded.maps).map_err(ScanError::Failed)?;
        // Only a race between a connection arriving and its listener closing leaves such an entry behind.
        for (cookie, state) in before.into_iter().filter(|(_, state)| u64::from(state.netns) == netns) {
            if state.closed_ns != 0 || scan.listeners.contains_key(&cookie) {
                self.suspects.remove(&cookie);
            } else if !self.suspects.insert(cookie) {
                self.loaded.maps.forget_listener(cookie).map_err(ReadError)?;
                self.suspects.remove(&cookie);
            }
        }
        Ok(scan)
    }

    /// The accept queues of the calling thread's network namespace that are not empty, by their listener's cookie.
    /// Cheap where there are few listeners, however many connections.
    ///
    /// # Errors
    /// When there is no iterator or it fails; nothing is known of any queue then.
    pub fn scan_queues(&mut self) -> Result<BTreeMap<u64, ScannedQueue>, ScanError> {
        if !self.loaded.facts.scans_queues {
            return Err(ScanError::Unavailable);
        }
        iter::scan_queues(&mut self.loaded.programs).map_err(ScanError::Failed)
    }

    /// Begins to count refused SYNs of all sockets of the host, unless that is done already or the hook says why it
    /// cannot be. It costs something for each packet that a socket receives.
    ///
    /// # Errors
    /// One line that says why not.
    pub fn watch_syns(&mut self) -> Result<(), String> {
        if self.syn_watch.is_none()
            && let Some(root) = &self.loaded.facts.syn_root
        {
            self.syn_watch = Some(overflow_hooks::watch_syns(&mut self.loaded.programs, root)?);
        }
        Ok(())
    }

    /// Ends what [`Self::watch_syns`] began.
    pub fn unwatch_syns(&mut self) {
        self.syn_watch = None;
    }

    /// Begins an audit; then scan namespaces, [`Audit::add`] what was seen in each, and [`Self::finish_audit`].
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn begin_audit(&self) -> Result<Audit, ReadError> {
        let counted = self.loaded.maps.cgroups()?;
        let doubted: BTreeSet<u64> = self.doubts.keys().map(|key| key.cgroup).collect();
        let mut marks = if doubted.is_empty() { Vec::new() } else { self.loaded.maps.quick_marks()? };
        marks.retain(|mark| doubted.contains(&mark.cgroup));
        Ok(Audit::new(counted, Marks::new(marks)))
    }

    /// Compares what was open with the counters of the namespaces that were scanned, and repairs them where two audits
    /// in a row find the same difference. The marks of connections whose close was not seen are freed too, where it is
    /// clear which.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn finish_audit(&mut self, audit: Audit) -> Result<Drift, ReadError> {
        let drift = audit.finish(&self.loaded.maps.cgroups()?, &self.corrections, &self.doubts);
        // A mark that cannot be read stays.
        let is_there = |cookie| self.loaded.maps.quick_mark(cookie).is_ok_and(|mark| mark.is_some());
        for cookie in audit.marks.stale(&drift.gone, is_there) {
            self.loaded.maps.free_quick_mark(cookie)?;
        }
        self.doubts.clone_from(&drift.doubts);
        self.corrections.extend(drift.corrections.iter().map(|(id, correction)| (*id, *correction)));
        self.corrections.retain(|_, correction| *correction != (0, 0));
        self.remember();
        Ok(drift)
    }

    /// Forgets a cgroup that is gone, unless connections of it are still open; says whether it is forgotten.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_cgroup(&mut self, id: u64) -> Result<bool, ReadError> {
        let mut forgotten = true;
        for key in self.loaded.maps.cgroups()?.into_keys().filter(|key| key.cgroup == id) {
            forgotten &= self.forget(key)?;
        }
        Ok(forgotten)
    }

    /// Forgets what was counted in network namespaces that are gone, where nothing is open any more. What is still open
    /// there has no process and ends by itself.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_namespaces(&mut self, mut is_gone: impl FnMut(u64) -> bool) -> Result<(), ReadError> {
        let counted = self.loaded.maps.cgroups()?;
        let namespaces: BTreeSet<u32> = counted.keys().map(|key| key.netns).collect();
        let gone: BTreeSet<u32> = namespaces.into_iter().filter(|netns| is_gone((*netns).into())).collect();
        for key in counted.into_keys().filter(|key| gone.contains(&key.netns)) {
            self.forget(key)?;
        }
        Ok(())
    }

    fn forget(&mut self, key: CgroupKey) -> Result<bool, ReadError> {
        let forgotten = self.loaded.maps.forget_cgroup(key)?;
        if forgotten {
            self.doubts.remove(&key);
            if self.corrections.remove(&key).is_some() {
                self.remember();
            }
        }
        Ok(forgotten)
    }

    /// Keeps what was learned with the pins.
    fn remember(&mut self) {
        let correction = |(key, (inbound, outbound)): (&CgroupKey, &(i64, i64))| Correction {
            cgroup: key.cgroup,
            netns: key.netns,
            inbound: *inbound,
            outbound: *outbound,
        };
        self.pins.remember(Memory { corrections: self.corrections.iter().map(correction).collect() });
    }

    fn corrected(&self, key: CgroupKey, state: &CgroupState) -> OpenConnections {
        let (inbound, outbound) = self.corrections.get(&key).copied().unwrap_or_default();
        OpenConnections {
            inbound: state.inbound().saturating_add_signed(inbound),
            outbound: state.outbound().saturating_add_signed(outbound),
        }
    }
}

#[cfg(test)]
mod tests;
