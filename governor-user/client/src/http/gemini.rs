//! Refusals for Google's clients, which retry on the status, branch on `error.status` and read `RetryInfo`.

use super::{decision_id, whole_millis};
use crate::lease::refused::Refused;
use serde_json::{Value, json};

/// A `google.rpc.Status` with governor's own reason as its `ErrorInfo`.
pub(super) fn body(refused: &Refused) -> Value {
    let status = match refused.status() {
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        529 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refused.reason(),
        "domain": "governor",
        "metadata": { "decision": decision_id(refused).unwrap_or_default() },
    })];
    if let Some(after) = refused.retry_after() {
        let millis = whole_millis(after);
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}.{:03}s", millis / 1000, millis % 1000),
        }));
    }
    json!({ "error": {
        "code": refused.status(),
        "message": refused.detail(),
        "status": status,
        "details": details,
    } })
}
