//! The fair-share rule, as arithmetic on numbers that the caller counted. Integers only, so that every implementation
//! of the rule comes to the same answer.

use crate::fairness::demand::Demand;
use crate::identity::entitle::Terms;
use crate::policy::FairShare;

/// What the rule is asked about one requester in one candidate set, before this admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) rule: FairShare,
    pub(crate) min_guarantee: u32,
    /// C.
    pub(crate) capacity: u32,
    /// T.
    pub(crate) total: u32,
    /// In flight of those without a key.
    pub(crate) keyless: u32,
    /// Keys in flight, the requester counted exactly once.
    pub(crate) active_keys: u32,
    pub(crate) demand: &'a Demand,
    /// Who asks; `None` without a key.
    pub(crate) requester: Option<Requester>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    /// In flight of its key.
    pub(crate) key_in_flight: u32,
    /// In flight of whom the share is for: of its org where orgs share, else of the key.
    pub(crate) in_flight: u32,
    /// In flight and parked of whom the share is for, as far as `demand` counts it. A requester itself is counted with
    /// one more than it holds: its request may run on every candidate, so its own S is C.
    pub(crate) wanted: u32,
    pub(crate) terms: Terms,
}

/// How one requester stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What may be held while the set is congested. All of C where no rule is set.
    pub(crate) share: u32,
    /// The set is congested.
    pub(crate) congested: bool,
    /// The rule lets the requester in.
    pub(crate) admitted: bool,
    /// Leases that must end until the set is no longer congested; 0 if it is not.
    pub(crate) until_loose: u32,
    /// H; 0 but under `max-min`.
    pub(crate) headroom: u32,
    /// The requester's floor, scaled; 0 but under `max-min`.
    pub(crate) floor: u32,
    /// F at one more than the requester holds; 0 but under `max-min`.
    pub(crate) filled: u32,
    /// Floors exceed what there is to share.
    pub(crate) oversubscribed: bool,
}

impl Facts<'_> {
    /// Whether the rule lets the requester in. Requests without a key are never judged (A9). With C = 0 (every
    /// candidate cools, drains or has no slots) there is nothing to share and the rule is inactive (A2): such a request
    /// is for the member step to judge.
    pub(crate) fn admitted(&self) -> bool {
        let Some(requester) = self.requester.filter(|_| self.capacity > 0) else { return true };
        match self.rule {
            FairShare::Off => true,
            FairShare::EqualSplit { .. } => !self.congested() || requester.key_in_flight < self.split(),
            FairShare::MaxMin { .. } => {
                let filling = self.filling();
                !self.congested()
                    || requester.in_flight < self.newcomer()
                    || requester.in_flight < filling.floor(requester.terms)
                    || filling.filled(requester, requester.in_flight + 1) <= u64::from(filling.shared)
            }
        }
    }

    /// The same, in numbers.
    pub(crate) fn standing(&self) -> Standing {
        let admitted = self.admitted();
        let congested = self.congested();
        let until_loose = if congested { self.total - self.congested_from() + 1 } else { 0 };
        let plain = Standing {
            share: self.capacity,
            congested,
            admitted,
            until_loose,
            headroom: 0,
            floor: 0,
            filled: 0,
            oversubscribed: false,
        };
        match self.rule {
            FairShare::Off => plain,
            FairShare::EqualSplit { .. } => Standing { share: self.split(), ..plain },
            FairShare::MaxMin { headroom } => {
                let filling = self.filling();
                let nobody = Requester { key_in_flight: 0, in_flight: 0, wanted: 0, terms: Terms::default() };
                let requester = self.requester.unwrap_or(nobody);
                let floor = filling.floor(requester.terms);
                let filled = filling.filled(requester, requester.in_flight.saturating_add(1));
                Standing {
                    share: filling.level(requester).max(floor).max(self.newcomer()),
                    headroom: headroom.slots(self.capacity),
                    floor,
                    filled: u32::try_from(filled).unwrap_or(u32::MAX),
                    oversubscribed: filling.floors > u64::from(filling.shared),
                    ..plain
                }
            }
        }
    }

    /// `equal-split`: congested iff `T·100 ≥ C·threshold` (A3). `max-min`: iff `T ≥ C − H` (A20).
    fn congested(&self) -> bool {
        self.rule != FairShare::Off && self.capacity > 0 && self.total >= self.congested_from()
    }

    fn congested_from(&self) -> u32 {
        match self.rule {
            FairShare::Off => u32::MAX,
            FairShare::EqualSplit { threshold } => {
                let from = (u64::from(self.capacity) * u64::from(threshold)).div_ceil(100);
                u32::try_from(from).unwrap_or(u32::MAX)
            }
            FairShare::MaxMin { headroom } => self.capacity - headroom.slots(self.capacity),
        }
    }

    /// `equal-split`: `max(min_guarantee, C / active_keys)` (A3, A4).
    fn split(&self) -> u32 {
        let split = self.capacity.checked_div(self.active_keys).unwrap_or(self.capacity);
        split.max(self.min_guarantee)
    }

    /// `max-min`: a key or org that holds less than this is a newcomer, which its share never refuses (A21): the
    /// headroom is for it, and beyond that the slots decide. The unit of a share is the newcomer: an org has no more
    /// room for newcomers by many keys.
    fn newcomer(&self) -> u32 {
        self.min_guarantee.max(1)
    }

    fn filling(&self) -> Filling<'_> {
        // Who asks first is not among those that want something yet.
        let newcomer = self.requester.filter(|requester| requester.wanted == 0);
        let floors = self.demand.floors() + newcomer.map_or(0, |newcomer| u64::from(newcomer.terms.floor));
        Filling { shared: self.congested_from(), floors, keyless: self.keyless, demand: self.demand }
    }
}

