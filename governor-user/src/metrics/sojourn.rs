//! How long connections waited in accept queues, as a classic histogram: the kernel's fine buckets summed up to fixed
//! bounds. Every bound is one of the kernel's own, so each count is exact. Knows no listener.

use governor_observation::SojournView;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// The bounds are powers of two of a second from this exponent (61 µs) …
const FIRST: i32 = -14;
/// … to this (16 s); what is longer is only in `+Inf`.
const LAST: i32 = 4;
/// A native histogram's bounds are all powers of two, of which the kernel distinguishes those from 0.95 µs …
const FIRST_NATIVE: i32 = -20;
/// … to 64 s. What is longer is in the bucket above, because there is none without a bound.
const LAST_NATIVE: i32 = 6;

/// The waits of one listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Waits {
    sum: f64,
    count: u64,
    /// Upper bound and waits that no shorter bound takes; the last bound is infinite.
    classic: Vec<(f64, u64)>,
    /// Waits at most as long as the first native bound.
    zero: u64,
    /// Waits by native bucket, of the exponents from [`FIRST_NATIVE`] + 1 to [`LAST_NATIVE`] + 1.
    native: Vec<u64>,
}

impl Waits {
    pub(super) fn of(sojourn: &SojournView) -> Self {
        let mut classic: Vec<(f64, u64)> = exponents(FIRST, LAST).map(|bound| (bound, 0)).collect();
        classic.push((f64::INFINITY, 0));
        let mut native: Vec<(f64, u64)> = exponents(FIRST_NATIVE, LAST_NATIVE).map(|bound| (bound, 0)).collect();
        native.push((f64::INFINITY, 0));
        for bucket in &sojourn.buckets {
            let longest = bucket.up_to_seconds.unwrap_or(f64::INFINITY);
            for bounds in [&mut classic, &mut native] {
                if let Some((_, waits)) = bounds.iter_mut().find(|(bound, _)| longest <= *bound) {
                    *waits += bucket.count;
                }
            }
        }
        let mut native = native.into_iter().map(|(_, waits)| waits);
        Self {
            sum: sojourn.sum_seconds,
            count: classic.iter().map(|(_, waits)| waits).sum(),
            classic,
            zero: native.next().unwrap_or(0),
            native: native.collect(),
        }
    }
}

impl EncodeMetric for Waits {
    /// Text takes the classic buckets, protobuf both.
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let mut before = 0;
        let deltas: Vec<i64> = self
            .native
            .iter()
            .map(|waits| {
                let waits = i64::try_from(*waits).unwrap_or(i64::MAX);
                waits - std::mem::replace(&mut before, waits)
            })
            .collect();
        let length = u32::try_from(deltas.len()).unwrap_or(u32::MAX);
        let native = NativeHistogram {
            schema: 0,
            zero_threshold: f64::from(FIRST_NATIVE).exp2(),
            zero_count: self.zero,
            negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
            // Bucket i of schema 0 ends at 2ⁱ.
            positive: NativeHistogramBuckets { spans: &[(FIRST_NATIVE + 1, length)], deltas: &deltas },
            created: None,
        };
        encoder.encode_histogram_with_native::<NoLabelSet>(self.sum, self.count, &self.classic, None, native)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn exponents(first: i32, last: i32) -> impl Iterator<Item = f64> {
    (first..=last).map(f64::from).map(f64::exp2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::abi::{BUCKETS, bucket_of, upper_bound_seconds};
    use governor_observation::SojournBucket;

    /// As the kernel counts these waits, in nanoseconds.
    fn counted(waits: &[u64]) -> SojournView {
        let mut counts = [0; BUCKETS];
        waits.iter().for_each(|wait| counts[bucket_of(*wait)] += 1);
        let buckets = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        SojournView {
            count: waits.len().try_into().unwrap(),
            sum_seconds: waits.iter().sum::<u64>() as f64 / 1e9,
            buckets: buckets
                .map(|(bucket, count)| SojournBucket { up_to_seconds: upper_bound_seconds(bucket), count: *count })
                .collect(),
            ..SojournView::default()
        }
    }

    #[test]
    fn every_bound_is_one_of_the_kernels() {
        let kernel: Vec<f64> = (0..BUCKETS).filter_map(upper_bound_seconds).collect();
        for bound in exponents(FIRST, LAST).chain(exponents(FIRST_NATIVE, LAST_NATIVE)) {
            assert!(kernel.contains(&bound), "{bound}");
        }
        assert_eq!((kernel[0], kernel.last().copied()), (2_f64.powi(FIRST_NATIVE), Some(2_f64.powi(LAST_NATIVE))));
    }

    #[test]
    fn a_wait_of_a_quarter_of_a_second_is_an_observation_of_0_25() {
        let waits = Waits::of(&counted(&[250_000_000]));
        assert_eq!((waits.sum, waits.count), (0.25, 1));
        assert_eq!(waits.classic.iter().find(|(_, count)| *count > 0), Some(&(0.25, 1)));
    }

    #[test]
    fn counts_equal_those_of_the_waits_themselves() {
        let mut all =
            vec![0, 1, 953, 954, 61_035, 61_036, 16_000_000_000, 16_000_000_001, 64_000_000_001, u64::MAX / 2];
        all.extend((1..4000).map(|step| step * 9_973_337));
        let waits = Waits::of(&counted(&all));
        let mut cumulative = 0;
        for (bound, count) in &waits.classic {
            cumulative += count;
            let truth = all.iter().filter(|wait| **wait as f64 / 1e9 <= *bound).count();
            assert_eq!(cumulative, u64::try_from(truth).unwrap(), "at most {bound} s");
        }
        assert_eq!(waits.count, u64::try_from(all.len()).unwrap());
        assert_eq!(waits.zero + waits.native.iter().sum::<u64>(), waits.count);
        assert_eq!(waits.zero, 3);
        assert_eq!(waits.native.last(), Some(&2), "longer than 64 s");
    }
}
