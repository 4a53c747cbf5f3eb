//! The answers the gateway gives itself, in the form the caller's client understands. Refusals for want of a slot are the
//! governor's layer's; these are about everything else that can go wrong.

use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use governor_client::http::Dialect;
use serde_json::json;

/// An error about this request.
pub(crate) fn problem(head: &Parts, status: StatusCode, message: &str) -> Response {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        _ if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    };
    let body = match Dialect::of(head) {
        Dialect::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Dialect::Gemini => json!({"error": {"code": status.as_u16(), "message": message, "status": google(status)}}),
        Dialect::OpenAi | Dialect::Plain => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
        }
    };
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.to_string()).into_response()
}

/// The name of a status in Google's errors.
fn google(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::GATEWAY_TIMEOUT => "DEADLINE_EXCEEDED",
        _ if status.is_client_error() => "INVALID_ARGUMENT",
        _ => "UNAVAILABLE",
    }
}
