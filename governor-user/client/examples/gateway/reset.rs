//! How long a refused account is to rest, as its provider says: `retry-after-ms`, `Retry-After` in either of its forms, or
//! the reset of whichever limit has nothing left (Anthropic names a time, OpenAI a duration).

use axum::http::HeaderMap;
use axum::http::header::RETRY_AFTER;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use std::time::Duration;

/// The limits Anthropic tells of: `anthropic-ratelimit-requests-remaining`, `…-reset`.
const ANTHROPIC: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

/// The limits OpenAI tells of: `x-ratelimit-remaining-requests`, `x-ratelimit-reset-requests`.
const OPENAI: [&str; 2] = ["requests", "tokens"];

/// Longest rest that is believed: longer ones are mistakes, and an account that is asked again says it again.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The time until the account serves again; `None` when the answer does not say.
pub(crate) fn reset(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let rest = advice(headers, now).or_else(|| exhausted(headers, now))?;
    Some(rest.min(LONGEST))
}

/// What the provider says about this refusal.
fn advice(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    match after.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => until(rfc2822::parse(after).ok()?.timestamp(), now),
    }
}

/// The latest reset of a limit with nothing left.
fn exhausted(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    let anthropic = ANTHROPIC.iter().filter_map(|limit| {
        let left = text(format!("anthropic-ratelimit-{limit}-remaining"))?;
        let reset = text(format!("anthropic-ratelimit-{limit}-reset"))?;
        (left == "0").then(|| until(reset.parse().ok()?, now))?
    });
    let openai = OPENAI.iter().filter_map(|limit| {
        let left = text(format!("x-ratelimit-remaining-{limit}"))?;
        let reset = text(format!("x-ratelimit-reset-{limit}"))?;
        (left == "0").then(|| span(reset))?
    });
    anthropic.chain(openai).max()
}

/// Time from `now` to `then`, 0 when it is over.
fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    Some(Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// `6m0s`, `1.5s`, `20ms`.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (value, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(value.parse::<f64>().ok()? * scale).ok()?)?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn rest(rows: &[(&'static str, &'static str)]) -> Option<Duration> {
        let rows = rows.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        reset(&rows.collect(), "2026-11-30T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn what_is_said_about_this_refusal_goes_before_what_is_said_about_limits() {
        let spent = ("anthropic-ratelimit-requests-remaining", "0");
        let reset = ("anthropic-ratelimit-requests-reset", "2026-11-30T12:05:00Z");
        assert_eq!(rest(&[spent, reset]), Some(Duration::from_secs(300)));
        assert_eq!(rest(&[spent, reset, ("retry-after", "7")]), Some(Duration::from_secs(7)));
        let exact = ("retry-after-ms", "1250");
        assert_eq!(rest(&[spent, reset, ("retry-after", "7"), exact]), Some(Duration::from_millis(1250)));
    }

    #[test]
    fn retry_after_may_be_a_date() {
        assert_eq!(rest(&[("retry-after", "Mon, 30 Nov 2026 12:02:00 GMT")]), Some(Duration::from_secs(120)));
        assert_eq!(rest(&[("retry-after", "Mon, 30 Nov 2026 11:02:00 GMT")]), Some(Duration::ZERO));
    }

    #[test]
    fn of_several_spent_limits_the_last_to_come_back_counts() {
        let rows = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        assert_eq!(rest(&rows), Some(Duration::from_secs(360)));
        assert_eq!(rest(&rows[..2]), Some(Duration::from_secs(1)));
        let left = [("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "1s")];
        assert_eq!(rest(&left), None, "a limit with something left refused nobody");
    }

    #[test]
    fn nonsense_says_nothing_and_no_rest_is_longer_than_a_day() {
        for value in ["", "soon", "-3", "NaN", "1e400"] {
            assert_eq!(rest(&[("retry-after", value)]), None, "{value:?}");
        }
        for value in ["", "5", "s", "1x", "1.2.3s"] {
            let rows = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", value)];
            assert!(rest(&rows).is_none_or(|rest| rest.is_zero()), "{value:?}");
        }
        assert_eq!(rest(&[("retry-after", "99999999")]), Some(LONGEST));
        assert_eq!(span("1h20ms"), Some(Duration::from_millis(3_600_020)));
    }
}
