//! How much one walk over `/proc` may look at, for every user alone and for all together: a user with a million
//! descriptors uses up its own budget and no other user's. Pure.

use std::collections::BTreeMap;

/// Bounds of one walk, in entries: descriptors or tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of the processes of one user.
    pub(crate) per_user: usize,
    /// Altogether.
    pub(crate) all: usize,
    /// Descriptors of each process that are looked at before any process is looked through: a server opens its
    /// listeners first, so that they have low numbers.
    pub(crate) first_look: usize,
}

/// A walk of at most 0.1 s for one user and half a second altogether, at some microsecond an entry.
pub(crate) const LIMITS: Limits = Limits { per_user: 65_536, all: 400_000, first_look: 1_024 };

/// What is left.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    spent: usize,
    by_user: BTreeMap<u32, usize>,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, spent: 0, by_user: BTreeMap::new() }
    }

    /// Entries of a user that may still be looked at.
    pub(crate) fn left(&self, user: u32) -> usize {
        let of_user = self.limits.per_user.saturating_sub(self.by_user.get(&user).copied().unwrap_or(0));
        of_user.min(self.limits.all.saturating_sub(self.spent))
    }

    /// So many entries of a user were looked at.
    pub(crate) fn spend(&mut self, user: u32, entries: usize) {
        self.spent = self.spent.saturating_add(entries);
        let of_user = self.by_user.entry(user).or_default();
        *of_user = of_user.saturating_add(entries);
    }

    /// Entries looked at so far.
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_nothing_from_another() {
        let mut budget = Budget::new(Limits { per_user: 10, all: 15, first_look: 1 });
        budget.spend(7, 10);
        assert_eq!((budget.left(7), budget.left(8)), (0, 5), "but all together are bounded");
        budget.spend(8, 5);
        assert_eq!((budget.left(8), budget.left(9), budget.spent()), (0, 0, 15));
    }
}
