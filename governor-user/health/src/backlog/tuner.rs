//! The tuner of all backlogs: which listeners there are, what each may get, and what an action led to. Pure: an
//! observation, the result of an action or an operator's order comes in ([`Tuner::handle_input`]), actions and records
//! come out ([`Tuner::poll_output`]). One action is under way at a time; its result is an input, so that a recording of
//! inputs replays without a kernel. Calls nothing and stores nothing.
//!
//! A row of an observation that says the same as the one before costs a comparison, unless its listener is *awake*:
//! raised, left alone, or with a burst under way.

mod act;
mod entry;
mod io;
mod modes;
mod observe;
mod operator;

pub use entry::{Entry, Id, Kept, RaisedCap};
pub use io::{Action, Called, Done, Failure, Input, Memory, ModeSetting, Outcome, Output, Record, Socket};

use crate::backlog::TunerConfig;
use crate::backlog::plan::Limit;
use crate::backlog::policy::Stance;
use crate::report::Report;
use act::{Flight, Task};
use governor_engine::time::{Duration, Instant};
use governor_observation::Observation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A listener that is not seen for so long is forgotten where its namespace cannot be read: that may last for a while.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The same where the namespace is read and the listener is not in it: a table can skip a socket once.
const CLOSED_AFTER: Duration = Duration::from_secs(2);

/// All state of the tuner.
#[derive(Debug)]
pub struct Tuner {
    config: TunerConfig,
    entries: BTreeMap<Id, Entry>,
    /// What the run before raised and this one has not seen yet.
    inherited: BTreeMap<Id, Kept>,
    /// The first observation.
    begun: Option<Instant>,
    /// Namespaces whose somaxconn was raised.
    caps: BTreeMap<u64, RaisedCap>,
    /// Modes that were set at run time, the oldest first.
    modes: Vec<ModeSetting>,
    /// The last observation, and the report that came with it.
    last: Arc<Observation>,
    report: Arc<Report>,
    /// Start of each process that was asked for.
    started: BTreeMap<u32, u64>,
    /// Network namespaces that were seen lately, and when.
    namespaces: BTreeMap<u64, Instant>,
    /// Listeners that are looked at in every observation.
    awake: BTreeSet<Id>,
    /// Those that are raised or stood down, and those that their namespace clamps.
    marked: BTreeSet<Id>,
    limited: BTreeSet<Id>,
    /// Those that are not in the last observation.
    missing: BTreeSet<Id>,
    /// Every listener's policy is worked out anew with the next observation.
    is_stale: bool,
    tasks: VecDeque<Task>,
    flight: Option<Flight>,
    /// What an operator's order has come to so far.
    outcomes: Vec<Outcome>,
    outputs: VecDeque<Output>,
    /// As it was last sent to be kept, and whether it may be another by now.
    memory: Memory,
    is_dirty: bool,
    unavailable: Option<String>,
    /// Rows to look at; kept for its room.
    due: Vec<usize>,
}

/// Counts over all listeners that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Listeners whose backlog is raised.
    pub raised: usize,
    /// Listeners left to an operator.
    pub stood_down: usize,
    /// Listeners whose namespace allows less than would help.
    pub clamped: usize,
    /// Connections that all raised queues together hold more than their owners asked for.
    pub added: u64,
}

impl Tuner {
    /// With what the run before left, and the modes that are set.
    #[must_use]
    pub fn new(config: TunerConfig, memory: Memory, modes: Vec<ModeSetting>) -> Self {
        Self {
            config,
            entries: BTreeMap::new(),
            inherited: memory.listeners.iter().map(|kept| ((kept.netns, kept.cookie), kept.clone())).collect(),
            begun: None,
            caps: memory.caps.iter().map(|cap| (cap.netns, cap.clone())).collect(),
            modes,
            last: Arc::default(),
            report: Arc::default(),
            started: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            awake: BTreeSet::new(),
            marked: BTreeSet::new(),
            limited: BTreeSet::new(),
            missing: BTreeSet::new(),
            is_stale: false,
            tasks: VecDeque::new(),
            flight: None,
            outcomes: Vec::new(),
            outputs: VecDeque::new(),
            memory,
            is_dirty: false,
            unavailable: None,
            due: Vec::new(),
        }
    }

