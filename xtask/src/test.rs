//! `cargo xtask test`: every check and test, in order, each with its time; a failed step hides no other. The last line
//! is `N passed, N failed`, with `, N skipped` when something could not run here.
//!
//! Every step names the whole workspace and the default profile, so that cargo resolves the same features each time
//! and compiles nothing twice.

mod alerts;
mod deny;
mod pingora;
mod tally;

use crate::vm::{self, Share, Tests};
use crate::{bare, bench, deb, exec, setup};
use anyhow::Result;
use std::fmt;
use std::num::NonZeroUsize;
use std::process::Command;
use std::time::{Duration, Instant};
use tally::Tally;

/// Length of the simulated histories that `--full` generates.
const FULL_SIM_STEPS: &str = "10000000";

/// What every run tests on other kernels: what is about the kernel at hand and held against its own count. `--full` and
/// `cargo xtask vm` run everything, on two processors each.
const EMULATED: [Share; 4] = [
    Share { series: "6.12", tests: Tests::Without(&NOT_EMULATED) },
    Share { series: "7.x", tests: Tests::Only(&ORACLES) },
    Share { series: "6.1", tests: Tests::Only(&ORACLES) },
    Share { series: "5.10", tests: Tests::Only(&ORACLES) },
];

/// The same in full.
const EMULATED_IN_FULL: [Share; 4] = [
    Share { series: "6.1", tests: Tests::All },
    Share { series: "6.12", tests: Tests::All },
    Share { series: "7.x", tests: Tests::All },
    Share { series: "5.10", tests: Tests::All },
];

/// Tests of many sockets and of whole daemons, which this machine's kernel has passed already: most of an emulated run,
/// and about load and the daemon's lifetime rather than about a kernel.
const NOT_EMULATED: [&str; 6] = ["campaign::", "restart::", "scale::", "surroundings::", "tuner::", "verdicts::"];

/// Tests that hold every hook against `ss`, `nstat` or a number of connections made: what one kernel can do
/// differently.
const ORACLES: [&str; 9] = [
    "tiers::",
    "listeners::",
    "groups::",
    "overflow::",
    "connections::",
    "sojourn::",
    "storm::",
    "styles::",
    "variants::",
];

/// Processors of the machines of every run. The tests do one thing at a time, so that machines with one processor each,
/// as many at once as there are processors, take about half the time; this machine's own kernel runs them on all.
const EMULATED_PROCESSORS: NonZeroUsize = NonZeroUsize::MIN;

/// The same in full.
const EMULATED_PROCESSORS_IN_FULL: NonZeroUsize = NonZeroUsize::new(2).expect("two is not nought");

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Longer campaigns too: simulations in release mode, a minute of hostile bytes for every parser, 100,000
    /// connections and 10,000 requests of every ending, the package under systemd in an emulated Debian, the example on
    /// Pingora, licences and sources of all dependencies
    #[arg(long)]
    full: bool,
    /// Only these [default: all]
    #[arg(value_enum, value_name = "SUITE")]
    suites: Vec<Suite>,
}

/// A part that can be asked for by name. In the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// Formatting, clippy, documentation
    Lint,
    /// Unit tests and doctests of all crates
    Unit,
    /// Generated histories against the engine's reference model
    Sim,
    /// Real daemon and client on temporary sockets
    E2e,
    /// Real eBPF on this kernel; needs root
    Kernel,
    /// Transcripts of governorctl
    Cli,
    /// The alert rules against promtool
    Alerts,
    /// Rules about the source itself
    Tidy,
    /// Every benchmark in small: that it works, not what it finds
    Bench,
    /// The Debian package: built, installed in a copy of this machine, started, removed; needs root
    Deb,
    /// The kernel tests on other kernels, emulated; a kernel that cannot be had is skipped
    Vm,
}

