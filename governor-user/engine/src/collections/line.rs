//! Owners by rank, as a heap that most never enter: who comes with a rank above all others stands in a line, and goes
//! out of it, from anywhere, at the cost of two links. Ends of leases come so, one ttl after the other, and so do
//! waits. Who comes out of order (a shorter ttl, a client that is gone) goes into the heap beside it.

use crate::collections::chain::{Chain, Links};
use crate::collections::heap::{Heap, Place};
use crate::collections::slots::Slot;

/// Stands in the line. A heap has fewer places: owners are counted in `u32`.
const IN_LINE: Place = Place::MAX;

/// Owners by rank, the least first. Ranks are unique.
#[derive(Clone, Debug)]
pub(crate) struct Line<R> {
    chain: Chain,
    links: Links,
    /// Of those in the line, by slot.
    ranks: Vec<R>,
    heap: Heap<R>,
}

impl<R> Default for Line<R> {
    fn default() -> Self {
        Self { chain: Chain::default(), links: Links::default(), ranks: Vec::new(), heap: Heap::default() }
    }
}

impl<R: Ord + Copy + Default> Line<R> {
    /// The least.
    pub(crate) fn first(&self) -> Option<(R, Slot)> {
        let line = self.chain.first().map(|slot| (self.ranks[slot as usize], slot));
        match (line, self.heap.first()) {
            (Some(line), Some(heap)) => Some(line.min(heap)),
            (line, heap) => line.or(heap),
        }
    }

    /// All, in no order. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (R, Slot)> + '_ {
        self.links.iter(self.chain).map(|slot| (self.ranks[slot as usize], slot)).chain(self.heap.iter())
    }

    /// Puts an owner in. `stands` is called, here and below, for every owner whose place changed.
    pub(crate) fn insert(&mut self, rank: R, owner: Slot, mut stands: impl FnMut(Slot, Place)) {
        if self.chain.last().is_some_and(|last| rank < self.ranks[last as usize]) {
            return self.heap.insert(rank, owner, stands);
        }
        if self.ranks.len() <= owner as usize {
            self.ranks.resize(owner as usize + 1, R::default());
        }
        self.ranks[owner as usize] = rank;
        self.links.append(&mut self.chain, owner);
        stands(owner, IN_LINE);
    }

    /// Takes out an owner who stands at `place`.
    pub(crate) fn remove(&mut self, owner: Slot, place: Place, stands: impl FnMut(Slot, Place)) {
        match place {
            IN_LINE => self.links.remove(&mut self.chain, owner),
            place => self.heap.remove(place, stands),
        }
    }

    /// Gives an owner who stands at `place` another rank.
    pub(crate) fn rerank(&mut self, owner: Slot, place: Place, rank: R, mut stands: impl FnMut(Slot, Place)) {
        self.remove(owner, place, &mut stands);
        self.insert(rank, owner, stands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_first_in_whatever_order_they_come() {
        let mut state = 5_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 10) % below
        };
        for disorder in [1, 3, 1000] {
            let (mut line, mut places) = (Line::default(), vec![0; 40]);
            let mut ranks: Vec<Option<(u32, Slot)>> = vec![None; 40];
            for now in 0..3000 {
                let owner = random(40);
                let (at, rank) = (owner as usize, (now + 100 * random(disorder), owner));
                let stands = |owner: Slot, place| places[owner as usize] = place;
                match (ranks[at], random(3)) {
                    (None, _) => line.insert(rank, owner, stands),
                    (Some(_), 0) => line.rerank(owner, places[at], rank, |owner, place| places[owner as usize] = place),
                    (Some(_), _) => line.remove(owner, places[at], |owner, place| places[owner as usize] = place),
                }
                let there = line.iter().any(|(_, stands)| stands == owner);
                ranks[at] = there.then_some(rank);
                assert_eq!(line.first().map(|(rank, _)| rank), ranks.iter().flatten().min().copied());
                assert_eq!(line.iter().count(), ranks.iter().flatten().count());
            }
            let waits = line.heap.iter().count();
            assert_eq!(waits > 0, disorder > 1, "{waits} of {disorder} stand in the heap");
        }
    }
}
