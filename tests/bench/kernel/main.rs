//! What observing the kernel costs: `cargo xtask bench kernel` builds and runs this. Prints one JSON report on standard
//! output, progress on standard error. Needs root.

mod clock;
mod cost;
mod empty;
mod load;
mod pairs;
mod place;
mod programs;
#[path = "../../../xtask/src/bench/report.rs"]
mod report;
mod restart;
mod resync;

use anyhow::{Context, Result, ensure};
use governor_kernel as kernel;
use governor_kernel::Options;
use report::Report;
use std::io::Write;
use std::time::Duration;
use support::machine::netns::Netns;
use support::progress;

/// How much is done.
#[derive(Debug)]
struct Scale {
    /// Pairs of windows, attached and detached.
    pairs: usize,
    /// Length of a window's longest part.
    window: Duration,
    /// Repetitions of everything that is not a pair.
    rounds: usize,
    /// Connections a round, for the programs' own time.
    connections: u32,
    /// Sockets of a resync, both ends together.
    sockets: u32,
}

const FULL: Scale =
    Scale { pairs: 40, window: Duration::from_millis(400), rounds: 9, connections: 20_000, sockets: 18_000 };
const QUICK: Scale = Scale { pairs: 2, window: Duration::from_millis(20), rounds: 1, connections: 500, sockets: 1_000 };

/// What can be asked for by name; all of it otherwise.
const PARTS: [&str; 4] = ["traffic", "programs", "resync", "restart"];

fn main() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "private network namespaces and eBPF need root");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let parts: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| PARTS.contains(argument)).collect();
    let wants = |part: &str| parts.is_empty() || parts.contains(&part);
    let scale = if quick { QUICK } else { FULL };
    let namespace = Netns::create().context("cannot make a network namespace")?;
    let mut report = Report { name: "kernel".to_owned(), quick, ..Report::default() };
    report.notes.push(surroundings()?);
    if wants("traffic") {
        report.rows.extend(cost::measure(&scale, &namespace)?);
    }
    if wants("programs") {
        let (rows, notes) = programs::measure(&scale, &namespace)?;
        report.rows.extend(rows);
        report.notes.extend(notes);
    }
    if wants("resync") {
        report.rows.extend(resync::measure(&scale, &namespace)?);
    }
    if wants("restart") {
        report.rows.extend(restart::measure(&scale, &namespace)?);
    }
    let text = serde_json::to_string(&report)?;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// On which tier, beside whom.
fn surroundings() -> Result<String> {
    let plane = kernel::spawn(Options::default())?;
    let seen = plane.observations().borrow().clone();
    let shared = seen.hooks.iter().any(|hook| hook.note.contains("left alone"));
    let others = if shared { "; programs of others are on the same hooks, in both arms" } else { "" };
    Ok(format!("kernel {}, {} tier{others}", rustix::system::uname().release().to_string_lossy(), seen.tier))
}
