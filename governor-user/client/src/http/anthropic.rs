//! Refusals for Anthropic clients, which retry on the status and branch on `error.type`.

use super::{decision_id, error_type};
use crate::lease::refused::Refused;
use serde_json::{Value, json};

/// `overloaded_error` for 529, `rate_limit_error` for 429, `permission_error` for 403, with governor's own reason beside it.
pub(super) fn body(refused: &Refused) -> Value {
    let mut body = json!({ "type": "error", "error": {
        "type": error_type(refused),
        "message": refused.detail(),
        "reason": refused.reason(),
    } });
    if let (Some(body), Some(id)) = (body.as_object_mut(), decision_id(refused)) {
        body.insert("request_id".to_owned(), id.into());
    }
    body
}
