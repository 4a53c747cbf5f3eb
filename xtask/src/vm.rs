//! `cargo xtask vm`: the kernel tests on the kernels people run. Boots Debian kernels under QEMU's software emulation,
//! each with nothing but busybox and the tests, and prints what worked on which.
//!
//! Nothing is installed: kernels, QEMU and busybox are packages of Debian, unpacked into the tools folder by an apt
//! with settings of its own. What cannot be had is reported as not tested, never as passed.

mod console;
mod cpio;
mod emulator;
mod initramfs;
mod kernel;
mod machine;
mod matrix;
mod program;
mod reached;
mod ready;
mod series;
mod systemd;
mod verdict;

use crate::exec;
use crate::setup;
use anyhow::{Context, Result, bail};
use machine::Room;
use reached::Reached;
use ready::Ready;
use series::Series;
use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use verdict::{Fate, Row};

/// Longest silence of one machine, in seconds: many times what the longest test takes when nothing else runs.
const PATIENCE: u64 = 300;

/// Processors of a machine, unless asked for otherwise: with one, nothing in the kernel happens at the same time.
const PROCESSORS: NonZeroUsize = NonZeroUsize::new(2).expect("two is not nought");

/// Most machines at a time: each has 2 GB of memory.
const MOST_AT_ONCE: usize = 4;

/// Tests of programs that no machine has: nothing is there but busybox and the tests.
const NOT_IN_A_MACHINE: [&str; 1] = ["tuner_proxies::"];

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel series [default: all]
    #[arg(value_parser = series::names(), value_name = "SERIES")]
    series: Vec<String>,
    /// Look for newer kernels than those fetched earlier
    #[arg(long)]
    update: bool,
    /// Write the tier that each event reached into README.md, instead of comparing with it
    #[arg(long)]
    readme: bool,
    /// Longest silence of one machine, in seconds, before it is killed
    #[arg(long, value_name = "N", default_value_t = PATIENCE)]
    patience: u64,
    /// Instead of the kernel tests: the package under a real systemd, in an emulated Debian; needs root
    #[arg(long, conflicts_with_all = ["series", "readme", "tests"])]
    systemd: bool,
    /// Processors of each machine
    #[arg(long, value_name = "N", default_value_t = PROCESSORS)]
    processors: NonZeroUsize,
    /// Machines that run at the same time [default: as many as there are processors for]
    #[arg(long, value_name = "N")]
    at_once: Option<NonZeroUsize>,
    /// Only tests whose names contain one of these
    #[arg(last = true, value_name = "TEST")]
    tests: Vec<String>,
}

/// What a run came to: tests of all machines, and series that could not be tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Tests that ended well.
    pub(crate) passed: usize,
    /// Failed tests and everything else that was wrong with a machine.
    pub(crate) failed: usize,
    /// Tests that had nothing to test, and series that cannot be had.
    pub(crate) skipped: usize,
}

/// The tests that one series gets, as part of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Name of the series.
    pub(crate) series: &'static str,
    /// Which tests.
    pub(crate) tests: Tests,
}

/// Which of the kernel tests a machine runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tests {
    /// All of them.
    All,
    /// All but those whose names contain one of these.
    Without(&'static [&'static str]),
    /// Those whose names contain one of these.
    Only(&'static [&'static str]),
}

impl Tests {
    /// In the words of the test runner.
    fn arguments(self) -> Vec<String> {
        match self {
            Self::All => Vec::new(),
            Self::Without(names) => without(names),
            Self::Only(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

fn without(names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]).collect()
}

/// A series and what its machine runs.
#[derive(Debug)]
struct Wanted {
    series: &'static Series,
    /// Arguments of the test runner.
    arguments: Vec<String>,
}

impl Wanted {
    fn new(series: &'static Series, mut arguments: Vec<String>) -> Self {
        arguments.extend(without(&NOT_IN_A_MACHINE));
        Self { series, arguments }
    }
}

/// Runs the command.
///
/// # Errors
/// When a test failed in a machine, or a machine failed. A series that cannot be had is no error.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.systemd {
        return systemd::run(args.update, args.processors, Duration::from_secs(args.patience));
    }
    let named = |series: &&Series| args.series.is_empty() || args.series.iter().any(|name| name == series.name);
    let wanted = |series: &'static Series| Wanted::new(series, args.tests.clone());
    let rows = boot(&series::ALL.iter().filter(named).map(wanted).collect::<Vec<_>>(), args)?;
    let count = report(&rows, args.readme)?;
    if count.failed > 0 {
        bail!("{} failures in test machines", count.failed);
    }
    Ok(())
}

