//! How a refusal looks to an API client: status, headers and a body in the dialect of the provider whose route was
//! called; and what an upstream's own refusal says ([`reset`]). Decides nothing about admission.

mod anthropic;
mod gemini;
mod openai;
pub(crate) mod percent;
mod rate_limit;
pub mod reset;
pub mod routes;

use crate::lease::refused::Refused;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use serde_json::{Value, json};
use std::time::Duration;

/// Milliseconds until a retry makes sense; clients that know it prefer it to `Retry-After`.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Which level refused: `key`, `org`, `pool`, `node`, `fleet` or `upstream`.
pub const ORIGIN: HeaderName = HeaderName::from_static("x-governor-origin");

/// Id that `governorctl explain` answers.
pub const DECISION: HeaderName = HeaderName::from_static("x-governor-decision");

/// `false` where waiting cannot help. OpenAI's and Anthropic's clients obey it before the status.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Where OpenAI's clients look for the id that their users report; here the decision's.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same for Anthropic's clients.
pub const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// What is left of the limit that refused, and when to come back
/// ([draft-ietf-httpapi-ratelimit-headers](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/)).
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The limit that refused: its name, and how many concurrent requests it allows.
pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Headers a refusal may carry, for a CORS layer's list of exposed headers: without it a browser hides them from its
/// page. Refusals name them themselves as well.
pub const EXPOSED_HEADERS: [HeaderName; 9] = [
    header::RETRY_AFTER,
    RETRY_AFTER_MS,
    SHOULD_RETRY,
    RATE_LIMIT,
    RATE_LIMIT_POLICY,
    ORIGIN,
    DECISION,
    REQUEST_ID,
    ANTHROPIC_REQUEST_ID,
];

/// `EXPOSED_HEADERS` as one value.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "retry-after, retry-after-ms, x-should-retry, ratelimit, ratelimit-policy, x-governor-origin, x-governor-decision, \
     x-request-id, request-id",
);

/// Marks a response, by its extensions, as a refusal of this gateway's own, so that it is not taken for the upstream's.
/// A handler that refuses with 429 or 529 by rules of its own sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRefusal;

/// Whose error format an API client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error":{"type","code",…}}`.
    OpenAi,
    /// `{"type":"error","error":{"type",…}}`.
    Anthropic,
    /// `{"error":{"code","status","details",…}}`: Google's own routes.
    Gemini,
    /// A flat object of our own, for routes of neither.
    Plain,
}

impl Dialect {
    /// By header first (`anthropic-version` is on every Anthropic call), then by route.
    #[must_use]
    pub fn of(head: &Parts) -> Self {
        if head.headers.contains_key("anthropic-version") {
            return Self::Anthropic;
        }
        match routes::row(head.uri.path()) {
            Some((_, "messages")) => Self::Anthropic,
            Some((suffix, _)) if suffix.starts_with("/*:") => Self::Gemini,
            Some(_) => Self::OpenAi,
            None => Self::Plain,
        }
    }
}

