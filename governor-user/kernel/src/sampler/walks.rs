//! Walks over `/proc`: when one is due, and what is forgotten when it did not find a namespace again.

use super::Sampler;
use crate::proc::walk::{Sought, Walk};
use crate::programs::tracepoint::Reading;
use crate::sources::{HOST, Source};
use governor_observation::ProcessWalk;
use std::{collections::BTreeSet, time::Instant};

impl Sampler {
    /// Takes over what a walk found. One that did not work is not taken for an empty machine: namespaces stay, and holders
    /// for a while.
    pub(super) fn take_walk(&mut self, mut walk: Walk, now: Instant) {
        self.holders.update(&mut walk, now);
        self.last_walk = ProcessWalk::from(&walk);
        if let Some(reason) = &walk.failed {
            self.sources.failed(Source::Walk, HOST, reason, now);
            self.namespaces.add(walk.namespaces);
            return;
        }
        self.sources.works(Source::Walk, HOST);
        self.namespaces.update(walk.namespaces);
        self.counters.update(&self.namespaces.all().into_iter().collect());
        self.ledger.retain(|netns| self.namespaces.knows(netns));
        self.closed.retain(|netns| self.namespaces.knows(netns));
        self.connections.retain(|netns, _| self.namespaces.knows(*netns));
        self.abandoned.retain(|netns, _| self.namespaces.knows(*netns));
        self.sources.retain(|netns| self.namespaces.knows(netns));
        self.reached.retain(|netns| self.namespaces.knows(*netns));
        self.unread.retain(|netns| self.namespaces.knows(*netns));
        self.retry.retain(|netns, _| self.namespaces.knows(*netns));
        self.unfound.extend(std::mem::take(&mut self.sought));
        self.unfound.retain(|netns| !self.namespaces.knows(*netns));
    }

    /// Asks for a walk that finds namespaces, and the holders of listeners too if that is due.
    pub(super) fn ask_for_walk(&mut self, now: Instant) {
        if self.walker.is_busy() {
            return;
        }
        if !self.holders.may_walk(now) {
            self.walker.ask(Sought::default());
            return;
        }
        let (sought, cookies) = self.holders.sought(self.ledger.held());
        if self.walker.ask(sought) {
            self.holders.asked(cookies, now);
        }
    }

    /// Namespaces in which a listener was opened and that no walk has looked for yet.
    pub(super) fn unknown_namespaces(&self, reading: Option<&Reading>) -> BTreeSet<u64> {
        let counted = reading.into_iter().flat_map(|reading| &reading.listeners).map(|listener| listener.netns);
        counted.filter(|netns| !self.namespaces.knows(*netns) && !self.unfound.contains(netns)).collect()
    }
}
