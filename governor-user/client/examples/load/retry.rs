//! When and how often a client tries again: the rules of the official OpenAI clients, which other vendors' clients
//! share. Pure: the random number is an argument, and sleeping is somebody else's work.

use http::{HeaderMap, StatusCode};
use std::time::Duration;

/// A client's retry rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Tries after the first one.
    pub(crate) retries: u32,
    /// Back-off before the first retry; it doubles with each one.
    pub(crate) initial: Duration,
    /// The back-off grows no further.
    pub(crate) longest: Duration,
    /// A server's advice is followed up to this; above it the back-off is used instead.
    pub(crate) advice_cap: Duration,
}

impl RetryPolicy {
    /// Whether a status is worth another try.
    pub(crate) fn retries_status(status: StatusCode) -> bool {
        matches!(status.as_u16(), 408 | 409 | 429 | 500..)
    }

    /// How long to wait before retry number `retry` (0 for the first). `random` in 0–1 shortens a back-off by up to
    /// a quarter; a server's advice is followed to the letter.
    pub(crate) fn delay(&self, retry: u32, answer: Option<&HeaderMap>, random: f64) -> Duration {
        if let Some(advice) = answer.and_then(advice)
            && !advice.is_zero()
            && advice <= self.advice_cap
        {
            return advice;
        }
        let backoff = self.initial.saturating_mul(2_u32.saturating_pow(retry)).min(self.longest);
        backoff.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0))
    }
}

/// `retry-after-ms`, else `Retry-After` in seconds. Dates are for caches; no provider sends one here.
fn advice(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const POLICY: RetryPolicy = RetryPolicy {
        retries: 2,
        initial: Duration::from_millis(500),
        longest: Duration::from_secs(8),
        advice_cap: Duration::from_secs(60),
    };

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn back_off_doubles_up_to_its_bound() {
        let millis = |retry| POLICY.delay(retry, None, 0.0).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5, 40].map(millis), [500, 1000, 2000, 4000, 8000, 8000, 8000]);
    }

    #[test]
    fn jitter_shortens_a_back_off_by_at_most_a_quarter() {
        assert_eq!(POLICY.delay(0, None, 1.0), Duration::from_millis(375));
        assert_eq!(POLICY.delay(0, None, 0.5), Duration::from_micros(437_500));
        assert_eq!(POLICY.delay(0, None, 9.0), Duration::from_millis(375));
    }

    #[test]
    fn a_servers_advice_is_followed_within_the_cap() {
        let rows: &[(&[(&str, &str)], u64)] = &[
            (&[("retry-after", "2")], 2000),
            (&[("retry-after", "60")], 60_000),
            (&[("retry-after", "61")], 500),
            (&[("retry-after", "0")], 500),
            (&[("retry-after", "-1")], 500),
            (&[("retry-after", "soon")], 500),
            (&[("retry-after", "NaN")], 500),
            (&[("retry-after-ms", "1250"), ("retry-after", "2")], 1250),
            (&[("retry-after-ms", "x"), ("retry-after", "2")], 2000),
            (&[], 500),
        ];
        for (answer, millis) in rows {
            let delay = POLICY.delay(0, Some(&headers(answer)), 0.0);
            assert_eq!(delay, Duration::from_millis(*millis), "{answer:?}");
        }
    }

    #[test]
    fn only_statuses_that_may_change_are_tried_again() {
        for (status, again) in
            [(200, false), (400, false), (401, false), (404, false), (408, true), (409, true), (429, true), (529, true)]
        {
            assert_eq!(RetryPolicy::retries_status(StatusCode::from_u16(status).unwrap()), again, "{status}");
        }
    }
}
