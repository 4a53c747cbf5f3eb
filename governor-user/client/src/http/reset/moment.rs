//! One value that names a time, in any form that providers use. Knows no header's name.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A number of seconds from here on is a time since 1970: as a delay it would be of more than 30 years.
const EPOCH_SECONDS: f64 = 1e9;

/// A number from here on is in milliseconds since 1970: in seconds it would be 30,000 years away.
const EPOCH_MILLIS: f64 = 1e12;

/// The time from `now` until the moment that `text` names; 0 when it is over.
pub(super) fn after_now(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(value) = number(text) {
        return match value {
            EPOCH_MILLIS.. => until(UNIX_EPOCH.checked_add(seconds(value / 1e3)?)?, now),
            EPOCH_SECONDS.. => until(UNIX_EPOCH.checked_add(seconds(value)?)?, now),
            delay => seconds(delay),
        };
    }
    if let Some(delay) = span(text) {
        return Some(delay);
    }
    let date = || Some(rfc2822::parse(text).ok()?.timestamp());
    let moment: Timestamp = text.parse().ok().or_else(date)?;
    until(SystemTime::from(moment), now)
}

/// A number of milliseconds.
pub(super) fn millis(text: &str) -> Option<Duration> {
    seconds(number(text)? / 1e3)
}

/// `6m0s`, `1.5s`, `1h2m3s`, `20ms`.
pub(super) fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (value, tail) = rest.split_at(rest.find(|c: char| c != '.' && !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let scale = match unit {
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return None,
        };
        total = total.checked_add(seconds(number(value)? * scale)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Digits with at most one point: no sign, no exponent, no `inf`, which Rust's own numbers may have.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

/// `None` for what no duration holds.
fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value).ok()
}

fn until(moment: SystemTime, now: SystemTime) -> Option<Duration> {
    Some(moment.duration_since(now).unwrap_or(Duration::ZERO))
}
