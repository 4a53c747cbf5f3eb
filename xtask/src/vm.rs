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
mod matrix;
mod program;
mod release;
mod series;
mod verdict;

use crate::{exec, setup};
use anyhow::{Context, Result, bail};
use apt::Apt;
use archive::Archives;
use emulator::{Emulator, End};
use kernel::Kernel;
use series::Series;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verdict::{Fate, Row, Tested};

/// How much of the console is shown when something failed; all of it is in the build folder.
const SHOWN_LINES: usize = 60;

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
    #[arg(long, value_name = "N", default_value_t = 300)]
    limit: u64,
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
            let program = timed(format_args!("build the kernel tests, linked statically"), || {
                program::build(&place.join("target"))
            })?;
            let common = initramfs::common(&ready.emulator.busybox, &program)?;
            let room = Room { place: &place, common, limit: Duration::from_secs(args.limit), filter: &args.tests };
            ready
                .kernels
                .iter()
                .map(|(series, kernel)| row(series, kernel, &ready.emulator, &room))
                .collect::<Result<Vec<_>>>()?
        }
        Err(error) => wanted.iter().map(|series| not_tested(series, format!("{error:#}"))).collect(),
    };
    let report = place.join("matrix.json");
    fs::write(&report, serde_json::to_string_pretty(&rows)? + "\n")
        .with_context(|| format!("cannot write {}", report.display()))?;
    conclude(&rows)
}

/// What machines are made of.
struct Ready<'a> {
    emulator: Emulator,
    /// A kernel for each series, or why there is none.
    kernels: Vec<(&'a Series, Result<Kernel, String>)>,
}

impl<'a> Ready<'a> {
    /// Finds or fetches everything. Safe to call from several processes at once.
    fn for_series(wanted: &[&'a Series], update: bool) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            bail!("only x86-64 kernels are emulated, and this is {}", std::env::consts::ARCH);
        }
        let store = exec::root().join("target/tools/kernels");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        let _lock = setup::lock(&store.join("lock"))?;
        let present = Emulator::present(&store);
        let missing = |series: &Series| update || Kernel::cached(&store, series).is_none();
        let mut suites: BTreeSet<String> = wanted
            .iter()
            .filter(|series| missing(series))
            .flat_map(|series| series.suites)
            .map(|suite| (*suite).to_owned())
            .collect();
        if present.is_none() {
            suites.extend(own_suites()?);
        }
        let apt = if suites.is_empty() { None } else { Some(lists(&store, &suites)?) };
        let (apt, complaint) = apt.unzip();
        let emulator = match (present, &apt) {
            (Some(present), _) => present,
            (None, Some(apt)) => timed(format_args!("fetch QEMU and busybox"), || Emulator::fetch(&store, apt))?,
            (None, None) => bail!("no QEMU is here, and no package lists"),
        };
        let kernels = wanted
            .iter()
            .map(|series| {
                let kernel = match &apt {
                    Some(apt) if missing(series) => {
                        renew(&store, series, apt, complaint.as_ref().and_then(Option::as_ref))
                    }
                    _ => Kernel::cached(&store, series).context("it is gone"),
                };
                (*series, kernel.map_err(|error| format!("{error:#}")))
            })
            .collect();
        Ok(Self { emulator, kernels })
    }
}

/// The suites that fit what is installed here, for packages with dependencies.
fn own_suites() -> Result<[String; 3]> {
    let release = fs::read_to_string("/etc/os-release").context("cannot tell which release this machine has")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("this machine's release has no name")?
        .trim_matches('"');
    Ok([name.to_owned(), format!("{name}-updates"), format!("{name}-security")])
}

fn lists(store: &Path, suites: &BTreeSet<String>) -> Result<(Apt, Option<String>)> {
    if exec::find("apt-get").is_none() || exec::find("dpkg").is_none() {
        bail!("kernels and QEMU come from Debian packages, and there is no apt-get and dpkg here");
    }
    let archives = Archives::of_machine()?;
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    timed(format_args!("fetch the package lists of {}", suites.join(", ")), || {
        Apt::with(&store.join("apt"), &archives, &suites)
    })
}

/// Fetches the newest kernel; one that is there already is better than none.
fn renew(store: &Path, series: &Series, apt: &Apt, complaint: Option<&String>) -> Result<Kernel> {
    let fetched = timed(format_args!("fetch kernel {}", series.name), || Kernel::fetch(store, series, apt));
    match (fetched, Kernel::cached(store, series)) {
        (Ok(kernel), _) => Ok(kernel),
        (Err(error), Some(kernel)) => {
            progress(format_args!("kernel {} stays at {}: {error:#}", series.name, kernel.version));
            Ok(kernel)
        }
        (Err(error), None) => match complaint {
            Some(complaint) => Err(error.context(format!("apt said: {complaint}"))),
            None => Err(error),
        },
    }
}

/// What is the same for all machines.
struct Room<'a> {
    place: &'a Path,
    common: Vec<u8>,
    limit: Duration,
    filter: &'a [String],
}

fn row(series: &Series, kernel: &Result<Kernel, String>, emulator: &Emulator, room: &Room<'_>) -> Result<Row> {
    match kernel {
        Ok(kernel) => {
            Ok(Row { series: series.name, fate: Fate::Tested(Box::new(boot(series, kernel, emulator, room)?)) })
        }
        Err(reason) => Ok(not_tested(series, reason.clone())),
    }
}

fn not_tested(series: &Series, reason: String) -> Row {
    Row { series: series.name, fate: Fate::NotTested { reason } }
}

/// Runs one machine and judges it.
fn boot(series: &Series, kernel: &Kernel, emulator: &Emulator, room: &Room<'_>) -> Result<Tested> {
    let folder = room.place.join(series.name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let initramfs = folder.join("initramfs");
    let mut content = room.common.clone();
    content.extend(initramfs::of_kernel(kernel, series, room.filter)?);
    fs::write(&initramfs, content).with_context(|| format!("cannot write {}", initramfs.display()))?;

    progress(format_args!("boot {} ({}) …", series.name, kernel.version));
    let console = folder.join("console.log");
    let started = Instant::now();
    let end = emulator.run(&kernel.image, &initramfs, &console, room.limit)?;
    let seconds = started.elapsed().as_secs_f64();
    let text = fs::read(&console).with_context(|| format!("cannot read {}", console.display()))?;
    let text = String::from_utf8_lossy(&text);
    let said = console::read(&text);
    let complaints = verdict::complaints(series, &said, end);
    let tested = Tested { version: kernel.version.clone(), seconds, complaints, said };
    progress(format_args!(
        "boot {} ({}): {} passed, {} failed in {seconds:.1} s",
        series.name,
        kernel.version,
        tested.said.passed,
        tested.failures()
    ));
    if tested.failures() > 0 {
        show(&text, &console, end);
    }
    Ok(tested)
}

/// The end of a console, marked so that nobody takes its lines for this command's own.
fn show(text: &str, console: &Path, end: End) {
    let lines: Vec<&str> = text.lines().collect();
    for line in lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default() {
        progress(format_args!("  | {}", line.trim_end()));
    }
    let how = if end == End::TimedOut { " (killed at the time limit)" } else { "" };
    progress(format_args!("the whole console is in {}{how}", console.display()));
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
