//! Listeners as they are listed: what the kernel shows, with the diagnosis and the process beside it.

use super::verdicts::Verdict;
use governor_observation::ListenerView;
use serde::{Deserialize, Serialize};

/// One listening socket in `GET /v1/listeners`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerRow {
    /// What the kernel shows.
    #[serde(flatten)]
    pub listener: ListenerView,
    /// Its diagnosis; `null` for a listener that appeared after the last report.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// Name (`comm`) of the process with the lowest id among those that hold it; `null` where it cannot be read.
    #[serde(default)]
    pub process: Option<String>,
}
