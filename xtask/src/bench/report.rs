//! What a benchmark found: the one definition of the JSON between the programs that measure and the command that
//! judges and shows. Types only.

use serde::{Deserialize, Serialize};

/// One benchmark's outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Which benchmark.
    pub(crate) name: String,
    /// A smoke run: it shows that the benchmark works, and its figures mean nothing.
    pub(crate) quick: bool,
    /// The figures.
    pub(crate) rows: Vec<Row>,
    /// What a reader has to know beside them, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// Unit of baseline and value.
    pub(crate) unit: String,
    /// The same without the governor, or by the peer, in the same run.
    pub(crate) baseline: Option<f64>,
    /// The figure.
    pub(crate) value: f64,
    /// The figure by its baseline, from pairs measured side by side.
    pub(crate) ratio: Option<Ratio>,
    /// What it has to be.
    pub(crate) target: Option<Target>,
}

/// A ratio of two things that were measured alternately.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// Median over the pairs.
    pub(crate) median: f64,
    /// Its 95 % confidence interval.
    pub(crate) low: f64,
    /// See `low`.
    pub(crate) high: f64,
    /// Median of the ratios of neighbours that are the same thing. It says how far noise alone moves a ratio.
    pub(crate) control: Option<f64>,
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// The figure it is about.
    pub(crate) of: Subject,
    /// On which side of the limit to be.
    pub(crate) bound: Bound,
    /// Must.
    pub(crate) limit: f64,
    /// Should.
    pub(crate) aim: Option<f64>,
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// The value.
    Value,
    /// The median ratio.
    Ratio,
}

/// A side of a limit; the limit itself is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// From above.
    AtMost,
    /// From below.
    AtLeast,
}
