//! Quick marks that outlived their connection. A close that no hook saw leaves its mark in the table and its place taken for
//! as long as the programs run; the audit that finds the connection gone finds the mark too. Pure: knows no map.
//!
//! A mark does not say in which network namespace its connection is, and those of a namespace that cannot be scanned look
//! just like it. So marks are freed only where no more of them are unseen than connections are known to be gone.

use governor_common::abi::QuickMark;
use std::collections::{BTreeMap, BTreeSet};

/// Connections by the cgroup and the direction that they were counted under.
pub(crate) type Gone = BTreeMap<(u64, u32), u64>;

/// The marks from before an audit's scans, and what the scans saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    before: Vec<QuickMark>,
    seen: BTreeSet<u64>,
}

impl Marks {
    /// Those that may turn out to be stale, as they are before the first scan: what is opened later was not seen by it.
    pub(crate) fn new(before: Vec<QuickMark>) -> Self {
        Self { before, seen: BTreeSet::new() }
    }

    /// Adds the cookies of the connections that a scan saw.
    pub(crate) fn note(&mut self, cookies: &[u64]) {
        if !self.before.is_empty() {
            self.seen.extend(cookies);
        }
    }

    /// The cookies of the marks whose connections are among those that are gone. `is_there` tells whether a mark still is.
    pub(crate) fn stale(&self, gone: &Gone, is_there: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut stale = Vec::new();
        for (of, count) in gone {
            let unseen = self.before.iter().filter(|mark| (mark.cgroup, mark.direction) == *of);
            let unseen = unseen.map(|mark| mark.cookie).filter(|cookie| !self.seen.contains(cookie));
            let left: Vec<u64> = unseen.filter(|cookie| is_there(*cookie)).collect();
            if u64::try_from(left.len()).is_ok_and(|left| left <= *count) {
                stale.extend(left);
            }
        }
        stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        let mark = |cookie, cgroup, direction| QuickMark { cookie, cgroup, direction, ..QuickMark::default() };
        let mut marks = Marks::new(vec![mark(1, 7, 2), mark(2, 7, 2), mark(3, 7, 2), mark(4, 7, 1), mark(5, 8, 2)]);
        marks.note(&[2, 99]);
        marks
    }

    #[test]
    fn marks_that_no_scan_saw_are_stale_where_as_many_connections_are_gone() {
        let gone = Gone::from([((7, 2), 2), ((8, 2), 1)]);
        assert_eq!(marks().stale(&gone, |_| true), [1, 3, 5]);
    }

    #[test]
    fn a_mark_that_went_by_itself_is_none() {
        assert_eq!(marks().stale(&Gone::from([((7, 2), 1)]), |cookie| cookie != 3), [1]);
    }

    #[test]
    fn where_more_are_unseen_than_gone_nobody_knows_which() {
        assert_eq!(marks().stale(&Gone::from([((7, 2), 1)]), |_| true), [0; 0]);
    }
}
