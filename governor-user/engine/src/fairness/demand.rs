//! Demand of all principals over one candidate set, in flight and parked, kept so that water-filling costs a logarithm.
//!
//! Those of equal weight and floor differ in nothing but how much they want. For each such terms and every count t
//! there is the number of those that want at least t; what they would hold if none might hold more than a limit is then
//! the sum of those numbers up to it: a prefix of a Fenwick tree. One request more or less changes one of the numbers
//! by one. Knows no capacity, no rule and no principal by name.

use crate::identity::entitle::Terms;

/// Unused terms are kept for reuse up to this many.
const IDLE_TERMS: usize = 8;

/// Order statistics of demand, by terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    by_terms: Vec<OfTerms>,
}

/// Demand of those on the same terms.
#[derive(Clone, Debug)]
struct OfTerms {
    terms: Terms,
    /// A Fenwick tree over t = 1, 2, …: index 0 is unused, the length is one more than a power of two.
    at_least: Vec<u32>,
}

impl Demand {
    /// A principal on these terms wants one more, `wanted` in all.
    pub(crate) fn add(&mut self, terms: Terms, wanted: u32) {
        let of = match self.by_terms.iter().position(|of| of.terms == terms) {
            Some(at) => &mut self.by_terms[at],
            None => {
                self.by_terms.push(OfTerms { terms, at_least: vec![0; 2] });
                self.by_terms.last_mut().expect("it was just pushed")
            }
        };
        of.reach(wanted as usize);
        of.change(wanted as usize, |parties| *parties += 1);
    }

    /// A principal on these terms wants one less; it was `wanted`.
    pub(crate) fn remove(&mut self, terms: Terms, wanted: u32) {
        let Some(at) = self.by_terms.iter().position(|of| of.terms == terms) else {
            debug_assert!(false, "what is no longer wanted was wanted");
            return;
        };
        self.by_terms[at].change(wanted as usize, |parties| *parties -= 1);
        if self.by_terms.len() > IDLE_TERMS && self.by_terms[at].parties() == 0 {
            self.by_terms.swap_remove(at);
        }
    }

    /// There is no demand.
    pub(crate) fn clear(&mut self) {
        self.by_terms.iter_mut().for_each(|of| of.at_least.fill(0));
    }

    /// What all would hold if each held what it wants, but at most the `limit` of its terms.
    pub(crate) fn filled(&self, limit: impl Fn(Terms) -> u32) -> u64 {
        self.by_terms.iter().map(|of| of.filled(limit(of.terms))).sum()
    }

    /// Floors of all that want something.
    pub(crate) fn floors(&self) -> u64 {
        self.by_terms.iter().map(|of| u64::from(of.terms.floor) * u64::from(of.parties())).sum()
    }
}

impl OfTerms {
    /// How many want anything.
    fn parties(&self) -> u32 {
        self.at_least.get(1).copied().unwrap_or(0)
    }

    fn filled(&self, limit: u32) -> u64 {
        let mut t = (limit as usize).min(self.at_least.len().saturating_sub(1));
        let mut sum = 0;
        while t > 0 {
            sum += u64::from(self.at_least[t]);
            t &= t - 1;
        }
        sum
    }

    /// Makes room for `t`. The new root of a doubled tree covers all that was there: it is the old root's sum.
    fn reach(&mut self, t: usize) {
        while self.at_least.len() <= t {
            let size = self.at_least.len() - 1;
            let everything = self.at_least[size];
            self.at_least.resize(2 * size + 1, 0);
            self.at_least[2 * size] = everything;
        }
    }

    fn change(&mut self, mut t: usize, change: impl Fn(&mut u32)) {
        while let Some(parties) = self.at_least.get_mut(t) {
            change(parties);
            t += t & t.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_agrees_with_adding_up_one_by_one() {
        let on = |party: usize| Terms { weight: [1, 3][party % 2], floor: u32::try_from(party % 3).expect("small") };
        let mut demand = Demand::default();
        let mut wanted = [0_u32; 12];
        let mut state = 9_u32;
        for _ in 0..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let party = (state >> 16) as usize % wanted.len();
            if (state >> 28) < 9 {
                wanted[party] += 1;
                demand.add(on(party), wanted[party]);
            } else if wanted[party] > 0 {
                demand.remove(on(party), wanted[party]);
                wanted[party] -= 1;
            }
            for level in [0, 1, 2, 5, 17, 400] {
                let limit = |terms: Terms| (terms.weight * level).max(terms.floor);
                let filled: u64 = wanted.iter().zip(0..).map(|(d, party)| u64::from((*d).min(limit(on(party))))).sum();
                assert_eq!(demand.filled(limit), filled, "{wanted:?} up to {level}");
            }
            let floors: u64 = (0..wanted.len()).filter(|p| wanted[*p] > 0).map(|p| u64::from(on(p).floor)).sum();
            assert_eq!(demand.floors(), floors);
        }
    }
}
