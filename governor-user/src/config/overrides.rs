//! Run-time overrides: what `governorctl set` changed, as it is kept in the state folder. Knows nothing of what the keys
//! mean.

use serde::{Deserialize, Serialize};

/// One override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Dotted key.
    pub key: String,
    /// Value as typed.
    pub value: String,
    /// Who set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
}
