//! When a refused client should come back: measured drain, a virtual queue that spreads a crowd, and jitter. No clock
//! and no random numbers: jitter is a function of the decision's id. Values are whole milliseconds.

use crate::id::DecisionId;
use crate::time::{Duration, Instant};

/// The longest Retry-After, jitter included, but for the reset that an upstream named.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// The longest wait before jitter: a quarter more is [`LONGEST`].
const LONGEST_BEFORE_JITTER: Duration = Duration::from_secs(48);

/// The shortest Retry-After, and the one that is sent while no drain is known.
const SHORTEST: Duration = Duration::from_secs(1);

/// Time between two completions while none was measured, so that a crowd is spread all the same.
const ASSUMED_INTERVAL: Duration = Duration::from_millis(10);

/// Jitter is added to waits from this many milliseconds up.
const JITTER_FROM: u64 = 4_000;

/// Clients that wait for one upstream reset are spread over a quarter of the wait, within these milliseconds.
const AFTER_RESET: (u64, u64) = (250, 12_000);

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

/// The moment the last refused client was asked to come back at. Each refusal moves it on by one drain interval, so
/// that a crowd refused together does not return together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VirtualQueue {
    tail: Instant,
}

impl VirtualQueue {
    /// The wait for one more refused client: the first of a crowd waits for one interval, at least [`SHORTEST`], each
    /// further one an interval longer, up to [`LONGEST_BEFORE_JITTER`].
    pub(crate) fn push(&mut self, now: Instant, interval: Option<Duration>) -> Duration {
        self.tail = self.next(now, interval);
        self.tail.since(now)
    }

    /// What [`Self::push`] would return, changing nothing.
    pub(crate) fn peek(&self, now: Instant, interval: Option<Duration>) -> Duration {
        self.next(now, interval).since(now)
    }

    fn next(&self, now: Instant, interval: Option<Duration>) -> Instant {
        let interval = interval.unwrap_or(ASSUMED_INTERVAL);
        let first = now.after(interval.max(SHORTEST));
        self.tail.after(interval).max(first).min(now.after(LONGEST_BEFORE_JITTER))
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
/// `own.1` that end `interval` apart, or until the pool is uncongested and no share is asked for, if that comes first.
pub(crate) fn until_fair(interval: Duration, until_below: u32, own: (u32, u32), until_loose: u32) -> Duration {
    let nanos = interval.as_nanos();
    let loose = nanos * u128::from(until_loose);
    let below = (nanos * u128::from(until_below) * u128::from(own.1)).checked_div(u128::from(own.0)).unwrap_or(0);
    Duration::from_nanos(u64::try_from(below.min(loose)).unwrap_or(u64::MAX))
}

/// Retry-After for a wait: at least [`SHORTEST`], from [`JITTER_FROM`] up with 0–25 % added, at most [`LONGEST`]. A
/// wait that is longer than that cannot be stated; its clients are spread over the last fifth.
pub(crate) fn polite(wait: Duration, id: DecisionId) -> Duration {
    let wait = millis(if wait < LONGEST { wait.max(SHORTEST) } else { LONGEST_BEFORE_JITTER });
    let jitter = if wait < JITTER_FROM { 0 } else { (wait / 4).min(millis(LONGEST) - wait) };
    Duration::from_millis(wait + mix(id.0) % (jitter + 1))
}

/// Retry-After when an upstream named its reset: never before it, and a crowd is spread after it.
pub(crate) fn after_reset(wait: Duration, id: DecisionId) -> Duration {
    let wait = millis(wait.max(SHORTEST));
    let (least, most) = AFTER_RESET;
    Duration::from_millis(wait + mix(id.0) % ((wait / 4).clamp(least, most) + 1))
}

/// Whole milliseconds, rounded up.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
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

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The waits of a hundred decisions in a row.
    fn told(tell: impl Fn(DecisionId) -> Duration) -> BTreeSet<Duration> {
        (0..100).map(DecisionId).map(tell).collect()
    }

    #[test]
    fn waits_are_whole_milliseconds_of_at_least_a_second() {
        let rows = [(0, 1_000), (999_999_999, 1_000), (1_000_000_001, 1_001), (3_999_000_000, 3_999)];
        for (nanos, millis) in rows {
            let told = told(|id| polite(Duration::from_nanos(nanos), id));
            assert_eq!(told, BTreeSet::from([Duration::from_millis(millis)]), "{nanos} ns");
        }
    }

    #[test]
    fn jitter_adds_up_to_a_quarter_and_sixty_seconds_come_last() {
        for (wait, least, most) in [(4, 4, 5), (12, 12, 15), (40, 40, 50), (55, 55, 60), (60, 48, 60), (900, 48, 60)] {
            let told = told(|id| polite(seconds(wait), id));
            assert!(told.len() > 90, "{wait} s: {told:?}");
            assert!(told.iter().all(|told| (seconds(least)..=seconds(most)).contains(told)), "{wait} s: {told:?}");
        }
    }

    #[test]
    fn no_client_comes_before_the_reset_and_a_crowd_is_spread_after_it() {
        for (wait, most) in [(2, 2_500), (20, 25_000), (86_400, 86_412_000)] {
            let told = told(|id| after_reset(seconds(wait), id));
            let last = Duration::from_millis(most);
            assert!(told.len() > 80 && told.iter().all(|told| *told >= seconds(wait) && *told <= last), "{told:?}");
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
        let crowd: Vec<_> = (0..1_000).map(|_| queue.push(now, drain.interval(now))).collect();
        assert!(crowd.is_sorted());
        let of = |n: usize| crowd[n].as_millis();
        assert_eq!((of(0), of(10), of(100), of(999)), (1_000, 2_000, 11_000, 48_000));
    }

    #[test]
    fn a_crowd_is_spread_while_no_drain_is_known() {
        let mut queue = VirtualQueue::default();
        let crowd: BTreeSet<_> = (0..300).map(|id| polite(queue.push(at_millis(0), None), DecisionId(id))).collect();
        assert_eq!((crowd.len(), crowd.first()), (300, Some(&SHORTEST)));
        assert!(crowd.iter().all(|told| *told <= seconds(5)), "{crowd:?}");
        // With the time the queue empties.
        assert_eq!(queue.push(at_millis(4_000), None), SHORTEST);
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
