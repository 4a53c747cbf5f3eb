//! What the samples of one accept queue say: bursts, how fast they drain, whether the queue stands. Pure; time is an
//! argument. Knows no limit and decides nothing.
//!
//! A burst lasts from the last sample that found the queue empty to the next one that does, so its drain rate is never
//! overstated: what was accepted meanwhile, over a time that is at least as long as the queue was in use.

use governor_engine::time::{Duration, Instant};

/// An overflow is counted a little after the burst it belongs to on the tiers that read it per namespace.
const LATE: Duration = Duration::from_secs(2);

/// A queue that is in use for more than this part of the time stands, though samples may find it empty now and then.
const STANDING: f64 = 0.8;

/// One listener at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Limit of its accept queue.
    pub backlog: u32,
    /// Connections in it.
    pub depth: u32,
    /// Deepest since it was first seen.
    pub peak: Option<u32>,
    /// Connections that entered it since then.
    pub enqueued: Option<u64>,
    /// Connections that an accept took out since then.
    pub accepted: Option<u64>,
    /// Packets refused because it was full, since then.
    pub overflows: Option<u64>,
}

/// The queue filled and was drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// For at most so long.
    pub lasted: Duration,
    /// Its deepest, as far as that was seen.
    pub peak: u32,
    /// Accepted meanwhile, at least.
    pub accepted: u64,
    /// Packets refused meanwhile, at least: retries count again.
    pub overflows: u64,
}

impl Burst {
    /// How many connections leave the queue within `time` at the burst's rate.
    pub fn drained_within(&self, time: Duration) -> u32 {
        let drained = u128::from(self.accepted) * time.as_nanos() / self.lasted.as_nanos().max(1);
        u32::try_from(drained).unwrap_or(u32::MAX)
    }

    /// Accepts per second.
    pub fn rate(&self) -> u32 {
        self.drained_within(Duration::from_secs(1))
    }
}

/// Measures one listener.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    last: Option<Sample>,
    /// The burst under way and when it began.
    open: Option<(Instant, Burst)>,
    /// The last one whose rate is known, and its end.
    measured: Option<(Instant, Burst)>,
    /// Part of the time that the queue is in use, over some twice the longest wait.
    occupied: f64,
}

impl Meter {
    /// Takes a sample in; the burst that it ends. `max_wait` is how fast the memory of use fades.
    pub fn take(&mut self, sample: Sample, max_wait: Duration) -> Option<Burst> {
        let last = self.last.replace(sample)?;
        self.fade(sample.depth > 0, sample.at.since(last.at), max_wait);

        let rise = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let fell = u64::from(last.depth.saturating_sub(sample.depth));
        let accepted = rise(sample.accepted, last.accepted).unwrap_or(fell);
        // A queue seen full refuses arrivals, whether or not that is counted here.
        let full = u64::from(sample.depth > sample.backlog);
        let overflows = rise(sample.overflows, last.overflows).unwrap_or(full);
        let mut peak = last.depth.max(sample.depth);
        if sample.peak > last.peak {
            peak = peak.max(sample.peak.unwrap_or(0));
        }
        if overflows > 0 && rise(sample.overflows, last.overflows).is_some() {
            peak = peak.max(last.backlog.saturating_add(1));
        }
        let entered = rise(sample.enqueued, last.enqueued).unwrap_or(0);
        if self.open.is_none() && peak == 0 && accepted == 0 && overflows == 0 && entered == 0 {
            return None;
        }
        let began = Burst { lasted: Duration::ZERO, peak: 0, accepted: 0, overflows: 0 };
        let (since, burst) = self.open.get_or_insert((last.at, began));
        burst.lasted = sample.at.since(*since);
        burst.peak = burst.peak.max(peak);
        burst.accepted += accepted;
        burst.overflows += overflows;
        if sample.depth > 0 {
            return None;
        }
        let (_, burst) = self.open.take()?;
        Some(self.ended(burst, sample.at))
    }

