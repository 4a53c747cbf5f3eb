//! The fair-share rules, from the list of leases and the list of those who wait.

use std::collections::BTreeMap;

use governor_engine::id::KeyId;
use governor_engine::policy::{FairShare, Headroom};

use super::{Model, Parked, index};

impl Model {
    /// (key in flight, share, T, C, active keys, would the rule let it in).
    pub(super) fn share(&self, w: &Parked) -> (u32, u32, u32, u32, u32, bool) {
        let policy = &self.pools[index(w.pool.0)].policy;
        let counted = self.counted_over(w.pool, &w.candidates);
        let t = u32::try_from(counted.len()).unwrap();
        let c = self.capacity(w.pool, &w.candidates);
        let mut keys: Vec<KeyId> = counted.iter().filter_map(|l| l.key).collect();
        let held = w.key.map_or(0, |key| u32::try_from(keys.iter().filter(|k| **k == key).count()).unwrap());
        keys.extend(w.key);
        keys.sort();
        keys.dedup();
        let active = u32::try_from(keys.len()).unwrap();
        match policy.fair_share {
            FairShare::Off => (held, c, t, c, active, true),
            FairShare::EqualSplit { threshold } => {
                let share = policy.min_guarantee.max(c.checked_div(active).unwrap_or(c));
                let congested = c > 0 && t * 100 >= c * u32::from(threshold);
                (held, share, t, c, active, w.key.is_none() || !congested || held < share)
            }
            FairShare::MaxMin { headroom } => {
                let h = match headroom {
                    Headroom::PerMille(0) => 0,
                    Headroom::PerMille(share) => (c * u32::from(share) / 1000).max(1).min(c),
                    Headroom::Slots(slots) => slots.min(c),
                };
                let share = (1..=c - h).take_while(|level| self.filled(w, *level) <= c - h).last().unwrap_or(0);
                let admitted = c == 0 || t < c - h || self.filled(w, held + 1) <= c - h;
                (held, share, t, c, active, w.key.is_none() || admitted)
            }
        }
    }

    /// F(level): what everybody would hold over the candidates of `w`, each key what it wants but at most `level`. The key
    /// of `w` wants at least that much; requests without a key hold what they hold.
    pub(super) fn filled(&self, w: &Parked, level: u32) -> u32 {
        let mut wants: BTreeMap<Option<KeyId>, u32> = BTreeMap::new();
        for lease in self.counted_over(w.pool, &w.candidates) {
            *wants.entry(lease.key).or_default() += 1;
        }
        let among = self.resolve(w.pool, &w.candidates);
        for other in self.parked.iter().filter(|p| p.pool == w.pool && p.lease.is_none() && p.key.is_some()) {
            if self.resolve(w.pool, &other.candidates).iter().any(|m| among.contains(m)) {
                *wants.entry(other.key).or_default() += 1;
            }
        }
        let keyless = wants.remove(&None).unwrap_or(0);
        wants.insert(w.key, u32::MAX);
        keyless + wants.values().map(|wants| *wants.min(&level)).sum::<u32>()
    }
}
