//! Walks over `/proc`: when one is due, and what is forgotten when it did not find a namespace again.

use super::Sampler;
use crate::kernel::{tracepoint::Reading, walk::Walk};
use crate::wording::counted;
use std::{collections::BTreeSet, time::Instant};

impl Sampler {
    pub(super) fn take_walk(&mut self, walk: Walk, now: Instant) {
        self.namespaces.update(walk.namespaces);
        self.counters.update(&self.namespaces.all().into_iter().collect());
        self.ledger.retain(|netns| self.namespaces.knows(netns));
        self.closed.retain(|netns| self.namespaces.knows(netns));
        self.connections.retain(|netns, _| self.namespaces.knows(*netns));
        self.abandoned.retain(|netns, _| self.namespaces.knows(*netns));
        self.trouble.retain(|netns, _| self.namespaces.knows(*netns));
        self.holders.update(walk.holders, walk.took, now);
        self.unfound.extend(std::mem::take(&mut self.sought));
        self.unfound.retain(|netns| !self.namespaces.knows(*netns));
        self.blind.clear();
        if walk.unreadable > 0 {
            let blind = counted(
                walk.unreadable,
                "process cannot be read: its listeners show no pids and its namespace may be missing",
                "processes cannot be read: their listeners show no pids and their namespaces may be missing",
            );
            self.blind.push(blind.to_string());
        }
        if walk.truncated {
            self.blind.push("the walk over /proc ended at its bound: pids and namespaces are incomplete".to_owned());
        }
    }

    pub(super) fn ask_for_walk(&mut self, now: Instant) {
        let inodes: BTreeSet<u64> = self.ledger.inodes().collect();
        if self.walker.ask(inodes.clone()) {
            self.holders.asked(inodes, now);
        }
    }

    /// Namespaces in which a listener was opened and that no walk has looked for yet.
    pub(super) fn unknown_namespaces(&self, reading: Option<&Reading>) -> BTreeSet<u64> {
        let counted = reading.into_iter().flat_map(|reading| &reading.listeners).map(|listener| listener.netns);
        counted.filter(|netns| !self.namespaces.knows(*netns) && !self.unfound.contains(netns)).collect()
    }
}