    /// Nothing is under way and the queue was empty: samples that show nothing new change only how long ago that was.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.last.is_some_and(|last| last.depth == 0)
    }

    /// An idle queue was seen unchanged until then.
    pub fn idled(&mut self, until: Instant, max_wait: Duration) {
        let Some(last) = &mut self.last else { return };
        let passed = until.since(last.at);
        last.at = last.at.max(until);
        self.fade(false, passed, max_wait);
    }

    /// The memory of use fades by time alone, however many samples divide it.
    fn fade(&mut self, is_used: bool, passed: Duration, max_wait: Duration) {
        let weight = 1.0 - (-passed.as_secs_f64() / (2.0 * max_wait.as_secs_f64()).max(0.001)).exp();
        self.occupied += (f64::from(is_used) - self.occupied) * weight;
    }

    /// How long the queue has been in use without a pause, and what was accepted meanwhile.
    pub fn under_way(&self) -> Option<Burst> {
        self.open.map(|(_, burst)| burst)
    }

    /// Whether the queue is in use nearly all the time.
    pub fn stands(&self) -> bool {
        self.occupied > STANDING
    }

    /// Refusals that are reported late are those of the burst before.
    fn ended(&mut self, burst: Burst, at: Instant) -> Burst {
        match self.measured {
            Some((end, earlier))
                if burst.overflows > 0 && burst.accepted < earlier.accepted && at.since(end) <= LATE =>
            {
                let overflows = earlier.overflows.saturating_add(burst.overflows);
                Burst { peak: earlier.peak.max(burst.peak), overflows, ..earlier }
            }
            _ => {
                if burst.accepted > 0 {
                    self.measured = Some((at, burst));
                }
                burst
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(500);

    fn at(ms: u64, depth: u32, accepted: u64, overflows: u64) -> Sample {
        Sample {
            at: Instant(ms * 1_000_000),
            backlog: 5,
            depth,
            accepted: Some(accepted),
            overflows: Some(overflows),
            ..Sample::default()
        }
    }

    fn bursts(samples: &[Sample]) -> Vec<Burst> {
        let mut meter = Meter::default();
        samples.iter().filter_map(|sample| meter.take(*sample, WAIT)).collect()
    }

    #[test]
    fn a_burst_between_two_samples_lasts_at_most_the_time_between_them() {
        let seen = bursts(&[at(0, 0, 0, 0), at(100, 0, 6, 3)]);
        assert_eq!(seen, [Burst { lasted: Duration::from_millis(100), peak: 6, accepted: 6, overflows: 3 }]);
        assert_eq!((seen[0].rate(), seen[0].drained_within(WAIT)), (60, 30));
    }

    #[test]
    fn a_burst_goes_on_until_the_queue_is_found_empty() {
        let seen =
            bursts(&[at(0, 0, 0, 0), at(100, 4, 10, 0), at(200, 2, 30, 0), at(300, 0, 40, 0), at(400, 0, 40, 0)]);
        assert_eq!(seen, [Burst { lasted: Duration::from_millis(300), peak: 4, accepted: 40, overflows: 0 }]);
    }

    #[test]
    fn refusals_told_late_belong_to_the_burst_before() {
        let seen = bursts(&[at(0, 0, 0, 0), at(100, 0, 6, 0), at(200, 0, 6, 0), at(1000, 0, 6, 9)]);
        assert_eq!(seen[1], Burst { lasted: Duration::from_millis(100), peak: 6, accepted: 6, overflows: 9 });
    }

    #[test]
    fn without_counters_a_falling_depth_is_what_was_accepted_and_a_full_queue_what_was_refused() {
        let polled =
            |ms: u64, depth: u32| Sample { at: Instant(ms * 1_000_000), backlog: 5, depth, ..Sample::default() };
        let seen = bursts(&[polled(0, 0), polled(100, 6), polled(200, 0)]);
        assert_eq!(seen, [Burst { lasted: Duration::from_millis(200), peak: 6, accepted: 6, overflows: 1 }]);
    }

    #[test]
    fn a_queue_that_is_hardly_ever_empty_stands() {
        let mut meter = Meter::default();
        for n in 0..100 {
            meter.take(at(n * 100, if n % 10 == 0 { 0 } else { 3 }, n * 5, 0), WAIT);
        }
        assert!(meter.stands());
        for n in 100..130 {
            meter.take(at(n * 100, u32::from(n % 3 == 0), n * 5, 0), WAIT);
        }
        assert!(!meter.stands());
    }
}
