//! How a refusal looks to an API client: status, headers and a body in the dialect of the provider whose route was
//! called. Decides nothing about admission.

mod anthropic;
mod openai;
pub mod routes;

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::error::Refused;

/// Milliseconds until a retry makes sense; clients that know it prefer it to `Retry-After`.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Which level refused: `key`, `org`, `pool`, `node`, `fleet` or `upstream`.
pub const ORIGIN: HeaderName = HeaderName::from_static("x-governor-origin");

/// Id that `governorctl explain` answers.
pub const DECISION: HeaderName = HeaderName::from_static("x-governor-decision");

/// Names the headers above to a browser, which else may not read them.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("retry-after, retry-after-ms, x-governor-origin, x-governor-decision");

/// Whose error format an API client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error":{"type","code",…}}`.
    OpenAi,
    /// `{"type":"error","error":{"type",…}}`.
    Anthropic,
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
        match routes::endpoint(head.uri.path()) {
            Some("messages") => Self::Anthropic,
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
        Dialect::Plain => plain(refused),
    };
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(retry_after) = refused.retry_after() {
        insert_retry_after(headers, retry_after);
    }
    if let Some(origin) = refused.origin() {
        headers.insert(ORIGIN, HeaderValue::from_static(origin.as_str()));
    }
    if let Some(id) = decision_id(refused).and_then(|id| HeaderValue::try_from(id).ok()) {
        headers.insert(DECISION, id);
    }
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    if let Some(origin) = allow_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response
}

/// Marks a 429 or 529 that came from the upstream itself, which passes otherwise untouched.
pub fn mark_upstream_refusal<B>(response: &mut Response<B>) {
    if matches!(response.status().as_u16(), 429 | 529) && !response.headers().contains_key(ORIGIN) {
        response.headers_mut().insert(ORIGIN, HeaderValue::from_static("upstream"));
    }
}

/// `Retry-After` in whole seconds, rounded up and at least 1, so that nobody comes back too early; the exact value in
/// `retry-after-ms`.
fn insert_retry_after(headers: &mut HeaderMap, after: Duration) {
    let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
    headers.insert(header::RETRY_AFTER, ms.div_ceil(1000).into());
    headers.insert(RETRY_AFTER_MS, ms.into());
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

/// `overloaded_error`, `rate_limit_error` or `invalid_request_error`: the types both providers' clients know.
fn error_type(refused: &Refused) -> &'static str {
    match refused.status() {
        529 => "overloaded_error",
        429 => "rate_limit_error",
        _ => "invalid_request_error",
    }
}
