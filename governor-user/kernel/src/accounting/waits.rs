//! How long connections waited in the accept queue of one listener, from its histograms: whole and per interval. Knows no hook.

use crate::programs::reading::SojournReading;
use governor_common::abi::upper_bound_seconds;
use governor_observation::{SojournBucket, SojournView};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Length of the intervals that p50, p99 and the longest wait are of.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// The waits of one listener over time.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Of all generations of the listener.
    latest: SojournReading,
    /// Of those whose entries are gone.
    carried: SojournReading,
    /// When the interval that runs began and what had been counted then.
    begun: Option<(Instant, Vec<(usize, u64)>)>,
    /// Longest in the interval that runs.
    longest_ns: Option<u64>,
    /// The last complete interval.
    complete: Complete,
}

/// One interval.
#[derive(Clone, Debug, Default)]
struct Complete {
    length: Duration,
    buckets: Vec<(usize, u64)>,
    longest_ns: Option<u64>,
}

impl Waits {
    /// Takes in a reading; an interval that is over becomes the one that is shown.
    pub(crate) fn absorb(&mut self, reading: SojournReading, now: Instant) {
        self.longest_ns = self.longest_ns.max(reading.longest_ns);
        self.latest = sum(&self.carried, reading);
        let Some((begun, before)) = &self.begun else {
            self.begun = Some((now, Vec::new()));
            return;
        };
        let length = now.saturating_duration_since(*begun);
        if length >= INTERVAL {
            let buckets = rise(before, &self.latest.buckets);
            self.complete = Complete { length, buckets, longest_ns: self.longest_ns.take() };
            self.begun = Some((now, self.latest.buckets.clone()));
        }
    }

    /// The entry whose waits were taken in last is gone; the next one begins at zero.
    pub(crate) fn ended(&mut self) {
        self.carried = SojournReading { longest_ns: None, ..self.latest.clone() };
    }

    /// What is shown.
    pub(crate) fn view(&self) -> SojournView {
        let Complete { length, buckets, longest_ns } = &self.complete;
        SojournView {
            count: total(&self.latest.buckets),
            sum_seconds: seconds(self.latest.sum_ns),
            buckets: self.latest.buckets.iter().map(|(bucket, count)| shown(*bucket, *count)).collect(),
            interval_seconds: length.as_secs_f64(),
            interval_count: total(buckets),
            p50_seconds: quantile(buckets, 50, *longest_ns),
            p99_seconds: quantile(buckets, 99, *longest_ns),
            max_seconds: longest_ns.map(seconds),
        }
    }
}

fn sum(carried: &SojournReading, now: SojournReading) -> SojournReading {
    if carried.buckets.is_empty() {
        return now;
    }
    let mut buckets: BTreeMap<usize, u64> = carried.buckets.iter().copied().collect();
    for (bucket, count) in now.buckets {
        *buckets.entry(bucket).or_default() += count;
    }
    let sum_ns = carried.sum_ns.saturating_add(now.sum_ns);
    SojournReading { buckets: buckets.into_iter().collect(), sum_ns, longest_ns: now.longest_ns }
}

fn shown(bucket: usize, count: u64) -> SojournBucket {
    SojournBucket { up_to_seconds: upper_bound_seconds(bucket), count }
}

/// What was added between two states of a histogram, both ascending.
fn rise(before: &[(usize, u64)], after: &[(usize, u64)]) -> Vec<(usize, u64)> {
    let count = |bucket| before.iter().find(|(other, _)| *other == bucket).map_or(0, |(_, count)| *count);
    let rise = after.iter().map(|(bucket, now)| (*bucket, now.saturating_sub(count(*bucket))));
    rise.filter(|(_, count)| *count != 0).collect()
}

fn total(buckets: &[(usize, u64)]) -> u64 {
    buckets.iter().map(|(_, count)| count).sum()
}

