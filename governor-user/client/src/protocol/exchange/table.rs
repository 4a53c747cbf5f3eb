//! Things by the number they go by. A look-up costs the same with ten and with ten thousand, an empty table keeps its
//! room, and what is done to all of them is done in order of their numbers wherever the order shows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem;

/// Values by number.
pub(super) struct Table<K, V>(HashMap<K, V, BuildHasherDefault<Spread>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Copy + Hash + Ord, V> Table<K, V> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, number: K) -> Option<&V> {
        self.0.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: K) -> Option<&mut V> {
        self.0.get_mut(&number)
    }

    pub(super) fn insert(&mut self, number: K, value: V) {
        self.0.insert(number, value);
    }

    pub(super) fn remove(&mut self, number: K) -> Option<V> {
        self.0.remove(&number)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|_, value| keep(value));
    }

    /// All values, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    /// All values, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    /// The numbers of those that `wanted` accepts, in order.
    pub(super) fn in_order(&self, wanted: impl Fn(&V) -> bool) -> Vec<K> {
        let mut numbers: Vec<K> = self.0.iter().filter(|(_, value)| wanted(value)).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Takes all values, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = V> + use<K, V> {
        let mut all: Vec<(K, V)> = mem::take(&mut self.0).into_iter().collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, value)| value)
    }
}

/// Spreads numbers that this process or the daemon counts up: no peer chooses where they fall.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // Odd and without pattern, so that the high bits depend on all of the number and the low ones differ as it
        // does.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