/// Water-filling: each principal gets what it wants, but at most its weight times one level, or its floor if that is
/// more.
struct Filling<'a> {
    /// C − H.
    shared: u32,
    /// Floors of all that want something.
    floors: u64,
    /// Requests without a key are not judged: what they hold is not there to be shared.
    keyless: u32,
    demand: &'a Demand,
}

impl Filling<'_> {
    /// A floor, scaled where all floors together exceed what is shared (A21).
    fn floor(&self, terms: Terms) -> u32 {
        let shared = u64::from(self.shared);
        if self.floors <= shared {
            return terms.floor;
        }
        u32::try_from(u64::from(terms.floor) * shared / self.floors).unwrap_or(u32::MAX)
    }

    /// F: what is held if the requester holds `count` and every other principal what that level gives.
    fn filled(&self, requester: Requester, count: u32) -> u64 {
        let limit = |terms: Terms| {
            let level = u64::from(count) * u64::from(terms.weight) / u64::from(requester.terms.weight);
            u32::try_from(level).unwrap_or(u32::MAX).max(self.floor(terms))
        };
        let own = requester.wanted.min(limit(requester.terms));
        u64::from(self.keyless) + self.demand.filled(limit) - u64::from(own) + u64::from(count)
    }

    /// The largest count with F ≤ C − H.
    fn level(&self, requester: Requester) -> u32 {
        let (mut low, mut high) = (0, self.shared);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.filled(requester, middle) <= u64::from(self.shared) { low = middle } else { high = middle - 1 }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_80: FairShare = FairShare::EqualSplit { threshold: 80 };
    const PLAIN: Terms = Terms { weight: 1, floor: 0 };

    fn demand(wanted: &[(Terms, u32)]) -> Demand {
        let mut demand = Demand::default();
        wanted.iter().for_each(|(terms, count)| (1..=*count).for_each(|n| demand.add(*terms, n)));
        demand
    }

    fn requester(terms: Terms, in_flight: u32, wanted: u32) -> Option<Requester> {
        Some(Requester { key_in_flight: in_flight, in_flight, wanted, terms })
    }

    #[test]
    fn the_equal_split_in_rows() {
        // (C, T, active keys with the requester, in flight of the requester, congested, share, admitted)
        let rows = [
            // 79 of 98 is 80.6 %, 78 is 79.6 %: integers, no rounding.
            (98, 78, 1, 78, false, 98, true),
            (98, 79, 1, 79, true, 98, true),
            (98, 79, 2, 0, true, 49, true),
            (98, 79, 2, 50, true, 49, false),
            // One below the share is admitted, at the share is not.
            (10, 8, 2, 4, true, 5, true),
            (10, 9, 2, 5, true, 5, false),
            // The guarantee holds when the split is smaller.
            (4, 4, 4, 1, true, 2, true),
            (4, 5, 4, 2, true, 2, false),
            // Nothing to split.
            (0, 9, 1, 9, false, 2, true),
        ];
        for (capacity, total, active_keys, held, congested, share, admitted) in rows {
            let demand = Demand::default();
            let facts = Facts {
                rule: AT_80,
                min_guarantee: 2,
                capacity,
                total,
                keyless: 0,
                active_keys,
                demand: &demand,
                requester: requester(PLAIN, held, 0),
            };
            let standing = facts.standing();
            let seen = (standing.congested, standing.share, standing.admitted);
            assert_eq!(seen, (congested, share, admitted), "C {capacity}, T {total}, {active_keys} keys, holds {held}");
        }
    }

    fn max_min(wanted: &[(Terms, u32)], total: u32, asks: Option<Requester>) -> Standing {
        let demand = demand(wanted);
        let facts = Facts {
            rule: FairShare::MaxMin { headroom: crate::policy::Headroom::Slots(4) },
            min_guarantee: 2,
            capacity: 100,
            total,
            keyless: 0,
            active_keys: 1,
            demand: &demand,
            requester: asks,
        };
        facts.standing()
    }

    #[test]
    fn max_min_gives_what_the_light_keys_leave() {
        // Alone: all but the headroom.
        let alone = max_min(&[(PLAIN, 96)], 96, requester(PLAIN, 96, 96));
        assert_eq!((alone.share, alone.admitted), (96, false));
        // A newcomer finds the headroom, however the rest is held.
        let newcomer = max_min(&[(PLAIN, 100)], 100, requester(PLAIN, 0, 0));
        assert_eq!((newcomer.share, newcomer.admitted), (48, true));
        // Nine light keys that want one each leave 87.
        let mut wanted = vec![(PLAIN, 87)];
        wanted.extend([(PLAIN, 1); 9]);
        let heavy = max_min(&wanted, 96, requester(PLAIN, 87, 87));
        assert_eq!((heavy.share, heavy.admitted), (87, false));
        // What waits is wanted.
        let rivals = [(PLAIN, 66), (PLAIN, 60)];
        assert!(max_min(&rivals, 96, requester(PLAIN, 30, 60)).admitted);
        assert!(!max_min(&rivals, 96, requester(PLAIN, 66, 66)).admitted);
    }

    #[test]
    fn a_newcomer_is_admitted_whatever_the_others_hold() {
        // Fourteen slots, one of headroom, thirteen keys with one each.
        let demand = demand(&[(PLAIN, 1); 13]);
        let standing = |min_guarantee, held: u32| {
            let facts = Facts {
                rule: FairShare::MaxMin { headroom: crate::policy::Headroom::Slots(1) },
                min_guarantee,
                capacity: 14,
                total: 13,
                keyless: 0,
                active_keys: 14,
                demand: &demand,
                requester: requester(PLAIN, held, held),
            };
            facts.standing()
        };
        for (min_guarantee, held, admitted) in [(3, 0, true), (0, 0, true), (0, 1, false), (3, 2, true), (3, 3, false)]
        {
            let standing = standing(min_guarantee, held);
            assert_eq!(standing.admitted, admitted, "holds {held} of a guarantee of {min_guarantee}");
            assert!(held < standing.share || !admitted, "the share that is shown agrees: {standing:?}");
        }
    }

    #[test]
    fn weights_divide_what_is_shared_in_their_ratio() {
        let heavy = Terms { weight: 3, floor: 0 };
        let wanted = [(heavy, 500), (PLAIN, 500)];
        assert_eq!(max_min(&wanted, 96, requester(heavy, 71, 500)).share, 72);
        assert_eq!(max_min(&wanted, 96, requester(PLAIN, 24, 500)).share, 24);
        assert!(max_min(&wanted, 96, requester(heavy, 71, 500)).admitted);
        assert!(!max_min(&wanted, 96, requester(heavy, 72, 500)).admitted);
    }

    #[test]
    fn a_floor_is_kept_against_any_weight_and_scaled_when_floors_exceed_what_is_shared() {
        let strong = Terms { weight: 100, floor: 0 };
        let sure = Terms { weight: 1, floor: 10 };
        let below = max_min(&[(strong, 500), (sure, 20)], 96, requester(sure, 9, 20));
        assert!(below.admitted && !below.oversubscribed);
        assert_eq!((below.share, below.floor), (10, 10));
        assert!(!max_min(&[(strong, 500), (sure, 20)], 96, requester(sure, 10, 20)).admitted);

        let much = Terms { weight: 1, floor: 96 };
        let crowd = [(much, 96), (much, 96), (much, 1)];
        let scaled = max_min(&crowd, 96, requester(much, 31, 96));
        assert!(scaled.oversubscribed && scaled.admitted);
        assert_eq!(scaled.floor, 32);
    }

    #[test]
    fn requests_without_a_key_pass_and_off_admits_everybody() {
        assert!(max_min(&[(PLAIN, 100)], 100, None).admitted);
        let demand = Demand::default();
        let off = Facts {
            rule: FairShare::Off,
            min_guarantee: 2,
            capacity: 4,
            total: 9,
            keyless: 0,
            active_keys: 1,
            demand: &demand,
            requester: requester(PLAIN, 9, 9),
        };
        assert!(off.admitted() && !off.standing().congested);
    }
}
