//! What each pool did in the last minute: grants, waits and refusals by reason and status, for `status`; and the same since
//! the last line of the log, which has one line a minute for each pool with traffic. Counts only; reads no clock.

use super::translate;
use governor_engine::id::PoolId;
use governor_engine::io::Reason;
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// The window of [`Rates::minute`] and the time between two lines of the log.
const WINDOW: Duration = Duration::from_secs(60);

/// The window moves in steps of this many seconds.
const STEP: u64 = 5;

/// Steps of the window, the one in progress included.
const STEPS: u64 = 12;

/// Waits are counted in buckets up to 2ⁿ ms: 1 ms to 131 s; longer ones are in the last.
const BUCKETS: usize = 18;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants with a slot of their own, moves not among them.
    pub granted: u64,
    /// Those that had been parked.
    pub waited: u64,
    /// Refusals by reason and HTTP status.
    pub refused: BTreeMap<(&'static str, u16), u64>,
    /// Grants at once.
    at_once: u64,
    waits: [u64; BUCKETS],
}

impl Counts {
    fn is_empty(&self) -> bool {
        self.granted == 0 && self.refused.is_empty()
    }

    fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.waited += other.waited;
        self.at_once += other.at_once;
        for (of, count) in &other.refused {
            *self.refused.entry(*of).or_default() += count;
        }
        for (sum, count) in self.waits.iter_mut().zip(other.waits) {
            *sum += count;
        }
    }

    fn grant(&mut self, waited: Duration) {
        self.granted += 1;
        if waited == Duration::ZERO {
            self.at_once += 1;
            return;
        }
        self.waited += 1;
        let fits = |bucket: usize| waited <= Duration::from_millis(1_u64 << bucket);
        let bucket = (0..BUCKETS).find(|bucket| fits(*bucket)).unwrap_or(BUCKETS - 1);
        if let Some(count) = self.waits.get_mut(bucket) {
            *count += 1;
        }
    }

    /// The wait that so many percent of the grants did not exceed, rounded up to a power of two of a millisecond; `None`
    /// without grants.
    #[must_use]
    pub fn wait(&self, percent: u64) -> Option<Duration> {
        let rank = (self.granted * percent).div_ceil(100).max(1);
        let mut below = self.at_once;
        if self.granted == 0 {
            return None;
        }
        if rank <= below {
            return Some(Duration::ZERO);
        }
        for (bucket, count) in self.waits.iter().enumerate() {
            below += count;
            if rank <= below {
                return Some(Duration::from_millis(1_u64 << bucket));
            }
        }
        None
    }

    /// Refusals, by status.
    #[must_use]
    pub fn by_status(&self) -> BTreeMap<u16, u64> {
        let mut all = BTreeMap::new();
        for ((_, status), count) in &self.refused {
            *all.entry(*status).or_default() += count;
        }
        all
    }

    /// Refusals by reason as a line of the log has them: `fair_share 40, queue_full 2`; empty without any.
    #[must_use]
    pub fn reasons(&self) -> String {
        let mut all = BTreeMap::<&str, u64>::new();
        for ((reason, _), count) in &self.refused {
            *all.entry(reason).or_default() += count;
        }
        all.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// Of one pool.
#[derive(Clone, Debug, Default)]
struct OfPool {
    /// By the number of the step, the oldest first.
    steps: VecDeque<(u64, Counts)>,
    unsaid: Counts,
}

/// Of all pools.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    pools: BTreeMap<PoolId, OfPool>,
    /// When the log is due; `None` while nothing happens.
    due: Option<Instant>,
}

impl Rates {
    /// A grant with a slot of its own.
    pub fn granted(&mut self, pool: PoolId, waited: Duration, now: Instant) {
        self.note(pool, now, |counts| counts.grant(waited));
    }

    /// A refusal.
    pub fn refused(&mut self, pool: PoolId, reason: Reason, status: u16, now: Instant) {
        self.note(pool, now, |counts| *counts.refused.entry((translate::reason(reason), status)).or_default() += 1);
    }

