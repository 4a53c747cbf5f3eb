//! Refusals for OpenAI clients, which retry on the status and show `message`.

use super::error_type;
use crate::lease::refused::Refused;
use serde_json::{Value, json};

/// `code` is `overloaded` for 529; for the rest it is governor's own reason, so that it is never taken for the
/// upstream's `rate_limit_exceeded`.
pub(super) fn body(refused: &Refused) -> Value {
    let code = if refused.status() == 529 { "overloaded" } else { refused.reason() };
    json!({ "error": {
        "message": refused.detail(),
        "type": error_type(refused),
        "param": null,
        "code": code,
        "reason": refused.reason(),
    } })
}