    /// Takes a fact. `now` of [`Input::Observed`] is when the observation was taken.
    pub fn handle_input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Observed { seen, report, started } => {
                (self.report, self.started) = (report, started);
                self.observe(seen, now);
            }
            Input::Done(done) => self.done(done, now),
            Input::Configured(config) => {
                self.config = *config;
                self.is_stale = true;
            }
            Input::ModesSet { modes, which, named, mode, by } => {
                self.modes = modes;
                self.is_stale = true;
                self.modes_set(&which, &named, mode, &by);
            }
            Input::Restore { which, by } => self.restore(&which, &by),
            Input::Resume { which, by } => self.resume(&which, &by, now),
            // Nothing is decided from now on.
            Input::PlaneEnded => self.unavailable = Some("the kernel plane ended".to_owned()),
            Input::Stop => self.stop(),
        }
        self.advance(now);
    }

    /// The next order, until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due, if no input comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let missing = self.missing.iter().filter_map(|id| self.entries.get(id));
        missing.map(|entry| entry.seen.after(forgotten_after(entry))).min()
    }

    /// Forgets listeners whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.forget(now);
        self.advance(now);
    }

    /// Processes whose start [`Input::Observed`] is to carry, with this observation.
    #[must_use]
    pub fn processes(&self, seen: &Observation) -> BTreeSet<u32> {
        let reverted = self.awake.iter().filter_map(|id| Some((id, self.entries.get(id)?)));
        let reverted = reverted.filter(|(_, entry)| matches!(entry.track.stance, Stance::Reverted(_)));
        let holders = reverted.filter_map(|(id, entry)| {
            let is_it = |row: &&governor_observation::ListenerView| (row.netns, row.cookie) == (id.0, Some(id.1));
            seen.listeners.get(entry.row).filter(is_it).or_else(|| seen.listeners.iter().find(is_it))
        });
        let named = self.modes.iter().filter_map(|setting| setting.which.pid);
        holders.flat_map(|row| row.pids.iter().copied()).chain(named).collect()
    }

    /// Listeners that are there, as far as their namespaces can be read.
    pub fn listeners(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.is_there)
    }

    /// `net.core.somaxconn` of a namespace, as last seen.
    #[must_use]
    pub fn somaxconn(&self, netns: u64) -> Option<u32> {
        self.last.namespaces.iter().find(|namespace| namespace.netns == netns)?.somaxconn
    }

    /// What the last walk over processes could not see.
    #[must_use]
    pub fn blind(&self) -> Option<String> {
        self.last.walk.blind()
    }

    /// Why nothing can be tuned now.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &TunerConfig {
        &self.config
    }

    /// Counts of now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let there = |ids: &BTreeSet<Id>, of: &dyn Fn(&Entry) -> bool| {
            ids.iter().filter_map(|id| self.entries.get(id)).filter(|entry| entry.is_there && of(entry)).count()
        };
        Figures {
            raised: there(&self.marked, &|entry| entry.track.set.is_some()),
            stood_down: there(&self.marked, &|entry| entry.track.stance == Stance::StoodDown),
            clamped: there(&self.limited, &|_| true),
            added: self
                .marked
                .iter()
                .filter_map(|id| self.entries.get(id))
                .filter(|entry| entry.is_there)
                .fold(0, |sum, entry| sum + u64::from(entry.track.added())),
        }
    }

    /// Connections that all raises together hold, of the memory budget: those of listeners that closed until they are
    /// forgotten.
    #[must_use]
    pub fn reserved(&self) -> u32 {
        let marked = self.marked.iter().filter_map(|id| self.entries.get(id));
        marked.map(|entry| entry.track.added()).fold(0, u32::saturating_add)
    }

    /// A listener whose rows were not looked at because they said nothing new was seen as it is until the last
    /// observation.
    fn catch_up(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.track.is_idle()
            && !self.missing.contains(&id)
        {
            entry.track.idled(Instant(self.last.taken_ns), &entry.policy);
        }
    }

    /// Brings the sets that a listener is in up to date with its state.
    fn settle(&mut self, id: Id) {
        let Some(entry) = self.entries.get(&id) else { return };
        let put = |set: &mut BTreeSet<Id>, is_in: bool| if is_in { set.insert(id) } else { set.remove(&id) };
        let is_off = entry.policy.mode == crate::backlog::TunerMode::Off;
        put(&mut self.awake, !entry.track.is_idle() && !is_off && !self.missing.contains(&id));
        put(&mut self.limited, entry.track.plan.limit == Some(Limit::Somaxconn));
        let is_marked = entry.track.set.is_some() || entry.track.stance == Stance::StoodDown;
        self.is_dirty |= put(&mut self.marked, is_marked) || is_marked;
    }

    /// Has what changed kept for the next run.
    fn keep(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        let marked = self.marked.iter().filter_map(|id| Some((id, self.entries.get(id)?)));
        let known = marked.map(|((netns, cookie), entry)| Kept {
            netns: *netns,
            cookie: *cookie,
            original: entry.track.original,
            set: entry.track.set,
            stood_down: entry.track.stance == Stance::StoodDown,
        });
        let memory = Memory {
            listeners: known.chain(self.inherited.values().cloned()).collect(),
            caps: self.caps.values().cloned().collect(),
        };
        if memory != self.memory {
            self.memory = memory.clone();
            self.outputs.push_back(Output::Keep(memory));
        }
    }
}

/// How long after it was last seen a listener is forgotten.
fn forgotten_after(entry: &Entry) -> Duration {
    if entry.is_there { FORGET_AFTER } else { CLOSED_AFTER }
}
