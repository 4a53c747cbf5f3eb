//! How the simulated provider refuses: bodies and headers as OpenAI and Anthropic send them, so that a gateway learns
//! from them what it would learn from the real ones.

use crate::accounts::{Cause, Refusal};
use crate::dialect::Dialect;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// What a full account tells its caller: it cannot know when one of its streams ends.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer to a request an account does not take.
pub(crate) fn refusal(dialect: Dialect, refusal: Refusal, slots: u32) -> Response {
    match refusal {
        Refusal::Full => rate_limited(dialect, "too many concurrent requests", FULL_RETRY_AFTER, slots),
        Refusal::Cooling(Cause::Limited, left) => {
            rate_limited(dialect, "rate limit of this account reached", left, slots)
        }
        Refusal::Cooling(Cause::Overloaded, _) => overloaded(dialect),
        Refusal::Unknown => malformed(dialect, "header x-account names no account"),
    }
}

/// The answer to a request that can never be answered.
pub(crate) fn malformed(dialect: Dialect, message: &str) -> Response {
    let error = match dialect {
        Dialect::OpenAi => json!({"message": message, "type": "invalid_request_error", "param": null, "code": null}),
        Dialect::Anthropic => json!({"type": "invalid_request_error", "message": message}),
    };
    respond(StatusCode::BAD_REQUEST, dialect, &error, HeaderMap::new())
}

/// The answer of a provider that is itself in trouble.
pub(crate) fn failure(dialect: Dialect, status: u16) -> Response {
    let message = "the simulation was told to fail";
    let error = match dialect {
        Dialect::OpenAi => json!({"message": message, "type": "server_error", "param": null, "code": null}),
        Dialect::Anthropic => json!({"type": "api_error", "message": message}),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, dialect, &error, HeaderMap::new())
}

/// 429. `Retry-After` is in whole seconds, rounded up, at least 1.
fn rate_limited(dialect: Dialect, message: &str, retry_after: Duration, slots: u32) -> Response {
    let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, millis.div_ceil(1000).into());
    let error = match dialect {
        Dialect::OpenAi => {
            headers.insert(HeaderName::from_static("retry-after-ms"), millis.into());
            headers.insert(HeaderName::from_static("x-ratelimit-limit-requests"), slots.into());
            headers.insert(HeaderName::from_static("x-ratelimit-remaining-requests"), 0.into());
            insert(&mut headers, "x-ratelimit-reset-requests", &format!("{millis}ms"));
            json!({"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"})
        }
        Dialect::Anthropic => {
            headers.insert(HeaderName::from_static("anthropic-ratelimit-requests-limit"), slots.into());
            headers.insert(HeaderName::from_static("anthropic-ratelimit-requests-remaining"), 0.into());
            let reset = jiff::Timestamp::try_from(SystemTime::now() + Duration::from_millis(millis));
            if let Ok(reset) = reset {
                insert(&mut headers, "anthropic-ratelimit-requests-reset", &format!("{reset:.3}"));
            }
            json!({"type": "rate_limit_error", "message": message})
        }
    };
    respond(StatusCode::TOO_MANY_REQUESTS, dialect, &error, headers)
}

/// 529 in Anthropic's form and 503 in OpenAI's: neither knows for how long.
fn overloaded(dialect: Dialect) -> Response {
    let (status, error) = match dialect {
        Dialect::OpenAi => {
            (503, json!({"message": "The server is overloaded", "type": "server_error", "param": null, "code": null}))
        }
        Dialect::Anthropic => (529, json!({"type": "overloaded_error", "message": "Overloaded"})),
    };
    let status = StatusCode::from_u16(status).expect("both are statuses");
    respond(status, dialect, &error, HeaderMap::new())
}

fn respond(status: StatusCode, dialect: Dialect, error: &Value, mut headers: HeaderMap) -> Response {
    let body = match dialect {
        Dialect::OpenAi => json!({"error": error}),
        Dialect::Anthropic => json!({"type": "error", "error": error}),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, headers, body.to_string()).into_response()
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_rounds_its_retry_after_up_to_whole_seconds() {
        for (millis, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (29_500, "30")] {
            let cooling = Refusal::Cooling(Cause::Limited, Duration::from_millis(millis));
            for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
                let response = refusal(dialect, cooling, 8);
                assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
                assert_eq!(response.headers()[RETRY_AFTER], header, "{millis} ms");
            }
        }
    }

    #[test]
    fn an_overloaded_provider_says_so_in_its_own_way_and_not_for_how_long() {
        let overloaded = Refusal::Cooling(Cause::Overloaded, Duration::from_secs(9));
        for (dialect, status) in [(Dialect::OpenAi, 503), (Dialect::Anthropic, 529)] {
            let response = refusal(dialect, overloaded, 8);
            assert_eq!(response.status().as_u16(), status);
            assert!(!response.headers().contains_key(RETRY_AFTER));
        }
    }

    #[test]
    fn anthropics_reset_is_a_time_of_day_in_universal_time() {
        let response = refusal(Dialect::Anthropic, Refusal::Full, 8);
        let reset = response.headers()["anthropic-ratelimit-requests-reset"].to_str().unwrap();
        assert!(reset.ends_with('Z') && reset.parse::<jiff::Timestamp>().is_ok(), "{reset}");
    }
}
