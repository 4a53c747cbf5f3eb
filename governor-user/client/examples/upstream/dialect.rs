//! The two ways the simulated provider speaks: OpenAI's chat completions and Anthropic's messages. Owns bytes only.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::time::Duration;

/// Which provider's forms an answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/v1/chat/completions` and everything else.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

impl Dialect {
    /// The dialect of a request path.
    pub(crate) fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") { Self::Anthropic } else { Self::OpenAi }
    }

    /// One piece of a streamed answer as a server-sent event.
    pub(crate) fn piece(self, number: u32) -> Bytes {
        match self {
            Self::OpenAi => {
                let delta = json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": format!("word{number} ")}}]});
                Bytes::from(format!("data: {delta}\n\n"))
            }
            Self::Anthropic => {
                let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": format!("word{number} ")}});
                Bytes::from(format!("event: content_block_delta\ndata: {delta}\n\n"))
            }
        }
    }

    /// The event that ends a streamed answer.
    pub(crate) fn end(self) -> Bytes {
        match self {
            Self::OpenAi => Bytes::from_static(b"data: [DONE]\n\n"),
            Self::Anthropic => Bytes::from_static(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        }
    }

    /// A refusal with 429. `Retry-After` is in whole seconds, rounded up, at least 1.
    pub(crate) fn rate_limited(self, message: &str, retry_after: Duration) -> Response {
        let seconds = retry_after.as_millis().div_ceil(1000).max(1).to_string();
        let body = match self {
            Self::OpenAi => {
                json!({"error": {"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"}})
            }
            Self::Anthropic => json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}}),
        };
        let headers = [(CONTENT_TYPE, "application/json".to_owned()), (RETRY_AFTER, seconds)];
        (StatusCode::TOO_MANY_REQUESTS, headers, body.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_rounds_its_retry_after_up_to_whole_seconds() {
        for (millis, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (29_500, "30")] {
            let response = Dialect::OpenAi.rate_limited("busy", Duration::from_millis(millis));
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(response.headers()[RETRY_AFTER], header, "{millis} ms");
        }
    }

    #[test]
    fn every_piece_is_one_whole_server_sent_event() {
        for dialect in [Dialect::of_path("/v1/chat/completions"), Dialect::of_path("/v1/messages")] {
            for event in [dialect.piece(1), dialect.piece(2), dialect.end()] {
                let text = String::from_utf8(event.to_vec()).unwrap();
                assert!(text.ends_with("\n\n") && text.contains("data: "), "{text:?}");
            }
        }
    }
}