/// Runs the command. Ends the process with 1 when anything failed, so that nothing follows the last line.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wants = |suite| args.suites.is_empty() || args.suites.contains(&suite);
    let mut report = Report::default();
    let prepared = || {
        setup::ensure_with_programs()?;
        if args.full { setup::ensure_full_programs() } else { Ok(()) }
    };
    report.step("setup", || match prepared() {
        Ok(()) => Tally::default(),
        Err(error) => {
            say(format_args!("{error:#}"));
            Tally::FAILED
        }
    });
    if report.total().failed == 0 {
        if wants(Suite::Lint) {
            lint(&mut report);
        }
        report.step("build", || tally::check(&mut cargo(&["build", "--workspace", "--bins", "--examples", "--tests"])));
        for suite in [
            Suite::Unit,
            Suite::Sim,
            Suite::E2e,
            Suite::Kernel,
            Suite::Cli,
            Suite::Alerts,
            Suite::Tidy,
            Suite::Bench,
            Suite::Deb,
            Suite::Vm,
        ] {
            if wants(suite) {
                test(suite, &mut report);
            }
        }
        if args.full {
            full(&mut report);
        }
    }
    report.finish();
    Ok(())
}

fn lint(report: &mut Report) {
    report.step("fmt", || tally::check(&mut cargo(&["fmt", "--all", "--check"])));
    report.step("clippy", || {
        tally::check(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    report.step("doc", || {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
        tally::check(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
}

fn test(suite: Suite, report: &mut Report) {
    let mut step = |name: &str, arguments: &[&str]| {
        report.step(name, || {
            let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
            tally::tests(command.args(arguments).envs(kernel_required()))
        });
    };
    match suite {
        Suite::Lint => {}
        Suite::Unit => {
            let targets = ["cases", "client", "max_min", "allocations", "log", "turns", "tuner", "recordings", "fuzz"];
            let mut own = vec!["--lib", "--bins", "--examples"];
            own.extend(targets.iter().flat_map(|target| ["--test", target]));
            own.extend(["--", "--skip", "tidy::"]);
            step("unit", &own);
            step("doctests", &["--doc"]);
            report.step("model", model);
        }
        Suite::Sim => step("sim", &["--test", "sim"]),
        Suite::E2e => step("e2e", &["--test", "e2e"]),
        // One at a time: they count what one kernel does. With their output: a skipped test says so on it.
        Suite::Kernel => step("kernel", &["--test", "kernel", "--", "--test-threads=1", "--show-output"]),
        Suite::Cli => step("cli", &["--test", "cli"]),
        Suite::Alerts => report.step("alerts", alerts::run),
        Suite::Tidy => step("tidy", &["--bin", "xtask", "tidy::"]),
        Suite::Bench => report.step("bench", benchmarks),
        Suite::Deb => report.step("deb", package),
        Suite::Vm => report.step("vm", || emulated(&EMULATED, EMULATED_PROCESSORS)),
    }
}

/// Each benchmark counts as one test.
fn benchmarks() -> Tally {
    let mut tally = Tally::default();
    for (name, outcome) in bench::smoke() {
        match outcome {
            Ok(()) => tally.passed += 1,
            Err(bench::Smoke::NotHere(why)) => {
                say(format_args!("SKIP: bench {name}: {why}"));
                tally.skipped += 1;
            }
            Err(bench::Smoke::Failed(error)) => {
                say(format_args!("bench {name}: {error:#}"));
                tally.failed += 1;
            }
        }
    }
    tally
}

/// The package counts as one test.
fn package() -> Tally {
    match deb::step() {
        Ok(()) => Tally { passed: 1, ..Tally::default() },
        Err(deb::Trial::NotHere(why)) => {
            say(format_args!("SKIP: deb: {why}"));
            Tally { skipped: 1, ..Tally::default() }
        }
        Err(deb::Trial::Failed(error)) => {
            say(format_args!("{error:#}"));
            Tally::FAILED
        }
    }
}

fn emulated(shares: &[Share], processors: NonZeroUsize) -> Tally {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    match vm::step(shares, processors) {
        Ok(count) => {
            Tally { passed: number(count.passed), failed: number(count.failed), skipped: number(count.skipped) }
        }
        Err(error) => {
            say(format_args!("{error:#}"));
            Tally::FAILED
        }
    }
}

/// The client's shared connection under a scheduler that tries many interleavings. In a folder of its own: a flag of the
/// compiler makes every crate anew.
fn model() -> Tally {
    let mut command = cargo(&["test", "--package", "governor-client", "--lib", "model"]);
    let folder = exec::root().join("target/model");
    tally::tests(command.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", folder))
}

fn full(report: &mut Report) {
    report.step("long sim", || {
        let mut command = cargo(&["test", "--package", "governor-tests", "--release", "--test", "sim"]);
        tally::tests(command.env("SIM_STEPS", FULL_SIM_STEPS))
    });
    report.step("endings", || {
        let mut command = cargo(&["test", "--workspace", "--test", "e2e", "endings::"]);
        tally::tests(command.env("GOVERNOR_FULL", "1"))
    });
    report.step("campaign", || {
        let mut command = cargo(&["test", "--workspace", "--test", "kernel", "campaign", "--"]);
        command.args(["--test-threads=1", "--show-output"]);
        tally::tests(command.env("GOVERNOR_FULL", "1").envs(kernel_required()))
    });
    report.step("long fuzz", || {
        let mut command = cargo(&["test", "--workspace", "--test", "fuzz", "--", "--show-output"]);
        tally::tests(command.env("GOVERNOR_FULL", "1"))
    });
    report.step("long layer", || {
        let mut command = cargo(&["test", "--workspace", "--test", "client", "interleavings"]);
        tally::tests(command.env("GOVERNOR_FULL", "1"))
    });
    report.step("long tuner", || {
        let mut command = cargo(&["test", "--workspace", "--test", "tuner", "properties::"]);
        tally::tests(command.env("PROPTEST_CASES", "5000"))
    });
    report.step("all vm", || emulated(&EMULATED_IN_FULL, EMULATED_PROCESSORS_IN_FULL));
    report.step("native histograms", || {
        let mut command = cargo(&["test", "--package", "governor-user", "--features", "native-histograms", "--lib"]);
        tally::tests(command.arg("metrics::"))
    });
    report.step("systemd", || one(vm::systemd_step()));
    report.step("bare", bare_setup);
    report.step("pingora", pingora::run);
    report.step("deny", deny::run);
}

/// The set-up on a minimal Debian counts as one test.
fn bare_setup() -> Tally {
    one(exec::target_folder().and_then(|target| bare::xtask(&target.join("bare"), &["setup"])))
}

/// What counts as one test.
fn one(outcome: Result<()>) -> Tally {
    match outcome {
        Ok(()) => Tally { passed: 1, ..Tally::default() },
        Err(error) => {
            say(format_args!("{error:#}"));
            Tally::FAILED
        }
    }
}

/// As root nothing stands in the way of the kernel tests, so a skip would hide a fault. A value set by the caller wins.
fn kernel_required() -> Option<(&'static str, &'static str)> {
    const NAME: &str = "GOVERNOR_REQUIRE_KERNEL";
    (rustix::process::geteuid().is_root() && std::env::var_os(NAME).is_none()).then_some((NAME, "1"))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = exec::cargo();
    command.args(arguments);
    command
}

/// What the steps came to.
#[derive(Debug, Default)]
struct Report {
    steps: Vec<(String, Duration, Tally)>,
}

impl Report {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Tally) {
        say(format_args!("\n=== {name}"));
        let started = Instant::now();
        let tally = work();
        self.steps.push((name.to_owned(), started.elapsed(), tally));
        say(format_args!("=== {}", self.line(self.steps.len() - 1)));
    }

    fn line(&self, step: usize) -> String {
        let (name, elapsed, tally) = &self.steps[step];
        let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
        format!("{name:<9} {verdict:<6} {:>7.1} s  {tally}", elapsed.as_secs_f64())
    }

    fn total(&self) -> Tally {
        self.steps.iter().fold(Tally::default(), |total, (_, _, tally)| total.plus(*tally))
    }

    fn finish(&self) {
        say(format_args!("\n=== summary"));
        for step in 0..self.steps.len() {
            say(format_args!("{}", self.line(step)));
        }
        let total = self.total();
        say(format_args!("\n{total}"));
        if total.failed > 0 {
            std::process::exit(1);
        }
    }
}

#[expect(clippy::print_stdout, reason = "the command's own report")]
fn say(line: fmt::Arguments<'_>) {
    println!("{line}");
}
