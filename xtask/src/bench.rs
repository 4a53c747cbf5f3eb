//! `cargo xtask bench`: what the governor costs and gains, each figure against a baseline of the same run and, where
//! one was set, against its target. Builds and runs the program that measures, and judges and shows what it found.

mod admission;
mod comparison;
mod engine;
mod policy;
mod report;
mod table;

use crate::{exec, setup};
use anyhow::{Context, Result, bail};
use report::Report;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{Write, stderr, stdout};
use std::process::{Command, Stdio};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    subject: Subject,
    /// A smoke run of a few seconds: shows that the benchmark works, and its figures mean nothing
    #[arg(long)]
    quick: bool,
    /// How to show the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Only this part of `kernel` or `admission`
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Write the table of policies into README.md
    #[arg(long)]
    update: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// Observing the kernel: connections, programs, resync, restart; needs root
    Kernel,
    /// Asking: round trips by an echo, throughput by Redis, the signal page, a gateway with the layer by Envoy's ext_authz
    Admission,
    /// Deciding: time and memory of the admission engine
    Engine,
    /// Being fair: no rule, a static cap, equal split and max-min on the same workloads, with plots
    Policy,
    /// Tuning backlogs: how long the clients of a burst wait to be connected, before and after a raise; needs root
    Tuner,
}

/// A part of `kernel` or `admission`, as the program that measures names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Connections, messages and system calls, attached by detached
    Traffic,
    /// Run time of the programs
    Programs,
    /// One pass over 18,000 sockets
    Resync,
    /// Exact counts after kill -9
    Restart,
    /// One acquire and its grant over the socket
    RoundTrip,
    /// Acquires and releases a second
    Throughput,
    /// A look at the signal page
    Page,
    /// A request through a gateway
    Gateway,
}

impl Part {
    fn of(self) -> Subject {
        match self {
            Self::Traffic | Self::Programs | Self::Resync | Self::Restart => Subject::Kernel,
            Self::RoundTrip | Self::Throughput | Self::Page | Self::Gateway => Subject::Admission,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Why a smoke run did not pass.
#[derive(Debug)]
pub(crate) enum Smoke {
    /// It cannot run here.
    NotHere(&'static str),
    /// It ran and failed.
    Failed(anyhow::Error),
}

/// Runs the command. A missed target is shown and is no failure: figures of one machine decide nothing alone.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.update && (args.subject != Subject::Policy || args.quick) {
        bail!("only a whole `bench policy` has a table in README.md");
    }
    if args.only.is_some_and(|part| part.of() != args.subject) {
        bail!("this benchmark has no such part");
    }
    setup::ensure_with_programs()?;
    let text = match (args.subject, args.format) {
        (Subject::Policy, format) => {
            let comparison = policy::measure(args.quick)?;
            if args.update {
                policy::update(&comparison)?;
            }
            if format == Format::Json { json(&comparison)? } else { policy::render(&comparison) }
        }
        (subject, format) => {
            let report = match subject {
                Subject::Kernel => kernel(args.quick, args.only)?,
                Subject::Admission => admission::measure(args.quick, args.only)?,
                Subject::Tuner => tuner(args.quick)?,
                Subject::Engine | Subject::Policy => engine::measure(args.quick)?,
            };
            if format == Format::Json { json(&report)? } else { table::render(&report) }
        }
    };
    // A reader that has gone is no error.
    drop(stdout().write_all(text.as_bytes()));
    Ok(())
}

/// Every benchmark in small, with its name.
pub(crate) fn smoke() -> [(&'static str, Result<(), Smoke>); 5] {
    let as_root = |measure: &dyn Fn() -> Result<Report>| {
        if rustix::process::geteuid().is_root() {
            measure().map(drop).map_err(Smoke::Failed)
        } else {
            Err(Smoke::NotHere("private network namespaces and eBPF need root"))
        }
    };
    [
        ("engine", engine::measure(true).map(drop).map_err(Smoke::Failed)),
        ("policy", policy::measure(true).map(drop).map_err(Smoke::Failed)),
        ("admission", admission::measure(true, None).map(drop).map_err(Smoke::Failed)),
        ("kernel", as_root(&|| kernel(true, None))),
        ("tuner", as_root(&|| tuner(true))),
    ]
}

fn json(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn kernel(quick: bool, only: Option<Part>) -> Result<Report> {
    if !rustix::process::geteuid().is_root() {
        bail!("private network namespaces and eBPF need root");
    }
    // The daemon under test and the peers lie beside the program that measures.
    build_daemon_and_peer(quick)?;
    let mut measure = bench(quick, "kernel");
    measure.args(only.as_ref().and_then(clap::ValueEnum::to_possible_value).map(|part| part.get_name().to_owned()));
    parse(&mut measure)
}

fn tuner(quick: bool) -> Result<Report> {
    if !rustix::process::geteuid().is_root() {
        bail!("private network namespaces and eBPF need root");
    }
    build_daemon_and_peer(quick)?;
    parse(&mut bench(quick, "tuner"))
}

fn build_daemon_and_peer(quick: bool) -> Result<()> {
    let mut build = exec::cargo();
    build.args(["build", "--quiet", "--workspace", "--bin", "governord", "--bin", "test-peer"]);
    build.args(if quick { &[][..] } else { &["--release"] });
    exec::run(&mut build)
}

/// The command that builds and runs a benchmark of the workspace. A smoke run takes the profile of the tests, which is
/// built already.
fn bench(quick: bool, name: &str) -> Command {
    let mut command = exec::cargo();
    command.args(["bench", "--quiet", "--workspace", "--bench", name]);
    command.args(if quick { &["--profile", "dev", "--", "--quick"][..] } else { &["--"] });
    command
}

/// Runs a program whose standard output is a report; its progress goes where ours goes.
fn parse<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} printed no report"))
}

/// Says what is being done. A reader that has gone is no error.
fn progress(words: std::fmt::Arguments<'_>) {
    drop(writeln!(stderr(), "{words}"));
}
