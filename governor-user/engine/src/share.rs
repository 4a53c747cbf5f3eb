//! The fair-share rule, as arithmetic on numbers somebody else counted. Integers only, so that every implementation
//! of the rule comes to the same answer.

use crate::demand::Demand;
use crate::load::{Holder, Load};
use crate::policy::FairShare;

/// How one requester stands in one candidate set, before this admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// In flight of the key; 0 without one.
    pub(crate) key_in_flight: u32,
    /// What the key may hold while the set is congested. All of C where no rule is set.
    pub(crate) share: u32,
    /// Keys in flight, the requester counted exactly once.
    pub(crate) active_keys: u32,
    /// The set is congested.
    pub(crate) congested: bool,
    /// The rule lets the requester in.
    pub(crate) admitted: bool,
    /// Leases that must end until the set is no longer congested; 0 if it is not.
    pub(crate) until_loose: u32,
}

/// `equal-split` (A3, A4): congested iff `T·100 ≥ C·threshold`; then `key_in_flight + 1 ≤ max(min_guarantee, C /
/// active_keys)`.
///
/// With C = 0 (every candidate cools, drains or has no slots) there is nothing to split and the rule is inactive
/// (A2): such a request is for the member step to judge. Requests without a key are never judged (A9).
///
/// `max-min` (A20): congested iff `T ≥ C − H`; then `F(key_in_flight + 1) ≤ C − H`, see [`water_level`].
pub(crate) fn judge(
    rule: FairShare,
    min_guarantee: u32,
    capacity: u32,
    load: &Load,
    demand: &Demand,
    holder: Holder,
) -> Standing {
    let key_in_flight = if holder.is_some() { load.of(holder) } else { 0 };
    let newcomer = holder.is_some() && key_in_flight == 0;
    let active_keys = load.active_keys() + u32::from(newcomer);
    let (share, congested_from) = match rule {
        FairShare::Off => (capacity, None),
        FairShare::EqualSplit { threshold } => {
            let split = capacity.checked_div(active_keys).unwrap_or(capacity);
            let from = (u64::from(capacity) * u64::from(threshold)).div_ceil(100);
            (split.max(min_guarantee), u32::try_from(from).ok())
        }
        FairShare::MaxMin { headroom } => {
            let shared = capacity - headroom.slots(capacity);
            (water_level(shared, load, demand, holder), Some(shared))
        }
    };
    let congested_from = congested_from.filter(|from| capacity > 0 && load.total() >= *from);
    let congested = congested_from.is_some();
    let until_loose = congested_from.map_or(0, |from| load.total() - from + 1);
    let admitted = !congested || holder.is_none() || key_in_flight < share;
    Standing { key_in_flight, share, active_keys, congested, admitted, until_loose }
}

/// The most a key may hold of what is `shared` by water-filling: the largest n with F(n) ≤ shared, where F(n) adds up
/// what every key wants, but at most n each; the key itself is taken to want n. Requests without a key are not judged,
/// so what they hold is not there to be shared.
fn water_level(shared: u32, load: &Load, demand: &Demand, holder: Holder) -> u32 {
    let wanted = holder.map_or(0, |key| demand.of(key));
    let fits = |level: u32| {
        let others = demand.filled(level) - u64::from(wanted.min(level));
        u64::from(load.of(None)) + others + u64::from(level) <= u64::from(shared)
    };
    let (mut low, mut high) = (0, shared);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KeyId;
    use crate::io::Kind;

    const AT_80: FairShare = FairShare::EqualSplit { threshold: 80 };

    fn load(of: &[(u128, u32)]) -> Load {
        let mut load = Load::default();
        for (key, count) in of {
            for _ in 0..*count {
                load.add(Some(KeyId(*key)), Kind::Ordinary);
            }
        }
        load
    }

    #[test]
    fn the_rule_in_rows() {
        // (C, in flight by key, requester, congested, share, admitted)
        type Row = (u32, &'static [(u128, u32)], u128, bool, u32, bool);
        let rows: &[Row] = &[
            // 79 of 98 is 80.6 %, 78 is 79.6 %: integers, no rounding.
            (98, &[(1, 78)], 1, false, 98, true),
            (98, &[(1, 79)], 1, true, 98, true),
            // A newcomer counts itself once, an active key is not counted twice.
            (98, &[(1, 79)], 2, true, 49, true),
            (98, &[(1, 50), (2, 29)], 2, true, 49, true),
            (98, &[(1, 50), (2, 29)], 1, true, 49, false),
            // One below the share is admitted, at the share is not.
            (10, &[(1, 4), (2, 4)], 1, true, 5, true),
            (10, &[(1, 5), (2, 4)], 1, true, 5, false),
            // The guarantee holds when the split is smaller.
            (4, &[(1, 1), (2, 1), (3, 1), (4, 1)], 4, true, 2, true),
            (4, &[(1, 1), (2, 1), (3, 1), (4, 2)], 4, true, 2, false),
            // Nothing to split.
            (0, &[(1, 9)], 1, false, 2, true),
        ];
        for (capacity, held, requester, congested, share, admitted) in rows {
            let standing = judge(AT_80, 2, *capacity, &load(held), &Demand::default(), Some(KeyId(*requester)));
            let seen = (standing.congested, standing.share, standing.admitted);
            assert_eq!(seen, (*congested, *share, *admitted), "C {capacity}, held {held:?}, requester {requester}");
        }
    }

    #[test]
    fn requests_without_a_key_pass_and_are_not_an_active_key() {
        let standing = judge(AT_80, 2, 4, &load(&[(1, 4)]), &Demand::default(), None);
        assert!(standing.congested && standing.admitted);
        assert_eq!((standing.key_in_flight, standing.active_keys), (0, 1));
    }

    #[test]
    fn off_admits_everybody_and_is_never_congested() {
        let standing = judge(FairShare::Off, 2, 4, &load(&[(1, 9)]), &Demand::default(), Some(KeyId(1)));
        assert!(!standing.congested && standing.admitted);
    }

    #[test]
    fn max_min_gives_what_the_light_keys_leave() {
        // (in flight by key, parked by key, requester, share, admitted) with C = 100, H = 4.
        type Row = (&'static [(u128, u32)], &'static [(u128, u32)], u128, u32, bool);
        let rows: &[Row] = &[
            // Alone: all but the headroom.
            (&[(1, 95)], &[], 1, 96, true),
            (&[(1, 96)], &[], 1, 96, false),
            // A newcomer finds the headroom, whoever holds the rest.
            (&[(1, 96)], &[], 2, 48, true),
            (&[(1, 100)], &[], 2, 48, true),
            // Nine light keys that want one each leave 87.
            (&[(1, 87), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)], &[], 1, 87, false),
            (&[(1, 86), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)], &[], 1, 86, false),
            // What waits is wanted.
            (&[(1, 66), (2, 30)], &[(2, 30)], 2, 48, true),
            (&[(1, 66), (2, 30)], &[(2, 30)], 1, 48, false),
        ];
        let rule = FairShare::MaxMin { headroom: crate::policy::Headroom::Slots(4) };
        for (held, parked, requester, share, admitted) in rows {
            let mut demand = Demand::default();
            for (key, count) in held.iter().chain(*parked) {
                (0..*count).for_each(|_| demand.add(KeyId(*key)));
            }
            let standing = judge(rule, 2, 100, &load(held), &demand, Some(KeyId(*requester)));
            let seen = (standing.share, standing.admitted);
            assert_eq!(seen, (*share, *admitted), "held {held:?}, parked {parked:?}, requester {requester}");
        }
    }
}