/// Upper bound of the bucket in which `percent` of the waits are reached, or the longest wait if that is less.
fn quantile(buckets: &[(usize, u64)], percent: u64, longest_ns: Option<u64>) -> Option<f64> {
    let rank = total(buckets).saturating_mul(percent).div_ceil(100);
    let mut reached = 0;
    let (bucket, _) = buckets.iter().find(|(_, count)| {
        reached += count;
        reached >= rank
    })?;
    let longest = longest_ns.map(seconds);
    match (upper_bound_seconds(*bucket), longest) {
        (Some(bound), Some(longest)) => Some(bound.min(longest)),
        (bound, longest) => bound.or(longest),
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::waits::summary;
    use governor_common::abi::{Longest, Sojourn, bucket_of};

    const MILLISECOND: u64 = 1_000_000;

    fn reading(waits: &[u64], longest_ns: Option<u64>) -> SojournReading {
        let mut sojourn = Sojourn::EMPTY;
        for wait in waits {
            sojourn.buckets[bucket_of(*wait)] += 1;
            sojourn.sum_ns += wait;
        }
        SojournReading { longest_ns, ..summary(&sojourn, 0) }
    }

    #[test]
    fn quantiles_are_of_the_last_complete_interval() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        waits.absorb(reading(&[], None), begun);
        let mut seen = vec![MILLISECOND; 99];
        seen.push(100 * MILLISECOND);
        waits.absorb(reading(&seen, Some(100 * MILLISECOND)), begun + INTERVAL / 2);
        assert_eq!((waits.view().count, waits.view().interval_count, waits.view().p50_seconds), (100, 0, None));

        waits.absorb(reading(&seen, None), begun + INTERVAL);
        let view = waits.view();
        assert_eq!((view.interval_count, view.interval_seconds, view.max_seconds), (100, 10.0, Some(0.1)));
        let of = |wait| upper_bound_seconds(bucket_of(wait));
        assert_eq!((view.p50_seconds, view.p99_seconds), (of(MILLISECOND), of(MILLISECOND)));

        waits.absorb(reading(&seen, None), begun + INTERVAL * 2);
        let view = waits.view();
        assert_eq!((view.count, view.interval_count, view.p99_seconds, view.max_seconds), (100, 0, None, None));
    }

    #[test]
    fn waits_of_a_new_entry_add_to_those_of_the_old() {
        let (mut waits, begun) = (Waits::default(), Instant::now());
        waits.absorb(reading(&[MILLISECOND; 30], None), begun);
        waits.ended();
        assert_eq!(waits.view().count, 30);
        waits.absorb(reading(&[MILLISECOND, 9 * MILLISECOND], None), begun + INTERVAL);
        assert_eq!((waits.view().count, waits.view().sum_seconds, waits.view().buckets.len()), (32, 0.04, 2));
        waits.absorb(reading(&[MILLISECOND; 3], None), begun + INTERVAL);
        assert_eq!(waits.view().count, 33);
    }

    #[test]
    fn a_quantile_never_exceeds_the_longest_wait() {
        let longest = 90_000 * MILLISECOND;
        assert_eq!(
            quantile(&reading(&[longest], None).buckets, 50, Some(longest)),
            Some(90.0),
            "beyond the last bound"
        );
        assert_eq!(quantile(&reading(&[MILLISECOND], None).buckets, 99, Some(MILLISECOND)), Some(0.001));
        assert_eq!(quantile(&[], 99, None), None);
    }

    #[test]
    fn the_longest_wait_counts_in_the_interval_that_ended_only() {
        let mut sojourn = Sojourn::EMPTY;
        sojourn.longest = [Longest { interval: 6, wait_ns: 9 }.to_raw(), Longest { interval: 7, wait_ns: 5 }.to_raw()];
        assert_eq!(summary(&sojourn, 7).longest_ns, Some(5));
        assert_eq!(summary(&sojourn, 6).longest_ns, Some(9));
        assert_eq!(summary(&sojourn, 8).longest_ns, None);
        assert_eq!(summary(&Sojourn::EMPTY, 0).longest_ns, None, "nothing was accepted yet");
    }
}
