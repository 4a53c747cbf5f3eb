//! Chains through slots: who belongs together, in the order they came, without a container for each. The links stand
//! beside the slots, so that one goes out of the middle at no more cost than from an end.

use crate::collections::slots::Slot;

/// No slot.
const NONE: Slot = Slot::MAX;

/// The links of all chains through one set of slots. A slot is in one chain at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    of: Vec<(Slot, Slot)>,
}

/// One chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    first: Slot,
    last: Slot,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Chain {
    pub(crate) fn first(&self) -> Option<Slot> {
        Some(self.first).filter(|slot| *slot != NONE)
    }

    pub(crate) fn last(&self) -> Option<Slot> {
        Some(self.last).filter(|slot| *slot != NONE)
    }
}

impl Links {
    /// Adds a slot at a chain's end.
    pub(crate) fn append(&mut self, chain: &mut Chain, slot: Slot) {
        if self.of.len() <= slot as usize {
            self.of.resize(slot as usize + 1, (NONE, NONE));
        }
        self.of[slot as usize] = (chain.last, NONE);
        match chain.last() {
            Some(last) => self.of[last as usize].1 = slot,
            None => chain.first = slot,
        }
        chain.last = slot;
    }

    /// Takes a slot out of the chain it is in.
    pub(crate) fn remove(&mut self, chain: &mut Chain, slot: Slot) {
        let (before, after) = self.of[slot as usize];
        match before {
            NONE => chain.first = after,
            _ => self.of[before as usize].1 = after,
        }
        match after {
            NONE => chain.last = before,
            _ => self.of[after as usize].0 = before,
        }
    }

    /// The slots of a chain, first to last.
    pub(crate) fn iter(&self, chain: Chain) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(chain.first(), |slot| Some(self.of[*slot as usize].1).filter(|next| *next != NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_loses_its_ends_and_its_middle() {
        let (mut links, mut chain) = (Links::default(), Chain::default());
        for slot in [4, 0, 7, 2] {
            links.append(&mut chain, slot);
        }
        for (out, left) in [(0, vec![4, 7, 2]), (4, vec![7, 2]), (2, vec![7]), (7, vec![])] {
            links.remove(&mut chain, out);
            assert_eq!(links.iter(chain).collect::<Vec<_>>(), left);
            assert_eq!((chain.first(), chain.last()), (left.first().copied(), left.last().copied()));
        }
    }
}
