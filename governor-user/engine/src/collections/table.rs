//! A hash table whose order cannot be observed: look-ups and changes only, no iteration, and a hasher without a seed.
//! So the engine stays a function of its inputs, and a look-up costs the same with ten keys and with a hundred
//! thousand.

#[expect(clippy::disallowed_types, reason = "the order of a map that cannot be iterated shows nowhere")]
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Values by key.
#[derive(Clone, Debug)]
#[expect(clippy::disallowed_types, reason = "see above")]
pub(crate) struct Table<K, V, H = Fold>(HashMap<K, V, BuildHasherDefault<H>>);

impl<K, V, H> Default for Table<K, V, H> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Eq + Hash, V, H: Hasher + Default> Table<K, V, H> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// The value of `key`, made if there is none.
    pub(crate) fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Empties it and keeps its room.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Folds what it is given by multiplication, the high half of the product into the low. Its keys are small integers the
/// engine hands out and hashes that proxies made with a secret: no peer chooses where they fall.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fold(u64);

impl Fold {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f_u128;
        let [low, high] = halves(product);
        self.0 = low ^ high;
    }
}

fn halves(word: u128) -> [u64; 2] {
    let bytes = word.to_le_bytes();
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    [half(0), half(8)]
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.fold(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_u128(&mut self, word: u128) {
        halves(word).into_iter().for_each(|half| self.fold(half));
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.fold(word.unsigned_abs() as u64);
    }
}

/// For keys that are numbered one after the other: neighbours stand side by side, so that those which come and go
/// together are found in the same cache lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InOrder(u64);

impl Hasher for InOrder {
    fn finish(&self) -> u64 {
        // A table takes the place from the low bits and tells neighbours apart by the highest seven.
        (self.0 << 57) | (self.0 & (u64::MAX >> 7))
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(8) ^ word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbouring_keys_fall_far_apart() {
        let low_bits = |key: u32| {
            let mut fold = Fold::default();
            key.hash(&mut fold);
            fold.finish() & 0xffff
        };
        let places: BTreeSet<u64> = (0..1000).map(low_bits).collect();
        assert!(places.len() > 950, "{} places for 1000 keys", places.len());
    }
}
