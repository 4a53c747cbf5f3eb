//! The engine's benchmarks: criterion measures, this reads what it found.

use super::report::{Bound, Report, Row, Subject, Target};
use super::{bench, progress};
use crate::exec;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Time of one decision and its release.
const NANOSECONDS: Target = Target { of: Subject::Value, bound: Bound::AtMost, limit: 1000.0, aim: Some(200.0) };

/// What `benches/footprint.rs` prints.
#[derive(Debug, Deserialize)]
struct Footprint {
    lease_bytes: f64,
    key_bytes: f64,
    allocations_per_grant: f64,
}

/// Measures.
pub(super) fn measure(quick: bool) -> Result<Report> {
    let mut report = Report { name: "engine".to_owned(), quick, ..Report::default() };
    progress(format_args!("time of decisions"));
    // What it prints is its own table; its files have the same figures without the words around them.
    let mut timing = exec::cargo();
    timing.args(["bench", "--quiet", "--workspace", "--bench", "admission"]);
    if quick {
        timing.args(["--profile", "dev", "--", "--test"]);
    } else {
        timing.args(["--", "--noplot"]);
    }
    exec::run(timing.stdout(Stdio::null()))?;
    if !quick {
        report.rows = times(&criterion_folder()?)?;
    }
    progress(format_args!("memory of leases and keys"));
    let printed = exec::output(&mut bench(quick, "footprint"))?;
    let footprint: Footprint = serde_json::from_str(&printed).context("the footprint is not as expected")?;
    report.rows.extend(memory(&footprint));
    report.notes.push("times are CPU time of one acquire + release, median of criterion's samples".to_owned());
    report.notes.push(
        "with parked requests the release grants to the most deserving of them, and the acquire parks: two decisions"
            .to_owned(),
    );
    report.notes.push(
        "the baseline is one count up and one down in an ordered table of 100,000 keys; it shares the run, not the work"
            .to_owned(),
    );
    Ok(report)
}

fn times(folder: &Path) -> Result<Vec<Row>> {
    let baseline = median(&folder.join("baseline"))?;
    let mut rows = Vec::new();
    for rule in ["equal-split", "max-min"] {
        for (state, keys) in [("active", 10), ("active", 1_000), ("active", 100_000), ("parked", 100_000)] {
            let words = if state == "active" { "active keys" } else { "parked requests" };
            rows.push(Row {
                what: format!("{rule}, {keys} {words}"),
                unit: "ns".to_owned(),
                baseline: Some(baseline),
                value: median(&folder.join(rule).join(state).join(keys.to_string()))?,
                ratio: None,
                target: (state == "active").then_some(NANOSECONDS),
            });
        }
    }
    Ok(rows)
}

fn memory(footprint: &Footprint) -> [Row; 3] {
    let row = |what: &str, unit: &str, value, limit: Option<f64>| Row {
        what: what.to_owned(),
        unit: unit.to_owned(),
        baseline: None,
        value,
        ratio: None,
        target: limit.map(|limit| Target { of: Subject::Value, bound: Bound::AtMost, limit, aim: None }),
    };
    [
        row("memory of a lease", "B", footprint.lease_bytes, Some(256.0)),
        row("memory of a key beside its lease", "B", footprint.key_bytes, None),
        row("allocations of a grant, once warm", "", footprint.allocations_per_grant, Some(0.0)),
    ]
}

/// The median that criterion found for one benchmark, in nanoseconds.
fn median(folder: &Path) -> Result<f64> {
    let file = folder.join("new/estimates.json");
    let text = fs::read_to_string(&file).with_context(|| format!("criterion left no {}", file.display()))?;
    let estimates: Value = serde_json::from_str(&text)?;
    estimates["median"]["point_estimate"].as_f64().context("criterion's file has no median")
}

/// Where criterion leaves what it found.
fn criterion_folder() -> Result<PathBuf> {
    Ok(exec::target_folder()?.join("criterion"))
}
