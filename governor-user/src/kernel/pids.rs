//! Which processes hold each listener, as of the last walk over `/proc`, and whether a new listener asks for another.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Walks are at least this far apart, and …
const PAUSE: Duration = Duration::from_secs(1);
/// … take at most this share of the time, so that a host with a million descriptors is not walked all day.
const SHARE: u32 = 20;

/// Holders by inode.
#[derive(Debug)]
pub(crate) struct Holders {
    by_inode: BTreeMap<u64, Vec<u32>>,
    /// Inodes looked for by the walk under way or the last one.
    looked_for: BTreeSet<u64>,
    not_before: Option<Instant>,
}

impl Holders {
    /// Nothing known yet.
    pub(crate) fn new() -> Self {
        Self { by_inode: BTreeMap::new(), looked_for: BTreeSet::new(), not_before: None }
    }

    /// Whether a walk between audits is worth it and due: a listener is held by nobody knows whom.
    pub(crate) fn wants_walk(&self, mut inodes: impl Iterator<Item = u64>, now: Instant) -> bool {
        self.may_walk(now) && inodes.any(|inode| !self.looked_for.contains(&inode))
    }

    /// Whether enough time has passed since the last walk.
    pub(crate) fn may_walk(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|then| now >= then)
    }

    /// A walk for `inodes` was asked for.
    pub(crate) fn asked(&mut self, inodes: BTreeSet<u64>, now: Instant) {
        self.looked_for = inodes;
        self.not_before = Some(now + PAUSE);
    }

    /// Takes over what a walk found that took this long.
    pub(crate) fn update(&mut self, found: BTreeMap<u64, Vec<u32>>, took: Duration, now: Instant) {
        self.by_inode = found;
        self.not_before = Some(now + PAUSE.max(took * SHARE));
    }

    /// Processes that hold the socket with this inode; empty when none is known.
    pub(crate) fn of(&self, inode: u64) -> Vec<u32> {
        self.by_inode.get(&inode).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_listener_asks_for_a_walk_once_and_not_too_often() {
        let start = Instant::now();
        let mut holders = Holders::new();
        assert!(holders.wants_walk([5].into_iter(), start));
        holders.asked(BTreeSet::from([5]), start);
        holders.update(BTreeMap::from([(5, vec![42])]), Duration::from_millis(100), start);
        assert_eq!(holders.of(5), vec![42]);
        assert!(!holders.wants_walk([5].into_iter(), start + Duration::from_secs(60)));

        // The walk took 100 ms, so the next may begin 2 s after it.
        assert!(!holders.wants_walk([5, 6].into_iter(), start + Duration::from_millis(1_999)));
        assert!(holders.wants_walk([5, 6].into_iter(), start + Duration::from_millis(2_000)));
    }
}
