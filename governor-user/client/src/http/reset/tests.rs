//! Refusals as the providers write them, row by row.

use super::*;
use http::HeaderName;
use std::time::UNIX_EPOCH;

/// 2026-11-30 12:00:00 UTC.
const NOW: u64 = 1_796_040_000;

fn after(rows: &[(&'static str, &'static str)]) -> Option<Duration> {
    let rows = rows.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    reset_after(&rows.collect(), UNIX_EPOCH + Duration::from_secs(NOW))
}

/// A provider, the headers of its refusal, and the milliseconds that they mean.
type Row = (&'static str, &'static [(&'static str, &'static str)], Option<u64>);

const REFUSALS: &[Row] = &[
    ("OpenAI, advice", &[("retry-after", "2"), ("retry-after-ms", "1731")], Some(1731)),
    (
        "OpenAI, tokens spent",
        &[
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        Some(360_000),
    ),
    (
        "OpenAI, both spent: the later counts",
        &[
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1m30.951s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "7.66s"),
        ],
        Some(90_951),
    ),
    (
        "OpenAI, nothing spent: these limits did not refuse",
        &[("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "1s")],
        None,
    ),
    ("Azure, advice", &[("retry-after", "9"), ("x-ms-retry-after-ms", "8400")], Some(8400)),
    (
        "Azure, plain seconds",
        &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "27")],
        Some(27_000),
    ),
    (
        "Anthropic, RFC 3339",
        &[
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T12:05:00Z"),
            ("anthropic-ratelimit-tokens-remaining", "80000"),
            ("anthropic-ratelimit-tokens-reset", "2026-11-30T13:00:00Z"),
        ],
        Some(300_000),
    ),
    (
        "Anthropic, RFC 3339 with an offset",
        &[
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-30T14:00:01.5+02:00"),
        ],
        Some(1500),
    ),
    (
        "Anthropic, advice before limits",
        &[
            ("retry-after", "7"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T12:05:00Z"),
        ],
        Some(7000),
    ),
    (
        "Anthropic, a subscription's quota in seconds since 1970",
        &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1796047200")],
        Some(7_200_000),
    ),
    ("Anthropic, the same without a status", &[("anthropic-ratelimit-unified-reset", "1796047200")], Some(7_200_000)),
    (
        "Anthropic, only the window that refused counts",
        &[
            ("anthropic-ratelimit-unified-5h-status", "rejected"),
            ("anthropic-ratelimit-unified-5h-reset", "1796040600"),
            ("anthropic-ratelimit-unified-7d-status", "allowed_warning"),
            ("anthropic-ratelimit-unified-7d-reset", "1796126400"),
        ],
        Some(600_000),
    ),
    ("milliseconds since 1970", &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796040002500")], Some(2500)),
    ("a date", &[("retry-after", "Mon, 30 Nov 2026 12:02:00 GMT")], Some(120_000)),
    ("a date that is over", &[("retry-after", "Mon, 30 Nov 2026 11:02:00 GMT")], Some(0)),
    ("a time since 1970 that is over", &[("anthropic-ratelimit-unified-reset", "1700000000")], Some(0)),
    ("absurd seconds", &[("retry-after", "99999999")], Some(86_400_000)),
    ("an absurd date", &[("retry-after", "Fri, 01 Jan 9999 00:00:00 GMT")], Some(86_400_000)),
    ("49 days in milliseconds", &[("retry-after-ms", "4294967295")], Some(86_400_000)),
    ("an absurd number", &[("retry-after", "99999999999999999999999999999999")], None),
    ("a bad value is passed over", &[("retry-after-ms", "soon"), ("retry-after", "3")], Some(3000)),
    ("a fraction", &[("retry-after", "0.25")], Some(250)),
    ("nothing", &[], None),
];

#[test]
fn every_providers_refusal_names_its_reset() {
    for (provider, headers, millis) in REFUSALS {
        assert_eq!(after(headers), millis.map(Duration::from_millis), "{provider}");
    }
}

#[test]
fn nonsense_names_no_reset() {
    for value in ["", "soon", "-3", "NaN", "inf", "1e400", "1e3", ".", "1.2.3", "0x10", "ä", "s", "5x", "1.2.3s"] {
        let value = HeaderValue::from_str(value).unwrap();
        let mut headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.clone())]);
        assert_eq!(reset_after(&headers, UNIX_EPOCH), None, "{value:?}");
        headers.insert("x-ratelimit-remaining-tokens", HeaderValue::from_static("0"));
        headers.insert("x-ratelimit-reset-tokens", value.clone());
        assert_eq!(reset_after(&headers, UNIX_EPOCH), None, "{value:?}");
    }
}

#[test]
fn google_names_its_reset_in_the_body() {
    let gemini = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota","details":[
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.074824224s"}]}}"#;
    let delay = Some(Duration::new(34, 74_824_224));
    assert_eq!(reset_after_in_body(gemini.as_bytes()), delay);
    assert_eq!(reset_after_in_body(format!("[{gemini}]").as_bytes()), delay, "of a streamed request");
    for (body, delay) in [
        (r#"{"error":{"details":[{"retryDelay":"99999999s"}]}}"#, Some(LONGEST)),
        (r#"{"error":{"details":[{"retryDelay":7}]}}"#, None),
        (r#"{"error":{"message":"no details"}}"#, None),
        ("no json", None),
        ("", None),
    ] {
        assert_eq!(reset_after_in_body(body.as_bytes()), delay, "{body}");
    }
    let padded = format!("{gemini}{}", " ".repeat(MAX_BODY));
    assert_eq!(reset_after_in_body(padded.as_bytes()), None, "a large body is not looked into");
}
