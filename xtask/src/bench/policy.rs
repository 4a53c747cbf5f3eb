//! Policies side by side: runs the simulations, shows their figures, and keeps the table in README.md.

use super::comparison::{Comparison, Outcome};
use super::{bench, parse, progress};
use crate::exec;
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Around the table in README.md.
const BEGIN: &str = "<!-- table of `cargo xtask bench policy --update`: begin -->\n";
const END: &str = "<!-- table of `cargo xtask bench policy --update`: end -->\n";

/// The columns beside the policy's name.
const COLUMNS: [&str; 7] =
    ["slots in use", "light wait p50", "light wait p99", "light late", "light failed", "tries refused", "Jain"];

/// Simulates and draws.
pub(super) fn measure(quick: bool) -> Result<Comparison> {
    let folder = plots()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    progress(format_args!("simulating; plots go to {}", folder.display()));
    let comparison: Comparison = parse(bench(quick, "policy").env("GOVERNOR_PLOTS", &folder))?;
    let misses: Vec<String> = comparison
        .workloads
        .iter()
        .flat_map(|workload| workload.outcomes.iter().map(|outcome| (&workload.name, outcome)))
        .flat_map(|(name, outcome)| {
            outcome.misses.iter().map(move |miss| format!("{name}, {}: {miss}", outcome.policy))
        })
        .collect();
    // Unlike times these figures are the same everywhere.
    if !misses.is_empty() {
        bail!("figures outside their bands:\n  {}", misses.join("\n  "));
    }
    Ok(comparison)
}

/// For people, and for README.md: Markdown whose columns line up.
pub(super) fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    for workload in &comparison.workloads {
        let row = |first: &str, cells: [String; 7]| {
            let cells: String = cells.iter().map(|cell| format!(" {cell:>14} |")).collect();
            format!("| {first:<11} |{cells}")
        };
        let mut put = |line: &str| writeln!(text, "{line}").expect("a string takes what is written to it");
        put(&format!("**{}**: {}.\n", workload.name, workload.about));
        put(&row("", COLUMNS.map(str::to_owned)));
        put(&format!("|:{}|{}", "-".repeat(12), format!("{}:|", "-".repeat(15)).repeat(COLUMNS.len())));
        for outcome in &workload.outcomes {
            put(&row(&outcome.policy, cells(outcome)));
        }
        put("");
    }
    text
}

/// Puts the table into README.md.
pub(super) fn update(comparison: &Comparison) -> Result<()> {
    let file = exec::root().join("README.md");
    let text = fs::read_to_string(&file)?;
    let (before, rest) = text.split_once(BEGIN).context("README.md has lost the marker before the table")?;
    let (_, after) = rest.split_once(END).context("README.md has lost the marker after the table")?;
    fs::write(&file, format!("{before}{BEGIN}\n{}{END}{after}", render(comparison)))?;
    Ok(())
}

fn cells(outcome: &Outcome) -> [String; 7] {
    let percent = |value: f64| format!("{value:.1} %");
    let seconds = |value: f64| format!("{value:.2} s");
    [
        percent(outcome.utilisation_percent),
        seconds(outcome.light_wait_p50),
        seconds(outcome.light_wait_p99),
        percent(outcome.light_late_percent),
        percent(outcome.light_failed_percent),
        percent(outcome.refused_percent),
        format!("{:.2}", outcome.jain),
    ]
}

/// Where plots go.
fn plots() -> Result<PathBuf> {
    Ok(exec::target_folder()?.join("bench/policy"))
}

#[cfg(test)]
mod tests {
    use super::super::comparison::Workload;
    use super::*;

    fn comparison() -> Comparison {
        let outcome = |policy: &str, utilisation_percent| Outcome {
            policy: policy.to_owned(),
            utilisation_percent,
            light_wait_p50: 0.0,
            light_wait_p99: 12.345,
            light_late_percent: 0.4,
            light_failed_percent: 0.0,
            refused_percent: 41.0,
            jain: 0.996,
            misses: Vec::new(),
        };
        Comparison {
            workloads: vec![Workload {
                name: "incident".to_owned(),
                about: "one endless key".to_owned(),
                outcomes: vec![outcome("off", 99.96), outcome("equal-split", 81.2)],
            }],
            plots: Vec::new(),
        }
    }

    #[test]
    fn the_table_is_markdown_whose_columns_line_up() {
        let text = render(&comparison());
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 4, "{text}");
        let bars = |line: &str| -> Vec<usize> { line.match_indices('|').map(|(at, _)| at).collect() };
        assert!(lines.iter().all(|line| bars(line) == bars(lines[0])), "{text}");
        assert!(lines[3].starts_with("| equal-split |         81.2 % |         0.00 s |        12.35 s |"), "{text}");
    }

    #[test]
    fn the_readme_has_the_markers_and_a_table_between_them() {
        let text = fs::read_to_string(exec::root().join("README.md")).unwrap();
        let (_, rest) = text.split_once(BEGIN).expect("the marker before the table");
        let (table, _) = rest.split_once(END).expect("the marker after the table");
        for column in COLUMNS {
            assert!(table.contains(column), "{column} is missing: run `cargo xtask bench policy --update`");
        }
    }
}
