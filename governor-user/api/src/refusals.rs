//! Refusals that were kept, and how many there are of each reason.

use super::decisions::Decision;
use serde::{Deserialize, Serialize};

/// Which refusals `GET /v1/refusals` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalsQuery {
    /// Only of this key: its label, the name the configuration gives it, or its 32 hexadecimal digits.
    #[serde(default)]
    pub key: Option<String>,
    /// Only of this pool.
    #[serde(default)]
    pub pool: Option<String>,
    /// Only for this reason, as in [`super::Pool::shed_total`].
    #[serde(default)]
    pub reason: Option<String>,
    /// Of the last so many seconds; an hour when absent.
    #[serde(default)]
    pub since_seconds: Option<u64>,
    /// Refusals listed at most, 0 to 1000; 50 when absent. All are counted.
    #[serde(default)]
    pub limit: Option<usize>,
    /// 1: what observe mode recorded instead, which was granted; 0 or absent: refusals.
    #[serde(default)]
    pub observed: u8,
}

/// Refusals of a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusals {
    /// The window that was asked for, in seconds.
    pub since_seconds: u64,
    /// Age of the oldest decision that is kept, in seconds: nothing older can be found; `null` where none is on disk yet.
    pub oldest_seconds: Option<u64>,
    /// Refusals found.
    pub total: u64,
    /// The same by pool and reason, the most first.
    pub by_reason: Vec<RefusalCount>,
    /// The newest of them.
    pub rows: Vec<Decision>,
}

/// How many refusals of a pool have one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalCount {
    /// The pool.
    pub pool: String,
    /// The reason.
    pub reason: String,
    /// HTTP status.
    pub status: u16,
    /// Refusals.
    pub count: u64,
}
