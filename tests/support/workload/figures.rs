//! What came of a run, in figures. Pure arithmetic over what the simulation noted. A *request* is what a program wants:
//! a first try and, when that is refused, its retries; it has failed when all of them were refused.

use std::collections::BTreeMap;

/// One run's figures. Percentages are 0–100, waits in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Ordinary slots in use, of those of members that do not refuse, on average after the warm-up.
    pub utilisation_percent: f64,
    /// Requests of light keys.
    pub light_requests: u32,
    /// Of them failed.
    pub light_failed_percent: f64,
    /// Of them failed or waited longer than a second.
    pub light_late_percent: f64,
    /// Tries of light keys that were refused, of all their tries.
    pub light_refused_percent: f64,
    /// Tries a request of a light key took on average.
    pub light_tries: f64,
    /// Wait of a light key's request from its first try until its slot, at the median.
    pub light_wait_p50: f64,
    /// At the 99th percentile.
    pub light_wait_p99: f64,
    /// Requests of the other keys that failed.
    pub heavy_failed_percent: f64,
    /// Tries that were refused, of all keys.
    pub refused_percent: f64,
    /// Jain's index over the orgs, and the keys without one, of what each had, relative to its max-min share of the pool: 1 is fair.
    pub jain: f64,
    /// Ordinary slots in use by each org, in percent of all.
    pub org_percent: BTreeMap<u32, f64>,
    /// Decisions that were recorded and not carried out.
    pub would_have: u32,
    /// Waits of granted requests of light keys, ascending.
    pub light_waits: Vec<f64>,
    /// The pool over time, once a second.
    pub samples: Vec<Sample>,
}

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Slots in use by heavy keys.
    pub heavy: u32,
    /// Slots in use by light keys.
    pub light: u32,
}

impl Figures {
    /// A figure by its field's name; `org_N_percent` for those of an org.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<f64> {
        Some(match name {
            "utilisation_percent" => self.utilisation_percent,
            "light_requests" => f64::from(self.light_requests),
            "light_failed_percent" => self.light_failed_percent,
            "light_late_percent" => self.light_late_percent,
            "light_refused_percent" => self.light_refused_percent,
            "light_tries" => self.light_tries,
            "light_wait_p50" => self.light_wait_p50,
            "light_wait_p99" => self.light_wait_p99,
            "heavy_failed_percent" => self.heavy_failed_percent,
            "refused_percent" => self.refused_percent,
            "jain" => self.jain,
            "would_have" => f64::from(self.would_have),
            _ => {
                let org = name.strip_prefix("org_")?.strip_suffix("_percent")?.parse().ok()?;
                *self.org_percent.get(&org)?
            }
        })
    }
}

/// What a simulation notes of one group of keys, light or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u32,
    pub(super) failed: u32,
    pub(super) tries: u32,
    pub(super) refused: u32,
    /// Waits of granted requests in seconds.
    pub(super) waits: Vec<f64>,
}

impl Tally {
    pub(super) fn failed_percent(&self) -> f64 {
        percent(self.failed, self.requests)
    }

    pub(super) fn late_percent(&self) -> f64 {
        let waited = self.waits.iter().filter(|wait| **wait > 1.0).count();
        percent(u32::try_from(waited).unwrap_or(u32::MAX).saturating_add(self.failed), self.requests)
    }

    pub(super) fn refused_percent(&self) -> f64 {
        percent(self.refused, self.tries)
    }
}

/// `part` of `whole` in percent; 0 of nothing.
pub(super) fn percent(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * f64::from(part) / f64::from(whole) }
}

/// The value below or at which this share (0–1) of the ascending values lies; 0 if there is none.
pub(super) fn percentile(ascending: &[f64], share: f64) -> f64 {
    let count = u32::try_from(ascending.len()).unwrap_or(u32::MAX);
    let target = share * f64::from(count);
    // The first whose rank reaches the share.
    let found = (1..=count).zip(ascending).find(|(rank, _)| f64::from(*rank) >= target);
    found.map_or(0.0, |(_, value)| *value)
}

/// Jain's index of these ratios, from 1/n (one has all) to 1 (all have the same).
pub(super) fn jain(ratios: &[f64]) -> f64 {
    let sum: f64 = ratios.iter().sum();
    let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    let count = f64::from(u32::try_from(ratios.len()).unwrap_or(u32::MAX));
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

/// Max-min shares of `capacity` for these demands, in their order.
pub(super) fn water_fill(demands: &[f64], capacity: f64) -> Vec<f64> {
    let mut ascending = demands.to_vec();
    ascending.sort_by(f64::total_cmp);
    let (mut left, mut level) = (capacity, f64::INFINITY);
    for (demand, keys) in ascending.iter().zip((1..=u32::try_from(demands.len()).unwrap_or(u32::MAX)).rev()) {
        let even = left / f64::from(keys);
        if *demand >= even {
            level = even;
            break;
        }
        left -= demand;
    }
    demands.iter().map(|demand| demand.min(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn water_filling_gives_small_demands_in_full_and_levels_the_rest() {
        assert_eq!(water_fill(&[1.0, 100.0, 2.0, 50.0], 43.0), [1.0, 20.0, 2.0, 20.0]);
        assert_eq!(water_fill(&[1.0, 2.0], 10.0), [1.0, 2.0]);
    }

    #[test]
    fn the_index_is_one_for_equals_and_one_nth_for_one_who_has_all() {
        assert!((jain(&[0.5; 4]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&values, 0.5), percentile(&values, 0.99), percentile(&[], 0.5)), (50.0, 99.0, 0.0));
    }

    #[test]
    fn a_request_is_late_when_it_failed_or_waited_longer_than_a_second() {
        let tally = Tally { requests: 4, failed: 1, waits: vec![0.0, 1.0, 1.5], ..Tally::default() };
        assert!((tally.late_percent() - 50.0).abs() < 1e-12 && (tally.failed_percent() - 25.0).abs() < 1e-12);
    }
}
