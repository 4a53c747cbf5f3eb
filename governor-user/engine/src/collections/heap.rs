//! A binary heap whose owners know where they stand in it, so that one can be taken out or moved at the cost of a
//! logarithm and without an allocation. Ranks are unique: what comes first depends on nothing else.

use crate::collections::slots::Slot;

/// A place in the heap.
pub(crate) type Place = u32;

/// Owners by rank, the least first.
#[derive(Clone, Debug)]
pub(crate) struct Heap<R> {
    entries: Vec<(R, Slot)>,
}

impl<R> Default for Heap<R> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<R: Ord + Copy> Heap<R> {
    /// The least.
    pub(crate) fn first(&self) -> Option<(R, Slot)> {
        self.entries.first().copied()
    }

    /// All, in no order. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (R, Slot)> + '_ {
        self.entries.iter().copied()
    }

    /// Puts an owner in. `stands` is called, here and below, for every owner whose place changed.
    pub(crate) fn insert(&mut self, rank: R, owner: Slot, mut stands: impl FnMut(Slot, Place)) {
        self.entries.push((rank, owner));
        self.rise(self.entries.len() - 1, &mut stands);
    }

    /// Takes out who stands at `place`.
    pub(crate) fn remove(&mut self, place: Place, mut stands: impl FnMut(Slot, Place)) {
        let at = place as usize;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            let at = self.rise(at, &mut stands);
            self.sink(at, &mut stands);
        }
    }

    /// Gives who stands at `place` another rank.
    pub(crate) fn rerank(&mut self, place: Place, rank: R, mut stands: impl FnMut(Slot, Place)) {
        let at = place as usize;
        self.entries[at].0 = rank;
        let at = self.rise(at, &mut stands);
        self.sink(at, &mut stands);
    }

    fn rise(&mut self, mut at: usize, stands: &mut impl FnMut(Slot, Place)) -> usize {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.entries[above].0 <= self.entries[at].0 {
                break;
            }
            self.entries.swap(above, at);
            self.tell(at, stands);
            at = above;
        }
        self.tell(at, stands);
        at
    }

    fn sink(&mut self, mut at: usize, stands: &mut impl FnMut(Slot, Place)) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let rank = |n: usize| self.entries.get(n).map(|entry| entry.0);
            let (Some(left_rank), below) = (rank(left), rank(right)) else { break };
            let least = if below.is_some_and(|right| right < left_rank) { right } else { left };
            if self.entries[at].0 <= self.entries[least].0 {
                break;
            }
            self.entries.swap(at, least);
            self.tell(at, stands);
            at = least;
        }
        self.tell(at, stands);
    }

    fn tell(&self, at: usize, stands: &mut impl FnMut(Slot, Place)) {
        stands(self.entries[at].1, Place::try_from(at).expect("owners are counted in u32"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_first_whoever_comes_goes_or_changes() {
        let mut heap = Heap::default();
        let mut places: Vec<Place> = vec![0; 50];
        let mut ranks: Vec<Option<(u32, Slot)>> = vec![None; 50];
        let mut state = 3_u32;
        for _ in 0..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let owner = (state >> 16) % 50;
            let (at, rank) = (owner as usize, ((state >> 8) % 9, owner));
            match (ranks[at], state >> 30) {
                (None, _) => heap.insert(rank, owner, |owner, place| places[owner as usize] = place),
                (Some(_), 0) => heap.remove(places[at], |owner, place| places[owner as usize] = place),
                (Some(_), _) => heap.rerank(places[at], rank, |owner, place| places[owner as usize] = place),
            }
            ranks[at] = if ranks[at].is_some() && state >> 30 == 0 { None } else { Some(rank) };
            assert_eq!(heap.first().map(|(rank, _)| rank), ranks.iter().flatten().min().copied());
            for (place, (_, owner)) in heap.iter().enumerate() {
                assert_eq!(places[owner as usize] as usize, place);
            }
        }
    }
}
