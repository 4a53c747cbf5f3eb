//! Policies on the same workloads, in virtual time: `cargo xtask bench policy` builds and runs this. Prints one JSON
//! comparison on standard output and draws into the folder that `GOVERNOR_PLOTS` names.

#[path = "../../../xtask/src/bench/comparison.rs"]
mod comparison;
mod plot;

use anyhow::{Context, Result};
use comparison::{Comparison, Outcome};
use std::io::Write;
use std::path::PathBuf;
use support::progress;
use support::workload::{Choice, Figures, Run, Workload};

/// The policies to compare, as far as a workload asks for them; observing changes nothing and is left out.
const COMPARED: [Choice; 5] = [Choice::None, Choice::Off, Choice::StaticCap, Choice::EqualSplit, Choice::MaxMin];

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let folder: PathBuf = std::env::var_os("GOVERNOR_PLOTS").context("GOVERNOR_PLOTS names no folder")?.into();
    let mut comparison = Comparison::default();
    let workloads = Workload::all();
    for workload in workloads.iter().take(if quick { 1 } else { usize::MAX }) {
        let mut runs: Vec<(&Run, Figures)> = Vec::new();
        for run in workload.run.iter().filter(|run| COMPARED.contains(&run.policy)) {
            progress(format_args!("{}: {}", workload.name, run.policy.name()));
            runs.push((run, workload.simulate(run.policy).figures));
        }
        let series: Vec<(&str, &Figures)> = runs.iter().map(|(run, figures)| (run.policy.name(), figures)).collect();
        comparison.plots.extend(plot::draw(&folder, &workload.name, &series)?);
        comparison.workloads.push(comparison::Workload {
            name: workload.name.clone(),
            about: workload.about.clone(),
            outcomes: runs.iter().map(|(run, figures)| outcome(run, figures)).collect(),
        });
    }
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&comparison)?)?;
    Ok(())
}

fn outcome(run: &Run, figures: &Figures) -> Outcome {
    Outcome {
        policy: run.policy.name().to_owned(),
        utilisation_percent: figures.utilisation_percent,
        light_wait_p50: figures.light_wait_p50,
        light_wait_p99: figures.light_wait_p99,
        light_late_percent: figures.light_late_percent,
        light_failed_percent: figures.light_failed_percent,
        refused_percent: figures.refused_percent,
        jain: figures.jain,
        misses: run.misses(figures),
    }
}
