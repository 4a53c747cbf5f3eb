//! Refusals for Anthropic clients, which retry on the status and branch on `error.type`.

use serde_json::{Value, json};

use super::error_type;
use crate::error::Refused;

/// `overloaded_error` for 529, `rate_limit_error` for 429, with governor's own reason beside it.
pub(super) fn body(refused: &Refused) -> Value {
    json!({ "type": "error", "error": {
        "type": error_type(refused),
        "message": refused.detail(),
        "reason": refused.reason(),
    } })
}