    fn note(&mut self, pool: PoolId, now: Instant, count: impl Fn(&mut Counts)) {
        self.due.get_or_insert_with(|| now.after(WINDOW));
        let step = step(now);
        let of = self.pools.entry(pool).or_insert_with(|| OfPool { steps: VecDeque::new(), unsaid: Counts::default() });
        count(&mut of.unsaid);
        if of.steps.back().is_none_or(|(last, _)| *last != step) {
            of.steps.retain(|(at, _)| at + STEPS > step);
            of.steps.push_back((step, Counts::default()));
        }
        if let Some((_, counts)) = of.steps.back_mut() {
            count(counts);
        }
    }

    /// The last minute of a pool at `now`, to a step of five seconds.
    #[must_use]
    pub fn minute(&self, pool: PoolId, now: Instant) -> Counts {
        let step = step(now);
        let mut sum = Counts::default();
        let steps = self.pools.get(&pool).into_iter().flat_map(|of| &of.steps);
        steps.filter(|(at, _)| at + STEPS > step).for_each(|(_, counts)| sum.add(counts));
        sum
    }

    /// When [`Self::take_due`] has something.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What pools did since the last time, once a minute while they do anything.
    pub fn take_due(&mut self, now: Instant) -> Vec<(PoolId, Counts)> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.due = None;
        let unsaid = self.pools.iter_mut().map(|(pool, of)| (*pool, std::mem::take(&mut of.unsaid)));
        unsaid.filter(|(_, counts)| !counts.is_empty()).collect()
    }
}

fn step(now: Instant) -> u64 {
    now.since(Instant::ZERO).as_secs() / STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    const POOL: PoolId = PoolId(0);

    #[test]
    fn the_window_forgets_what_is_older_than_a_minute() {
        let mut rates = Rates::default();
        rates.granted(POOL, Duration::ZERO, at(0));
        rates.granted(POOL, Duration::from_millis(300), at(50));
        rates.refused(POOL, Reason::FairShare, 429, at(55));
        rates.refused(POOL, Reason::NodeCap, 529, at(55));
        let minute = rates.minute(POOL, at(59));
        assert_eq!((minute.granted, minute.waited, minute.by_status()), (2, 1, [(429, 1), (529, 1)].into()));
        assert_eq!(rates.minute(POOL, at(66)).granted, 1);
        assert!(rates.minute(POOL, at(400)).is_empty());
        assert!(rates.minute(PoolId(7), at(59)).is_empty());
    }

    #[test]
    fn the_log_has_each_event_once_and_no_line_without_traffic() {
        let mut rates = Rates::default();
        assert_eq!(rates.due(), None);
        rates.granted(POOL, Duration::ZERO, at(10));
        assert_eq!(rates.due(), Some(at(70)));
        assert!(rates.take_due(at(69)).is_empty());
        rates.refused(POOL, Reason::QueueFull, 429, at(70));
        let said = rates.take_due(at(70));
        assert_eq!((said.len(), said[0].1.granted, said[0].1.reasons()), (1, 1, "queue_full 1".to_owned()));
        assert_eq!(rates.due(), None);
        rates.granted(POOL, Duration::ZERO, at(100));
        assert_eq!(rates.take_due(at(160))[0].1.granted, 1);
    }

    #[test]
    fn waits_are_rounded_up_to_powers_of_two() {
        let mut counts = Counts::default();
        assert_eq!(counts.wait(50), None);
        for _ in 0..98 {
            counts.grant(Duration::ZERO);
        }
        counts.grant(Duration::from_millis(3));
        counts.grant(Duration::from_secs(600));
        assert_eq!(counts.wait(50), Some(Duration::ZERO));
        assert_eq!(counts.wait(99), Some(Duration::from_millis(4)));
        assert_eq!(counts.wait(100), Some(Duration::from_millis(1 << 17)));
    }
}
