//! When a refused client should come back: measured drain, a virtual queue that spreads a crowd, and polite whole
//! seconds. No clock and no random numbers: jitter is a function of the decision's id.

use crate::id::DecisionId;
use crate::time::{Duration, Instant};

/// Nobody is told to stay away longer than this, before jitter.
const LONGEST: Duration = Duration::from_secs(60);

/// Seconds over which the drain is averaged: long enough for streams of tens of seconds, short enough to notice that
/// they stopped ending.
const WINDOW: usize = 32;

/// Completions per second over a sliding window of whole seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainMeter {
    per_second: [u32; WINDOW],
    /// The second of the newest bucket.
    newest: u64,
    first: Option<Instant>,
}

impl DrainMeter {
    /// A slot came back.
    pub(crate) fn record(&mut self, now: Instant) {
        self.advance(second(now));
        self.per_second[bucket(second(now))] += 1;
        self.first.get_or_insert(now);
    }

    /// Time between two completions, on average; `None` when none was seen within the window.
    pub(crate) fn interval(&self, now: Instant) -> Option<Duration> {
        let first = self.first?;
        let oldest = second(now).saturating_sub(WINDOW as u64 - 1);
        let seen: u64 = (oldest..=second(now).min(self.newest)).map(|s| u64::from(self.per_second[bucket(s)])).sum();
        let window = now.since(first.max(Instant::ZERO.after(Duration::from_secs(oldest))));
        let span = u64::try_from(window.max(Duration::from_secs(1)).as_nanos()).unwrap_or(u64::MAX);
        span.checked_div(seen).map(Duration::from_nanos)
    }

    fn advance(&mut self, to: u64) {
        let stale = to.saturating_sub(self.newest).min(WINDOW as u64);
        for step in 0..stale {
            self.per_second[bucket(to - step)] = 0;
        }
        self.newest = self.newest.max(to);
    }
}

fn second(at: Instant) -> u64 {
    at.0 / 1_000_000_000
}

fn bucket(second: u64) -> usize {
    usize::try_from(second % WINDOW as u64).expect("a remainder below WINDOW fits")
}

/// The moment the last refused client was told to come back. Each refusal moves it on by one drain interval, so that
/// a crowd refused together does not return together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VirtualQueue {
    tail: Instant,
}

impl VirtualQueue {
    /// The wait for one more refused client; zero when the drain is unknown.
    pub(crate) fn push(&mut self, now: Instant, interval: Option<Duration>) -> Duration {
        let Some(interval) = interval else { return Duration::ZERO };
        self.tail = self.next(now, interval);
        self.tail.since(now)
    }

    /// What [`Self::push`] would say, changing nothing.
    pub(crate) fn peek(&self, now: Instant, interval: Option<Duration>) -> Duration {
        interval.map_or(Duration::ZERO, |interval| self.next(now, interval).since(now))
    }

    fn next(&self, now: Instant, interval: Duration) -> Instant {
        self.tail.max(now).after(interval).min(now.after(LONGEST))
    }
}

/// A typical lease's length: a running estimate of the median. The mean would be ruled by the few streams that last
/// for minutes, and would turn away clients whose request is most likely short.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypicalService {
    estimate: Option<Duration>,
}

impl TypicalService {
    /// A lease was released after `length`.
    pub(crate) fn record(&mut self, length: Duration) {
        self.estimate = Some(match self.estimate {
            None => length,
            Some(typical) if length >= typical => length.min(typical + typical / 8),
            Some(typical) => length.max(typical - typical / 8),
        });
    }

    /// Whether work begun now can be expected to end by `deadline`. Nothing known: it takes no time.
    pub(crate) fn fits(&self, now: Instant, deadline: Instant) -> bool {
        now.after(self.estimate.unwrap_or(Duration::ZERO)) <= deadline
    }
}

/// Time until a key may hope again: until `until_below` of its own leases have ended, of which `own.0` are among the
/// `own.1` that end `interval` apart, or until the pool is loose and asks nobody's share, if that comes first.
pub(crate) fn until_fair(interval: Duration, until_below: u32, own: (u32, u32), until_loose: u32) -> Duration {
    let nanos = interval.as_nanos();
    let loose = nanos * u128::from(until_loose);
    let below = (nanos * u128::from(until_below) * u128::from(own.1)).checked_div(u128::from(own.0)).unwrap_or(0);
    Duration::from_nanos(u64::try_from(below.min(loose)).unwrap_or(u64::MAX))
}

