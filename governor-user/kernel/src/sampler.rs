//! One tick of the kernel plane: whose turn it is, what the sources say, what is shown. Owns every source; knows no
//! daemon and no cadence but its own audits. `tables` reads one namespace, `programs` what the programs counted,
//! `walks` what walks over `/proc` found, `open` connections by cgroup; `show` puts it into words.

#[cfg(test)]
#[expect(unsafe_code, reason = "a filter for system calls, which no crate here wraps")]
mod failing_tests;
mod open;
mod programs;
mod show;
mod tables;
mod walks;

use super::options::{Options, PlaneError};
use super::sources::{HOST, Source, Sources};
use crate::accounting::assemble::Ledger;
use crate::accounting::closed::Closed;
use crate::accounting::reconcile::{Reconciler, Stranded};
use crate::accounting::suspicion::Suspicion;
use crate::accounting::waits::Waits;
use crate::proc::cgroup::Cgroups;
use crate::proc::netns::{MOST_PER_TICK, Namespaces};
use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::proc::pids::Holders;
use crate::proc::privileged::Home;
use crate::proc::walk::Walker;
use crate::programs::closings::Closings;
use crate::programs::pin;
use crate::programs::tracepoint::Tracepoint;
use crate::rows::Note;
use crate::tables::netstat::Counters;
use crate::tables::sockdiag::SocketRow;
use crate::tier::{self, Ladder};
use governor_observation::{Health, HookView, Observation, PinState, PinsView, ProcessWalk, Tier};
use programs::Counts;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};
use tables::{Abandoned, Polled};

/// Why the plane cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    /// The thread is stuck in a foreign network namespace.
    #[error("the kernel plane could not return to its network namespace")]
    Stranded(#[source] io::Error),
    /// A bug.
    #[error("the kernel plane met an internal error")]
    Panicked,
}

impl From<Stranded> for Fatal {
    fn from(Stranded(error): Stranded) -> Self {
        Self::Stranded(error)
    }
}

impl Fatal {
    /// The last observation: nothing is known any more, and why.
    pub(crate) fn last_words(self) -> Observation {
        Observation { taken_ns: kernel_monotonic_ns(), degraded: vec![self.to_string()], ..Observation::default() }
    }
}

/// All state of the plane.
#[derive(Debug)]
pub(crate) struct Sampler {
    tier: Tier,
    /// Why it is not a better tier.
    reasons: Vec<String>,
    hooks: Vec<HookView>,
    pins: PinsView,
    tracepoint: Option<Tracepoint>,
    reconciler: Reconciler,
    namespaces: Namespaces,
    /// Namespaces of counted listeners that the walk under way is to find …
    sought: BTreeSet<u64>,
    /// … and those that none has found; tried again at the next audit.
    unfound: BTreeSet<u64>,
    walker: Walker,
    holders: Holders,
    cgroups: Cgroups,
    ledger: Ledger,
    /// Of listeners older than the programs.
    notes: BTreeMap<u64, Note>,
    closed: Closed,
    counters: Counters,
    /// Waits in accept queues by the listener's cookie, with its namespace.
    waits: BTreeMap<u64, (u64, Waits)>,
    /// Inbound connections count under the cgroup of the task that accepted them.
    sees_accepts: bool,
    audit_every: Duration,
    connections: BTreeMap<u64, Polled>,
    abandoned: BTreeMap<u64, Abandoned>,
    health: Health,
    sources: Sources,
    /// Namespaces whose listeners were read at least once.
    reached: BTreeSet<u64>,
    /// Of those, the ones that no source reports now.
    unread: BTreeSet<u64>,
    /// When a table that could not be read is tried again.
    retry: BTreeMap<u64, Instant>,
    suspicion: Suspicion,
    /// Why SYNs are not looked at although there is reason to.
    unwatched: Option<String>,
    /// What the last walk could not see.
    last_walk: ProcessWalk,
    scratch: Vec<SocketRow>,
    /// The first tick has seeded.
    begun: bool,
}

