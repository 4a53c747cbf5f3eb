//! How much every key wants over one candidate set, in flight and parked, kept so that water-filling costs a logarithm.
//!
//! For every count t there is the number of keys that want at least t. What all keys would hold if none might hold more
//! than `limit` is then the sum of those numbers up to `limit`: a prefix of a Fenwick tree. One request more or less
//! changes one of the numbers by one. Knows no capacity and no rule.

use std::collections::BTreeMap;

use crate::id::KeyId;

/// Demand by key, and its order statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    by_key: BTreeMap<KeyId, u32>,
    /// A Fenwick tree over t = 1, 2, …: index 0 is unused, the length is one more than a power of two.
    at_least: Vec<u32>,
}

impl Demand {
    /// What a key wants.
    pub(crate) fn of(&self, key: KeyId) -> u32 {
        self.by_key.get(&key).copied().unwrap_or(0)
    }

    /// One request more.
    pub(crate) fn add(&mut self, key: KeyId) {
        let wanted = self.by_key.entry(key).or_insert(0);
        *wanted += 1;
        let t = *wanted as usize;
        self.reach(t);
        self.change(t, |keys| *keys += 1);
    }

    /// One request less.
    pub(crate) fn remove(&mut self, key: KeyId) {
        let Some(wanted) = self.by_key.get_mut(&key) else {
            debug_assert!(false, "what is no longer wanted was wanted");
            return;
        };
        let t = *wanted as usize;
        *wanted -= 1;
        if t == 1 {
            self.by_key.remove(&key);
        }
        self.change(t, |keys| *keys -= 1);
    }

    /// Nobody wants anything.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.at_least.fill(0);
    }

    /// What all keys would hold if each held what it wants, but at most `limit`.
    pub(crate) fn filled(&self, limit: u32) -> u64 {
        let mut t = (limit as usize).min(self.at_least.len().saturating_sub(1));
        let mut sum = 0;
        while t > 0 {
            sum += u64::from(self.at_least[t]);
            t &= t - 1;
        }
        sum
    }

    /// What each key wants. For checks.
    pub(crate) fn by_key(&self) -> &BTreeMap<KeyId, u32> {
        &self.by_key
    }

    /// Makes room for `t`. The new root of a doubled tree covers all that was there: it is the old root's sum.
    fn reach(&mut self, t: usize) {
        if self.at_least.is_empty() {
            self.at_least = vec![0; 2];
        }
        while self.at_least.len() <= t {
            let size = self.at_least.len() - 1;
            let everything = self.at_least[size];
            self.at_least.resize(2 * size + 1, 0);
            self.at_least[2 * size] = everything;
        }
    }

    fn change(&mut self, mut t: usize, change: impl Fn(&mut u32)) {
        while let Some(keys) = self.at_least.get_mut(t) {
            change(keys);
            t += t & t.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_agrees_with_adding_up_key_by_key() {
        let mut demand = Demand::default();
        let mut wanted = [0_u32; 7];
        let mut state = 9_u32;
        for _ in 0..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (state >> 16) as usize % wanted.len();
            let id = KeyId(key as u128);
            if (state >> 28) < 9 {
                wanted[key] += 1;
                demand.add(id);
            } else if wanted[key] > 0 {
                wanted[key] -= 1;
                demand.remove(id);
            }
            assert_eq!(demand.of(id), wanted[key]);
            for limit in [0, 1, 2, 5, 17, 400, u32::MAX] {
                let filled: u64 = wanted.iter().map(|wanted| u64::from((*wanted).min(limit))).sum();
                assert_eq!(demand.filled(limit), filled, "{wanted:?} up to {limit}");
            }
        }
    }
}