/// A step of `cargo xtask test`: these tests on these series, in machines of so many processors.
///
/// # Errors
/// When no machine could be made.
pub(crate) fn step(shares: &[Share], processors: NonZeroUsize) -> Result<Count> {
    let wanted = |share: &Share| {
        let series = series::ALL.iter().find(|series| series.name == share.series)?;
        Some(Wanted::new(series, share.tests.arguments()))
    };
    let (series, tests) = (Vec::new(), Vec::new());
    let args = Args {
        series,
        update: false,
        readme: false,
        patience: PATIENCE,
        systemd: false,
        processors,
        at_once: None,
        tests,
    };
    report(&boot(&shares.iter().filter_map(wanted).collect::<Vec<_>>(), &args)?, false)
}

/// The package under systemd, as a step of `cargo xtask test`.
///
/// # Errors
/// The machine cannot be made here, or the trial fails.
pub(crate) fn systemd_step() -> Result<()> {
    systemd::run(false, PROCESSORS, Duration::from_secs(PATIENCE))
}

/// Runs the machines.
fn boot(wanted: &[Wanted], args: &Args) -> Result<Vec<Row>> {
    let place = build_folder()?.join("vm");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;

    let series: Vec<&Series> = wanted.iter().map(|wanted| wanted.series).collect();
    let rows = match Ready::for_series(&series, args.update) {
        Ok(ready) => {
            setup::ensure_with_programs()?;
            let program = timed(format_args!("build the kernel tests"), program::build)?;
            let common = initramfs::common(&ready.emulator.busybox, &program, &place)?;
            let room = Room {
                place: &place,
                common,
                patience: Duration::from_secs(args.patience),
                processors: args.processors,
                arguments: wanted.iter().map(|wanted| (wanted.series.name, &wanted.arguments[..])).collect(),
            };
            machine::boot_all(&ready, &room, args.at_once.unwrap_or_else(|| at_once(args.processors)))?
        }
        Err(error) => {
            let reason = format!("{error:#}");
            let row = |series: &&Series| Row { series: series.name, fate: Fate::NotTested { reason: reason.clone() } };
            series.iter().map(row).collect()
        }
    };
    let report = place.join("matrix.json");
    fs::write(&report, serde_json::to_string_pretty(&rows)? + "\n")
        .with_context(|| format!("cannot write {}", report.display()))?;
    Ok(rows)
}

/// Prints the matrix, holds it against README.md or writes it there, and counts.
fn report(rows: &[Row], write: bool) -> Result<Count> {
    say(format_args!("{}", matrix::render(rows)));
    let mut count = Count::default();
    for row in rows {
        match &row.fate {
            Fate::Tested(tested) => {
                count.passed += tested.said.tested();
                count.failed += tested.failures();
                count.skipped += tested.said.untested();
            }
            Fate::NotTested { reason } => {
                say(format_args!("SKIP: kernel {} is not tested: {reason}", row.series));
                count.skipped += 1;
            }
        }
    }
    let path = exec::root().join("README.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut known, run) = (Reached::in_readme(&text)?, Reached::of(rows));
    if write {
        known.update(&run);
        fs::write(&path, known.into_readme(&text)?).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(count);
    }
    let wrong = known.differences(&run);
    for line in &wrong {
        say(format_args!("FAILED: {line}; `cargo xtask vm --readme -- report::` writes it"));
    }
    count.failed += usize::from(!wrong.is_empty());
    Ok(count)
}

/// As many machines as there are processors for: two with two processors each took four times as long on two as one
/// after the other, because emulated processors spin while the one they wait for does not run.
fn at_once(processors: NonZeroUsize) -> NonZeroUsize {
    let here = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new((here / processors).min(MOST_AT_ONCE)).unwrap_or(NonZeroUsize::MIN)
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
