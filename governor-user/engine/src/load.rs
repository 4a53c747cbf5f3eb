//! How much is in flight somewhere: on a member, on no member, or over a candidate set. One type, because these
//! three must agree: counts change by one lease at a time, and an entry is gone when it reaches 0. Knows no limits.

use std::collections::BTreeMap;

use crate::id::KeyId;
use crate::io::Kind;

/// Who holds: a key, or all requests without a key taken together.
pub(crate) type Holder = Option<KeyId>;

/// Leases in flight, by holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    total: u32,
    ordinary: u32,
    by_holder: BTreeMap<Holder, u32>,
}

impl Load {
    /// Leases of every kind.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Leases that went through the ordinary door, re-attached ones left out.
    pub(crate) fn ordinary(&self) -> u32 {
        self.ordinary
    }

    /// Leases of one holder.
    pub(crate) fn of(&self, holder: Holder) -> u32 {
        self.by_holder.get(&holder).copied().unwrap_or(0)
    }

    /// Keys with at least one lease. Requests without a key are nobody's.
    pub(crate) fn active_keys(&self) -> u32 {
        let holders = u32::try_from(self.by_holder.len()).unwrap_or(u32::MAX);
        holders - u32::from(self.by_holder.contains_key(&None))
    }

    /// One lease more; the holder's new count.
    pub(crate) fn add(&mut self, holder: Holder, kind: Kind) -> u32 {
        self.total += 1;
        self.ordinary += u32::from(kind == Kind::Ordinary);
        let count = self.by_holder.entry(holder).or_insert(0);
        *count += 1;
        *count
    }

    /// One lease less; the holder's new count. Removing what was never added changes nothing.
    pub(crate) fn remove(&mut self, holder: Holder, kind: Kind) -> u32 {
        let Some(count) = self.by_holder.get_mut(&holder) else {
            debug_assert!(false, "a lease is removed only where it was added");
            return 0;
        };
        *count -= 1;
        let left = *count;
        if left == 0 {
            self.by_holder.remove(&holder);
        }
        self.total -= 1;
        self.ordinary -= u32::from(kind == Kind::Ordinary);
        left
    }

    /// Every lease that has a key, by its key.
    pub(crate) fn each(&self, mut one: impl FnMut(KeyId)) {
        for (holder, count) in &self.by_holder {
            holder.iter().for_each(|key| (0..*count).for_each(|_| one(*key)));
        }
    }

    /// Everything in `other` on top.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.ordinary += other.ordinary;
        for (holder, count) in &other.by_holder {
            *self.by_holder.entry(*holder).or_insert(0) += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_gone_at_zero_and_requests_without_a_key_are_not_an_active_key() {
        let mut load = Load::default();
        assert_eq!(load.add(Some(KeyId(1)), Kind::Ordinary), 1);
        assert_eq!(load.add(None, Kind::Reattach), 1);
        assert_eq!((load.total(), load.ordinary(), load.active_keys()), (2, 1, 1));

        assert_eq!(load.remove(Some(KeyId(1)), Kind::Ordinary), 0);
        assert_eq!(load.remove(None, Kind::Reattach), 0);

        assert_eq!(load, Load::default());
    }
}