/// The whole response for a refusal.
#[must_use]
pub fn refusal(refused: &Refused, dialect: Dialect, allow_origin: Option<&HeaderValue>) -> Response<Bytes> {
    let body = match dialect {
        Dialect::OpenAi => openai::body(refused),
        Dialect::Anthropic => anthropic::body(refused),
        Dialect::Gemini => gemini::body(refused),
        Dialect::Plain => plain(refused),
    };
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    response.extensions_mut().insert(OwnRefusal);
    if response.status().canonical_reason().is_none() {
        // 529 is not registered: HTTP/1 servers would write "<none>" behind it.
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Overloaded"));
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match refused.retry_after() {
        Some(retry_after) => {
            insert_retry_after(headers, retry_after);
            rate_limit::insert(headers, refused, whole_seconds(retry_after));
        }
        None => drop(headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"))),
    }
    if let Some(origin) = refused.origin() {
        headers.insert(ORIGIN, HeaderValue::from_static(origin.as_str()));
    }
    if let Some(id) = decision_id(refused).and_then(|id| HeaderValue::try_from(id).ok()) {
        for name in [REQUEST_ID, ANTHROPIC_REQUEST_ID] {
            headers.insert(name, id.clone());
        }
        headers.insert(DECISION, id);
    }
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    if let Some(origin) = allow_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response
}

/// Marks a 429 or 529 that came from the upstream itself, which passes otherwise untouched. What an upstream says about
/// its origin is not believed.
pub fn mark_upstream_refusal<B>(response: &mut Response<B>) {
    let own = response.extensions().get::<OwnRefusal>().is_some();
    if matches!(response.status().as_u16(), 429 | 529) && !own {
        response.headers_mut().insert(ORIGIN, HeaderValue::from_static("upstream"));
    }
}

/// `Retry-After` in whole seconds, rounded up and at least 1, so that no client retries too early; the exact value in
/// `retry-after-ms`.
fn insert_retry_after(headers: &mut HeaderMap, after: Duration) {
    headers.insert(header::RETRY_AFTER, whole_seconds(after).into());
    headers.insert(RETRY_AFTER_MS, whole_millis(after).into());
}

fn whole_seconds(after: Duration) -> u64 {
    whole_millis(after).div_ceil(1000)
}

fn whole_millis(after: Duration) -> u64 {
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn plain(refused: &Refused) -> Value {
    json!({ "error": {
        "status": refused.status(),
        "message": refused.detail(),
        "reason": refused.reason(),
        "origin": refused.origin().map(governor_common::wire::reply::Origin::as_str),
        "decision": decision_id(refused),
    } })
}

/// As `governorctl explain` takes it: hexadecimal text, because the number does not fit a JSON number.
fn decision_id(refused: &Refused) -> Option<String> {
    refused.decision().map(|id| format!("{id:016x}"))
}

/// `overloaded_error`, `rate_limit_error`, `permission_error` or `invalid_request_error`: the types both providers'
/// clients know.
fn error_type(refused: &Refused) -> &'static str {
    match refused.status() {
        529 => "overloaded_error",
        429 => "rate_limit_error",
        403 => "permission_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use governor_common::wire::reply::Origin;

    use super::*;

    #[test]
    fn every_header_of_a_refusal_is_exposed_to_browsers() {
        let named: Vec<_> = EXPOSED.to_str().expect("it is text").split(", ").map(str::to_owned).collect();
        assert_eq!(named, EXPOSED_HEADERS.map(|name| name.to_string()));
        let refused = Refused::local(529, Origin::Node, "node_cap", Duration::ZERO, String::new()).with_quota(3);
        let response = refusal(&refused, Dialect::Plain, None);
        let not_for_scripts = ["content-type", "cache-control", "access-control-expose-headers"];
        for name in response.headers().keys() {
            let plain = not_for_scripts.contains(&name.as_str());
            assert_ne!(plain, EXPOSED_HEADERS.contains(name), "{name}");
        }
    }

    /// S29: never 0, negative or fractional, and rounded up.
    #[test]
    fn a_wait_is_whole_seconds_rounded_up_and_at_least_one() {
        let rows =
            [(0, "1", "1"), (400, "1", "400"), (1000, "1", "1000"), (12_200, "13", "12200"), (60_001, "61", "60001")];
        for (ms, seconds, millis) in rows {
            let mut headers = HeaderMap::new();
            insert_retry_after(&mut headers, Duration::from_millis(ms));
            assert_eq!(
                (&headers["retry-after"], &headers["retry-after-ms"]),
                (&seconds.parse().unwrap(), &millis.parse().unwrap())
            );
        }
    }

    #[test]
    fn an_upstream_cannot_pretend_that_the_governor_refused() {
        let mut response = Response::builder().status(429).header(ORIGIN, "key").body(()).unwrap();
        mark_upstream_refusal(&mut response);
        assert_eq!(response.headers()[ORIGIN], "upstream");
        response.headers_mut().insert(ORIGIN, HeaderValue::from_static("key"));
        response.extensions_mut().insert(OwnRefusal);
        mark_upstream_refusal(&mut response);
        assert_eq!(response.headers()[ORIGIN], "key", "a layer further in refused");
    }
}
