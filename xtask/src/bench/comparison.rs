//! What policies made of the same workloads: the one definition of the JSON between the program that simulates and the
//! command that shows. Types only.

use serde::{Deserialize, Serialize};

/// All workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    /// One table each.
    pub(crate) workloads: Vec<Workload>,
    /// Plots, by file name in the folder they were drawn into.
    pub(crate) plots: Vec<String>,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// Its name.
    pub(crate) name: String,
    /// One sentence.
    pub(crate) about: String,
    /// What each policy made of it.
    pub(crate) outcomes: Vec<Outcome>,
}

/// What one policy made of a workload. Percentages are 0–100, waits in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The policy.
    pub(crate) policy: String,
    /// Ordinary slots in use, of those there are.
    pub(crate) utilisation_percent: f64,
    /// Wait of a light key's request, median.
    pub(crate) light_wait_p50: f64,
    /// Wait of a light key's request, 99th percentile.
    pub(crate) light_wait_p99: f64,
    /// Requests of light keys that failed or waited longer than a second.
    pub(crate) light_late_percent: f64,
    /// Requests of light keys that failed after all their tries.
    pub(crate) light_failed_percent: f64,
    /// Tries that were refused, of all keys.
    pub(crate) refused_percent: f64,
    /// Jain's index over the keys of what each had, by its max-min share: 1 is fair.
    pub(crate) jain: f64,
    /// Figures outside the bands that the workload's file asks for, one sentence each.
    pub(crate) misses: Vec<String>,
}
