//! How long a stream lasts: a bounded log-normal, because that is the shape of answer lengths: most are short, a few
//! are many times longer, and those few hold most of the slots.

use rand::{Rng, RngExt};
use std::time::Duration;

/// No answer is shorter: even a one-word reply takes this long.
pub(crate) const SHORTEST: Duration = Duration::from_millis(50);

/// The distribution of stream durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeavyTail {
    /// Half of the streams are shorter.
    pub(crate) median: Duration,
    /// Standard deviation of the logarithm: 0 makes all streams equal, 1.1 puts the 99th percentile at 13 medians.
    pub(crate) sigma: f64,
    /// Longer draws are cut to this.
    pub(crate) longest: Duration,
}

impl HeavyTail {
    /// Draws one duration between [`SHORTEST`] and `longest`.
    pub(crate) fn sample(&self, rng: &mut impl Rng) -> Duration {
        let seconds = self.median.as_secs_f64() * (self.sigma * standard_normal(rng)).exp();
        let longest = self.longest.max(SHORTEST);
        Duration::try_from_secs_f64(seconds).unwrap_or(longest).clamp(SHORTEST, longest)
    }
}

/// Box and Muller's transform; `1 - u` keeps the logarithm's argument above 0.
fn standard_normal(rng: &mut impl Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const DEMO: HeavyTail =
        HeavyTail { median: Duration::from_millis(600), sigma: 1.1, longest: Duration::from_secs(8) };

    fn sorted_draws(distribution: HeavyTail) -> Vec<Duration> {
        let mut rng = StdRng::seed_from_u64(7);
        let mut draws: Vec<_> = (0..20_000).map(|_| distribution.sample(&mut rng)).collect();
        draws.sort();
        draws
    }

    #[test]
    fn draws_stay_within_their_bounds_and_reach_both() {
        let draws = sorted_draws(DEMO);
        assert_eq!(draws.first(), Some(&SHORTEST));
        assert_eq!(draws.last(), Some(&DEMO.longest));
    }

    #[test]
    fn the_median_is_the_one_asked_for_and_the_tail_is_many_times_longer() {
        let draws = sorted_draws(DEMO);
        let quantile = |share: usize| draws[draws.len() * share / 100].as_secs_f64();
        assert!((0.57..0.63).contains(&quantile(50)), "median {}", quantile(50));
        assert!((6.8..=8.0).contains(&quantile(99)), "p99 {}", quantile(99));
    }

    #[test]
    fn no_parameter_makes_it_leave_its_bounds() {
        for sigma in [0.0, 50.0, 1e6, f64::NAN, -3.0] {
            let draws = sorted_draws(HeavyTail { sigma, ..DEMO });
            assert!(draws.iter().all(|draw| (SHORTEST..=DEMO.longest).contains(draw)), "sigma {sigma}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_durations() {
        assert_eq!(sorted_draws(DEMO), sorted_draws(DEMO));
    }
}
