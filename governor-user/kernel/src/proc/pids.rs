//! Which processes hold each listener, as of the last walk over `/proc`, and whether a new listener asks for another.

use crate::proc::walk::{Holder, Sought, Walk};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Walks over descriptors are at least this far apart, and …
const PAUSE: Duration = Duration::from_secs(1);
/// … take at most this share of the time, audits' included, so that a host with a million descriptors is not walked all day.
const SHARE: u32 = 20;
/// Holders are believed for so long while no walk works: a process id is given to another process some time.
const BELIEVED: Duration = Duration::from_secs(30);

/// A listener as it is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Inode number of its descriptors.
    pub(crate) inode: u64,
    /// Its namespace.
    pub(crate) netns: u64,
    /// Its cookie, where the table has it. The kernel reuses inode numbers, but never a cookie.
    pub(crate) cookie: Option<u64>,
}

/// Holders by inode.
#[derive(Debug)]
pub(crate) struct Holders {
    by_inode: BTreeMap<u64, Vec<Holder>>,
    /// Inodes looked for by the walk under way or the last one, with the cookies of their sockets.
    looked_for: BTreeMap<u64, Option<u64>>,
    not_before: Option<Instant>,
    /// When a walk last worked.
    believed_from: Option<Instant>,
    /// By user: the process after which the last walk was cut off.
    after: BTreeMap<u32, u32>,
}

impl Holders {
    /// Nothing known yet.
    pub(crate) fn new() -> Self {
        Self {
            by_inode: BTreeMap::new(),
            looked_for: BTreeMap::new(),
            not_before: None,
            believed_from: None,
            after: BTreeMap::new(),
        }
    }

    /// Whether a walk between audits is worth it and due: it is not known who holds a listener.
    pub(crate) fn wants_walk(&self, mut listeners: impl Iterator<Item = Listener>, now: Instant) -> bool {
        self.may_walk(now) && listeners.any(|listener| !self.is_looked_for(listener.inode, listener.cookie))
    }

    /// Whether enough time has passed since the last walk over descriptors.
    pub(crate) fn may_walk(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|then| now >= then)
    }

    /// What a walk for these listeners looks for.
    pub(crate) fn sought(&self, listeners: impl Iterator<Item = Listener>) -> (Sought, BTreeMap<u64, Option<u64>>) {
        let mut sought = Sought { after: self.after.clone(), ..Sought::default() };
        let mut cookies = BTreeMap::new();
        for Listener { inode, netns, cookie } in listeners {
            sought.sockets.insert(inode, netns);
            cookies.insert(inode, cookie);
            if let Some(holders) = self.by_inode.get(&inode).filter(|_| self.is_looked_for(inode, cookie)) {
                sought.known.insert(inode, holders.clone());
            }
        }
        (sought, cookies)
    }

    /// A walk for these sockets was asked for.
    pub(crate) fn asked(&mut self, cookies: BTreeMap<u64, Option<u64>>, now: Instant) {
        let same = |inode: &u64| self.looked_for.get(inode) == cookies.get(inode);
        self.by_inode.retain(|inode, _| same(inode));
        self.looked_for = cookies;
        self.not_before = Some(now + PAUSE);
    }

    /// Takes over the result of a walk. A failed walk keeps the known holders for [`BELIEVED`].
    pub(crate) fn update(&mut self, walk: &mut Walk, now: Instant) {
        if walk.failed.is_some() {
            if self.believed_from.is_some_and(|then| now.saturating_duration_since(then) >= BELIEVED) {
                self.by_inode.clear();
            }
        } else if walk.searched {
            self.believed_from = Some(now);
            self.by_inode = std::mem::take(&mut walk.holders);
            self.after = walk.left_out.iter().map(|(user, left_out)| (*user, left_out.after)).collect();
        }
        if walk.searched {
            self.not_before = Some(now + PAUSE.max(walk.took * SHARE));
        }
    }

    /// Processes that hold the socket with this inode; empty when none is known.
    pub(crate) fn of(&self, inode: u64, cookie: Option<u64>) -> Vec<u32> {
        let known = self.by_inode.get(&inode).filter(|_| self.is_looked_for(inode, cookie));
        known.into_iter().flatten().map(|holder| holder.pid).collect()
    }

    fn is_looked_for(&self, inode: u64, cookie: Option<u64>) -> bool {
        self.looked_for.get(&inode).is_some_and(|of| of.is_none() || cookie.is_none() || *of == cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(inode: u64, cookie: u64) -> Listener {
        Listener { inode, netns: 1, cookie: Some(cookie) }
    }

    fn walk_for(holders: &mut Holders, listeners: &[Listener], found: &[(u64, u32)], took: Duration, now: Instant) {
        let (_, cookies) = holders.sought(listeners.iter().copied());
        holders.asked(cookies, now);
        let of = |(inode, pid): &(u64, u32)| (*inode, vec![Holder { pid: *pid, descriptor: 3 }]);
        let holders_found = found.iter().map(of).collect();
        holders.update(&mut Walk { searched: true, holders: holders_found, took, ..Walk::default() }, now);
    }

    #[test]
    fn a_new_listener_asks_for_a_walk_once_and_not_too_often() {
        let start = Instant::now();
        let mut holders = Holders::new();
        assert!(holders.wants_walk([listener(5, 1)].into_iter(), start));
        walk_for(&mut holders, &[listener(5, 1)], &[(5, 42)], Duration::from_millis(100), start);
        assert_eq!(holders.of(5, Some(1)), vec![42]);
        assert!(!holders.wants_walk([listener(5, 1)].into_iter(), start + Duration::from_secs(60)));

        // The walk took 100 ms, so the next may begin 2 s after it.
        let both = || [listener(5, 1), listener(6, 2)].into_iter();
        assert!(!holders.wants_walk(both(), start + Duration::from_millis(1_999)));
        assert!(holders.wants_walk(both(), start + Duration::from_millis(2_000)));
    }

    #[test]
    fn an_inode_that_another_socket_got_has_no_known_holder() {
        let start = Instant::now();
        let mut holders = Holders::new();
        walk_for(&mut holders, &[listener(5, 1)], &[(5, 42)], Duration::ZERO, start);
        assert_eq!((holders.of(5, Some(2)), holders.of(5, None)), (vec![], vec![42]));
        assert!(holders.wants_walk([listener(5, 2)].into_iter(), start + PAUSE));
        let (sought, _) = holders.sought([listener(5, 2)].into_iter());
        assert!(sought.known.is_empty());
    }

    #[test]
    fn holders_are_believed_for_a_while_when_walks_fail() {
        let start = Instant::now();
        let mut holders = Holders::new();
        walk_for(&mut holders, &[listener(5, 1)], &[(5, 42)], Duration::ZERO, start);
        let failed = || Walk { searched: true, failed: Some("too many open files".into()), ..Walk::default() };
        holders.update(&mut failed(), start + Duration::from_secs(29));
        assert_eq!(holders.of(5, Some(1)), vec![42]);
        holders.update(&mut failed(), start + Duration::from_secs(30));
        assert_eq!(holders.of(5, Some(1)), vec![0; 0]);
    }
}
