//! What each pool did since the last line of the log about it: grants, waits and refusals by reason. The log has one line a
//! minute for each pool with traffic. Counts only; reads no clock.

use crate::naming;
use governor_engine::id::PoolId;
use governor_engine::io::{Output, Reason};
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;

/// Time between two lines of the log about a pool.
const EVERY: Duration = Duration::from_secs(60);

/// Waits are counted in buckets up to 2ⁿ ms: 1 ms to 131 s; longer ones are in the last.
const BUCKETS: usize = 18;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants with a slot of their own, moves not among them.
    pub granted: u64,
    /// Those that had been parked.
    pub waited: u64,
    /// Refusals by reason.
    pub refused: BTreeMap<&'static str, u64>,
    waits: [u64; BUCKETS],
}

impl Counts {
    fn grant(&mut self, waited: Duration) {
        self.granted += 1;
        if waited == Duration::ZERO {
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
        let mut below = self.granted - self.waited;
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

    /// Refusals by reason as a line of the log has them: `fair_share 40, queue_full 2`; empty without any.
    #[must_use]
    pub fn reasons(&self) -> String {
        self.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// Of all pools.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    pools: BTreeMap<PoolId, Counts>,
    /// When the log is due; `None` while nothing happens.
    due: Option<Instant>,
}

impl Rates {
    /// Takes an order: grants with a slot of their own, and refusals.
    pub fn take(&mut self, order: &Output) {
        if let Output::Began(grant) | Output::Resumed(grant) = order {
            self.granted(grant.context.pool, grant.waited, grant.context.at);
        } else if let Output::Refused { decision, .. } = order {
            self.refused(decision.pool, decision.reason, decision.at);
        }
    }

    /// A grant with a slot of its own.
    pub fn granted(&mut self, pool: PoolId, waited: Duration, now: Instant) {
        self.note(pool, now, |counts| counts.grant(waited));
    }

    /// A refusal.
    pub fn refused(&mut self, pool: PoolId, reason: Reason, now: Instant) {
        self.note(pool, now, |counts| *counts.refused.entry(naming::reason(reason)).or_default() += 1);
    }

    fn note(&mut self, pool: PoolId, now: Instant, count: impl FnOnce(&mut Counts)) {
        self.due.get_or_insert_with(|| now.after(EVERY));
        count(self.pools.entry(pool).or_default());
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
        std::mem::take(&mut self.pools).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    const POOL: PoolId = PoolId(0);

    #[test]
    fn the_log_has_each_event_once_and_no_line_without_traffic() {
        let mut rates = Rates::default();
        assert_eq!(rates.due(), None);
        rates.granted(POOL, Duration::ZERO, at(10));
        assert_eq!(rates.due(), Some(at(70)));
        assert!(rates.take_due(at(69)).is_empty());
        rates.refused(POOL, Reason::QueueFull, at(70));
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
