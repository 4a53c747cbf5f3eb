//! When an upstream that refused serves again, by what it says in its answer: every form in which a provider of language
//! models names that time. Reports nothing to the daemon; the proxy does, with
//! [`Governor::member_report`](crate::Governor::member_report).

use http::{HeaderMap, HeaderValue, header};
use moment::after_now;
use serde_json::Value;
use std::time::{Duration, SystemTime};

mod moment;

/// The longest time that is returned, 24 h. A longer one is a mistake or a quota of days, and an account that is asked
/// again says it again. The daemon's own bound on cooling (`cooldown.max`) is shorter.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Largest body of a refusal that is looked into, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Milliseconds until a retry makes sense: OpenAI's and Azure's names.
const IN_MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Pairs of headers: what is left of a limit, and when it is whole again. OpenAI and those that copy it, Azure, Anthropic.
const LIMITS: [(&str, &str); 9] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining-images", "x-ratelimit-reset-images"),
];

/// Anthropic's limits of a subscription: the status of each, and its reset in seconds since 1970.
const UNIFIED: [(&str, &str); 3] = [
    ("anthropic-ratelimit-unified-status", "anthropic-ratelimit-unified-reset"),
    ("anthropic-ratelimit-unified-5h-status", "anthropic-ratelimit-unified-5h-reset"),
    ("anthropic-ratelimit-unified-7d-status", "anthropic-ratelimit-unified-7d-reset"),
];

/// The time from `now` until the upstream serves again, from the headers of a refusal (429 or 503): 0 when that time is
/// over, at most [`LONGEST`], `None` when the headers name none.
///
/// What the refusal says about itself counts first (`retry-after-ms`, then `Retry-After`), then the latest reset of the
/// limits that have nothing left. A value may be seconds, milliseconds where the name says so, an HTTP date, RFC 3339, a
/// span (`1m30s`), or seconds or milliseconds since 1970; one that is none of these is passed over.
#[must_use]
pub fn reset_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    advice(headers, now).or_else(|| spent(headers, now)).map(|rest| rest.min(LONGEST))
}

/// The same from the body of a refusal in Google's format, which has no such headers: `retryDelay` of a `RetryInfo`. At
/// most [`LONGEST`]; `None` for a body without one, that is no JSON, or of more than 64 KiB.
#[must_use]
pub fn reset_after_in_body(body: &[u8]) -> Option<Duration> {
    if body.len() > MAX_BODY {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    // An answer to a streamed request is a list of one.
    let error = body.get("error").or_else(|| body.get(0)?.get("error"))?;
    let details = error.get("details")?.as_array()?;
    let delays = details.iter().filter_map(|detail| moment::span(detail.get("retryDelay")?.as_str()?));
    delays.max().map(|delay| delay.min(LONGEST))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim)
}

/// What the upstream says about this refusal.
fn advice(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let exact = IN_MILLIS.iter().find_map(|name| moment::millis(text(headers, name)?));
    exact.or_else(|| after_now(text(headers, header::RETRY_AFTER.as_str())?, now))
}

/// The latest reset of a limit with nothing left.
fn spent(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let counted = LIMITS.iter().filter_map(|(left, reset)| {
        let left: f64 = text(headers, left)?.parse().ok()?;
        if left > 0.0 { None } else { after_now(text(headers, reset)?, now) }
    });
    let unified = UNIFIED.iter().filter_map(|(status, reset)| {
        let allowed = text(headers, status).is_some_and(|status| status.starts_with("allowed"));
        // Only the limit that refused has to be waited for; the first row speaks for it where none is named.
        let silent = text(headers, status).is_none() && *status != UNIFIED[0].0;
        if allowed || silent { None } else { after_now(text(headers, reset)?, now) }
    });
    counted.chain(unified).max()
}

#[cfg(test)]
mod tests;
