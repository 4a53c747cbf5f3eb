//! `cargo xtask vm`: the kernel tests on the kernels people run. Boots Debian kernels under QEMU's software emulation,
//! each with nothing but busybox and the tests, and prints what worked on which.
//!
//! Nothing is installed: kernels, QEMU and busybox are packages of Debian, unpacked into the tools folder by an apt
//! with settings of its own. What cannot be had is reported as not tested, never as passed.

mod apt;
mod archive;
mod console;
mod cpio;
mod emulator;
mod initramfs;
mod kernel;
mod machine;
mod matrix;
mod program;
mod ready;
mod release;
mod series;
mod verdict;

use crate::{exec, setup};
use anyhow::{Context, Result, bail};
use machine::Room;
use ready::Ready;
use series::Series;
use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use verdict::{Fate, Row};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel series [default: all]
    #[arg(value_parser = series::names(), value_name = "SERIES")]
    series: Vec<String>,
    /// Look for newer kernels than those fetched earlier
    #[arg(long)]
    update: bool,
    /// Longest run of one machine, in seconds
    #[arg(long, value_name = "N", default_value_t = 400)]
    limit: u64,
    /// Machines that run at the same time [default: 1, or 2 on four processors]
    #[arg(long, value_name = "N")]
    at_once: Option<NonZeroUsize>,
    /// Only tests whose names contain one of these
    #[arg(last = true, value_name = "TEST")]
    tests: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When a test failed in a machine, or a machine failed. A series that cannot be had is no error.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted: Vec<&Series> = series::ALL
        .iter()
        .filter(|series| args.series.is_empty() || args.series.iter().any(|name| name == series.name))
        .collect();
    let place = build_folder()?.join("vm");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;

    let rows = match Ready::for_series(&wanted, args.update) {
        Ok(ready) => {
            setup::ensure()?;
            let program = timed(format_args!("build the kernel tests"), program::build)?;
            let common = initramfs::common(&ready.emulator.busybox, &program, &place)?;
            let room = Room { place: &place, common, limit: Duration::from_secs(args.limit), filter: &args.tests };
            machine::boot_all(&ready, &room, args.at_once.map_or_else(at_once, NonZeroUsize::get))?
        }
        Err(error) => {
            let reason = format!("{error:#}");
            let row = |series: &&Series| Row { series: series.name, fate: Fate::NotTested { reason: reason.clone() } };
            wanted.iter().map(row).collect()
        }
    };
    let report = place.join("matrix.json");
    fs::write(&report, serde_json::to_string_pretty(&rows)? + "\n")
        .with_context(|| format!("cannot write {}", report.display()))?;
    conclude(&rows)
}

/// Prints the matrix, and a line for each series in the words of a test runner, which `cargo xtask test` counts.
fn conclude(rows: &[Row]) -> Result<()> {
    say(format_args!("{}", matrix::render(rows)));
    let mut failed = 0;
    for row in rows {
        match &row.fate {
            Fate::Tested(tested) => {
                let failures = tested.failures();
                let verdict = if failures == 0 { "ok" } else { "FAILED" };
                say(format_args!(
                    "test result: {verdict}. {} passed; {failures} failed; kernel {}",
                    tested.said.passed, tested.version
                ));
                failed += failures;
            }
            Fate::NotTested { reason } => say(format_args!("SKIP: kernel {} is not tested: {reason}", row.series)),
        }
    }
    if failed > 0 {
        bail!("{failed} failures in test machines");
    }
    Ok(())
}

/// One machine for every two processors, as each emulates two: on two processors a pair took four times as long as one
/// after the other, because emulated processors spin while the one they wait for does not run.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).clamp(1, 2))
}

/// The target folder in use.
fn build_folder() -> Result<PathBuf> {
    let metadata = exec::output(exec::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("cargo metadata names no target folder")
}

/// Runs one step, naming it before and its duration after.
fn timed<T>(what: fmt::Arguments<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    progress(format_args!("{what} …"));
    let started = Instant::now();
    let done = work()?;
    progress(format_args!("{what}: done in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(done)
}

#[expect(clippy::print_stderr, reason = "progress of a command-line program")]
fn progress(line: fmt::Arguments<'_>) {
    eprintln!("vm: {line}");
}

#[expect(clippy::print_stdout, reason = "the command's own report")]
fn say(line: fmt::Arguments<'_>) {
    println!("{line}");
}
