//! What asking for a slot costs: `cargo xtask bench admission` builds and runs this. Prints one JSON report on standard
//! output, progress on standard error. Every figure stands beside its baseline of the same run, measured alternately;
//! servers have one core, whoever asks has another. Started with `--serve` it is one of those servers.

mod envoy;
mod gateway;
mod http;
mod page;
#[expect(dead_code, reason = "the benchmark of the kernel has more arms")]
#[path = "../kernel/pairs.rs"]
mod pairs;
#[path = "../../../xtask/src/bench/report.rs"]
mod report;
mod round_trip;
mod serve;
mod server;
mod talk;
mod throughput;

use anyhow::{Context, Result, bail};
use report::Report;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use support::cores;
use support::programs::daemon::{Daemon, Setup};
use support::progress;

/// How much is done.
#[derive(Debug)]
struct Scale {
    /// Pairs of windows.
    pairs: usize,
    /// Length of a window.
    window: Duration,
    /// Rounds with the gateway: its four arms each.
    rounds: usize,
    /// Length of a window with the gateway.
    gateway: Duration,
    /// Time between two requests through a gateway.
    gap: Duration,
    /// Reads of the page that are looked at for a tear.
    reads: u64,
}

const FULL: Scale = Scale {
    pairs: 30,
    window: Duration::from_millis(300),
    rounds: 36,
    gateway: Duration::from_secs(1),
    gap: Duration::from_micros(500),
    reads: 1_000_000_000,
};
const QUICK: Scale = Scale {
    pairs: 2,
    window: Duration::from_millis(30),
    rounds: 1,
    gateway: Duration::from_millis(100),
    gap: Duration::from_millis(5),
    reads: 100_000,
};

/// What can be asked for by name; all of it otherwise.
const PARTS: [&str; 4] = ["round-trip", "throughput", "page", "gateway"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((mode, rest)) = arguments.split_first()
        && mode == "--serve"
    {
        return serve::run(rest);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let envoy = arguments.iter().find_map(|argument| argument.strip_prefix("--envoy=")).map(PathBuf::from);
    let parts: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| PARTS.contains(argument)).collect();
    let wants = |part: &str| parts.is_empty() || parts.contains(&part);
    let scale = if quick { QUICK } else { FULL };
    cores::check()?;

    let mut report = Report { name: "admission".to_owned(), quick, ..Report::default() };
    if wants("round-trip") {
        report.rows.push(round_trip::measure(&scale)?);
    }
    if wants("throughput") {
        match throughput::measure(&scale) {
            Ok(row) => report.rows.push(row),
            Err(error) if error.is::<server::Missing>() => report.notes.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    if wants("page") {
        report.rows.extend(page::measure(&scale)?);
    }
    if wants("gateway") {
        let (rows, notes) = gateway::measure(&scale, envoy.as_deref())?;
        report.rows.extend(rows);
        report.notes.extend(notes);
    }
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

/// A daemon on the servers' core, with a pool `chat` that is never congested by what is measured here.
fn daemon() -> Result<Daemon> {
    let members: String = (10..20).map(|n| format!("[[pools.chat.members]]\nname = \"m{n}\"\nslots = 200\n")).collect();
    let config = format!(
        "[node]\ncap = 10000\nlease_ttl = \"1h\"\n[pools.chat]\nfair_share = 80\nfair_share_mode = \"enforce\"\n{members}"
    );
    // What observing costs is measured elsewhere and is the same whoever asks.
    let setup = Setup::new(&config).env("GOVERNOR_KERNEL_TICK", "10s");
    match cores::beside_servers(|| setup.try_start())? {
        Ok(daemon) => Ok(daemon),
        Err(refusal) => bail!("governord did not start: {}\n{}", refusal.status, refusal.log),
    }
}

/// A number of things as a number to calculate with.
fn float(count: u64) -> Result<f64> {
    u32::try_from(count).map(f64::from).context("more than was ever asked for")
}
