//! What needs attention, as `status` lists it.

use serde::{Deserialize, Serialize};

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFinding {
    /// How soon.
    pub severity: Severity,
    /// What it is about, e.g. `pool chat`, `listener 0.0.0.0:443`, `bypass`.
    pub subject: String,
    /// What is wrong, with the numbers that show it; without a full stop.
    pub sentence: String,
    /// The command that shows more or that ends it.
    pub next_command: String,
}

/// How soon a finding needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Clients are harmed, or the governor does not do its part: act now.
    Problem,
    /// Nothing is lost yet, or it is meant: keep an eye on it.
    Watch,
}

impl Severity {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Watch => "watch",
        }
    }
}

impl HealthFinding {
    /// One that needs action now.
    #[must_use]
    pub fn problem(subject: impl Into<String>, sentence: impl Into<String>, next_command: impl Into<String>) -> Self {
        Self::new(Severity::Problem, subject, sentence, next_command)
    }

    /// One that needs an eye.
    #[must_use]
    pub fn watch(subject: impl Into<String>, sentence: impl Into<String>, next_command: impl Into<String>) -> Self {
        Self::new(Severity::Watch, subject, sentence, next_command)
    }

    /// One of this severity.
    #[must_use]
    pub fn new(
        severity: Severity,
        subject: impl Into<String>,
        sentence: impl Into<String>,
        next_command: impl Into<String>,
    ) -> Self {
        Self { severity, subject: subject.into(), sentence: sentence.into(), next_command: next_command.into() }
    }
}