/// Whole seconds, rounded up, at least 1.
pub(crate) fn whole_seconds(wait: Duration) -> Duration {
    let up = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    Duration::from_secs(up.max(1))
}

/// What is told to the client: whole seconds, at most 60, then up to a quarter more from 4 s on. Jitter comes after
/// the clamp, which would otherwise send everybody back in the same second.
pub(crate) fn polite(wait: Duration, id: DecisionId) -> Duration {
    let seconds = whole_seconds(wait).min(LONGEST).as_secs();
    Duration::from_secs(seconds + mix(id.0) % (seconds / 4 + 1))
}

/// SplitMix64's finaliser: neighbouring ids give unrelated numbers.
fn mix(id: u64) -> u64 {
    let a = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at_millis(millis: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(millis))
    }

    #[test]
    fn waits_become_whole_seconds_rounded_up_and_never_zero() {
        let now = at_millis(20_000);
        let rows = [(20_400, 1), (32_200, 13), (20_000, 1), (15_000, 1), (920_000, 900)];
        for (eta, seconds) in rows {
            assert_eq!(whole_seconds(at_millis(eta).since(now)), Duration::from_secs(seconds), "eta {eta} ms");
        }
    }

    #[test]
    fn jitter_only_adds_starts_at_four_seconds_and_survives_the_clamp() {
        for seconds in 1..=3 {
            for id in 0..100 {
                assert_eq!(polite(Duration::from_secs(seconds), DecisionId(id)), Duration::from_secs(seconds));
            }
        }
        let capped: BTreeSet<_> =
            (0..200).map(|id| polite(Duration::from_secs(900), DecisionId(id)).as_secs()).collect();
        assert_eq!((capped.first(), capped.last()), (Some(&60), Some(&75)));
        assert!(capped.len() >= 12, "{capped:?}");
        for id in 0..200 {
            let told = polite(Duration::from_secs(12), DecisionId(id)).as_secs();
            assert!((12..=15).contains(&told), "{told}");
        }
    }

    #[test]
    fn a_crowd_refused_together_is_spread_over_the_time_it_takes_to_drain() {
        let mut drain = DrainMeter::default();
        for completion in 0..100 {
            drain.record(at_millis(completion * 100));
        }
        let now = at_millis(10_000);
        let mut queue = VirtualQueue::default();

        let told: Vec<u64> = (0..100).map(|_| whole_seconds(queue.push(now, drain.interval(now))).as_secs()).collect();

        assert!(told.is_sorted());
        assert_eq!((told.first(), told.last()), (Some(&1), Some(&10)));
        assert!(told.iter().collect::<BTreeSet<_>>().len() >= 8);
    }

    #[test]
    fn a_drain_that_stopped_is_unknown_after_the_window() {
        let mut drain = DrainMeter::default();
        assert_eq!(drain.interval(at_millis(0)), None);
        drain.record(at_millis(500));
        assert_eq!(drain.interval(at_millis(500)), Some(Duration::from_secs(1)));
        assert!(drain.interval(at_millis(20_000)).is_some());
        assert_eq!(drain.interval(at_millis(40_000)), None);
        drain.record(at_millis(100_000));
        assert_eq!(drain.interval(at_millis(100_000)).map(|d| d.as_secs()), Some(31));
    }

    #[test]
    fn a_key_over_its_share_waits_for_its_own_leases_but_not_longer_than_until_the_pool_is_loose() {
        let second = Duration::from_secs(1);
        // One of its 20 of 100 must end: every fifth end is its own.
        assert_eq!(until_fair(second, 1, (20, 100), 30), Duration::from_secs(5));
        assert_eq!(until_fair(second, 10, (20, 100), 30), Duration::from_secs(30));
        assert_eq!(until_fair(second, 0, (20, 100), 30), Duration::ZERO);
        assert_eq!(until_fair(second, 3, (0, 100), 30), Duration::ZERO);
    }

    #[test]
    fn peeking_moves_nobody_on() {
        let queue = VirtualQueue::default();
        let interval = Some(Duration::from_secs(2));
        assert_eq!(queue.peek(at_millis(0), interval), Duration::from_secs(2));
        assert_eq!(queue.peek(at_millis(0), interval), Duration::from_secs(2));
    }

    #[test]
    fn the_typical_length_follows_the_middle_and_not_the_tail() {
        let mut typical = TypicalService::default();
        for length in [1, 1, 1, 600, 1, 1, 1, 1] {
            typical.record(Duration::from_secs(length));
        }
        assert!(typical.fits(at_millis(0), at_millis(1_200)));
        assert!(!typical.fits(at_millis(0), at_millis(900)));
    }
}