impl Sampler {
    /// Chooses the tier and looks around once.
    ///
    /// # Errors
    /// When `/proc` is unreadable, no thread can be had, or the tier is less than required.
    pub(crate) fn start(options: &Options) -> Result<Self, PlaneError> {
        let home = Home::of_this_thread().map_err(PlaneError::Proc)?;
        let Ladder { tier, reasons, hooks, tracepoint } = tier::choose(options)?;
        let pins = pins(options, tracepoint.as_ref())?;
        let notes = tracepoint.as_ref().map(Tracepoint::notes).unwrap_or_default();
        let now = Instant::now();
        let mut sampler = Self {
            tier,
            reasons,
            hooks,
            pins,
            tracepoint,
            reconciler: Reconciler::new(options.audit_every, now),
            namespaces: Namespaces::new(home),
            sought: BTreeSet::new(),
            unfound: BTreeSet::new(),
            walker: Walker::start().map_err(PlaneError::Thread)?,
            holders: Holders::new(),
            cgroups: Cgroups::detect(options.cgroup_root.as_deref()),
            ledger: Ledger::default(),
            notes,
            closed: Closed::default(),
            counters: Counters::default(),
            waits: BTreeMap::new(),
            sees_accepts: false,
            audit_every: options.audit_every,
            connections: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            health: Health::default(),
            sources: Sources::default(),
            reached: BTreeSet::new(),
            unread: BTreeSet::new(),
            retry: BTreeMap::new(),
            suspicion: Suspicion::default(),
            unwatched: None,
            last_walk: ProcessWalk::default(),
            scratch: Vec::new(),
            begun: false,
        };
        // The first observation is to be complete, so this one walk is waited for.
        sampler.ask_for_walk(now);
        if let Some(walk) = sampler.walker.wait() {
            sampler.take_walk(walk, now);
        }
        Ok(sampler)
    }

    /// The ends of connections that are waited for, where programs report them.
    pub(crate) fn take_closings(&mut self) -> Option<Closings> {
        self.tracepoint.as_mut()?.take_closings()
    }

    /// Ends and leaves what is pinned.
    pub(crate) fn hand_over(self) {
        if let Some(tracepoint) = self.tracepoint {
            tracepoint.hand_over();
        }
    }

    /// Looks at the namespaces whose turn it is and says what is known now.
    ///
    /// # Errors
    /// Only when the thread cannot go on; everything else shows in the observation.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<Observation, Fatal> {
        if let Some(walk) = self.walker.take() {
            self.take_walk(walk, now);
            self.on_fresh_namespaces(now)?;
        } else if !self.begun {
            self.begun = true;
            self.on_fresh_namespaces(now)?;
        }
        // Before the tables: see `assemble`.
        let reading = self.read(now);
        self.take_waits(reading.as_ref(), now);
        let counts = reading.as_ref().map(|reading| Counts::new(reading, &self.notes)).unwrap_or_default();
        for netns in self.namespaces.turn(MOST_PER_TICK) {
            self.look_at(netns, now, &counts)?;
        }
        self.watch_for_refusals(now);
        if self.reconciler.begin(now) {
            self.cgroups.refresh();
            self.unfound.clear();
            self.forget_gone_cgroups(reading.as_ref());
            self.ask_for_walk(now);
        } else if self.holders.may_walk(now) {
            let unknown = self.unknown_namespaces(reading.as_ref());
            if !unknown.is_empty() || self.holders.wants_walk(self.ledger.held(), now) {
                self.sought = unknown;
                self.ask_for_walk(now);
            }
        }
        let open = self.open_connections(reading.as_ref());
        let owned = self.owned_connections();
        let counted = open.iter().flat_map(|open| open.keys()).chain(owned.iter().flat_map(|owned| owned.keys()));
        let ids = self.ledger.owners().chain(counted.copied()).collect();
        self.cgroups.learn(&ids, now);
        match self.cgroups.failure() {
            Some(reason) => drop(self.sources.failed(Source::Cgroups, HOST, reason, now)),
            None => self.sources.works(Source::Cgroups, HOST),
        }
        self.sources.settle(now);
        Ok(self.observation(open, owned.as_ref(), now))
    }

    /// Seeds new namespaces and goes on with an audit.
    fn on_fresh_namespaces(&mut self, now: Instant) -> Result<(), Fatal> {
        let unscanned = self.reconciler.advance(self.tracepoint.as_mut(), &mut self.namespaces, &mut self.health)?;
        for netns in self.namespaces.all() {
            match unscanned.get(&netns) {
                Some(reason) => drop(self.sources.failed(Source::Audits, netns, reason, now)),
                None => self.sources.works(Source::Audits, netns),
            }
        }
        Ok(())
    }
}

/// What became of the pins.
///
/// # Errors
/// When they are required and are not there.
fn pins(options: &Options, tracepoint: Option<&Tracepoint>) -> Result<PinsView, PlaneError> {
    let view = match (&options.pins, tracepoint) {
        (_, Some(tracepoint)) => tracepoint.pins().clone(),
        (Some(wanted), None) => PinsView { note: pin::abandon(wanted), ..PinsView::default() },
        (None, None) => PinsView::default(),
    };
    let pinned = matches!(view.state, PinState::Pinned | PinState::Adopted);
    if options.pins.as_ref().is_some_and(|wanted| wanted.required) && !pinned {
        let reason = if tracepoint.is_none() { "this tier has nothing to pin".to_owned() } else { view.note };
        return Err(PlaneError::Pins(reason));
    }
    Ok(view)
}
