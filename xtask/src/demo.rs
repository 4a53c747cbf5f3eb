//! `cargo xtask demo`: the governor on real traffic, against the same traffic without it.
//!
//! A simulated provider, a gateway and a load run on loopback twice; see `phase`. In the first phase the gateway admits
//! first come, first served and never talks to the governor, which runs only to observe the kernel. In the second it
//! asks. Everything the demo puts into the system is owned by a value whose drop takes it away again.

mod child;
mod figures;
mod governor;
mod phase;
mod pool;
mod progress;
mod provider;
mod scratch;
mod table;

use crate::{exec, setup};
use anyhow::{Context, Result, bail};
use figures::Figures;
use governor::Governor;
use phase::{Admission, Stage};
use scratch::{Cgroups, Folder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Arguments;
use std::fs;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use table::Colour;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Seconds measured in each of the two phases
    #[arg(long, value_name = "N", default_value_t = 18, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    step: Option<Step>,
}

#[derive(Debug, clap::Subcommand)]
enum Step {
    /// What the demo starts its programs with
    #[command(hide = true)]
    Launch(child::Launch),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.step {
        Some(Step::Launch(launch)) => child::launch(launch),
        None => demonstrate(args),
    }
}

fn demonstrate(args: &Args) -> Result<()> {
    setup::ensure()?;
    let binaries = build()?;
    // From here on a signal is only noted, and the way out is the same as that of an error.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("cannot catch signals")?;
    }

    let folder = Folder::create()?;
    let cgroups = cgroups(folder.path());
    let mut governor = Governor::start(&binaries, folder.path())?;
    let stage = Stage {
        binaries: &binaries,
        folder: folder.path(),
        cgroups: cgroups.as_ref(),
        measured: Duration::from_secs(args.seconds),
        interrupted: &interrupted,
    };
    note(format_args!("without the governor: first come, first served (governord runs, but only observes the kernel)"));
    let without = stage.run(Admission::FirstCome, &mut governor)?;
    note(format_args!("with the governor: fair share 80, enforced"));
    let with = stage.run(Admission::Governor, &mut governor)?;
    drop((governor, cgroups, folder));

    let figures = Figures { without: without.figures, with: with.figures, kernel: with.kernel };
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&figures)?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    say(&table::render(&figures, &without.kernel, colour()));
    let failures = figures.failures();
    if !failures.is_empty() {
        bail!("the governor did not hold: {}", failures.join("; "));
    }
    say("\nThe governor held: no light request failed, and the slots were put to use.\n");
    Ok(())
}

/// Builds what runs, optimised: the same code an operator would run, so that the figures mean something.
fn build() -> Result<PathBuf> {
    // One call, so that cargo builds what both packages use only once.
    let packages = ["--package", "governor-user", "--package", "governor-client"];
    exec::run(exec::cargo().args(["build", "--release", "--bins", "--examples"]).args(packages))?;
    Ok(exec::target_folder()?.join("release"))
}

/// Two cgroups, or a visible note why not.
fn cgroups(logs: &Path) -> Option<Cgroups> {
    if !rustix::process::geteuid().is_root() {
        note(format_args!("not root: no cgroups of their own, and the kernel's figures come from a lower tier"));
        return None;
    }
    match Cgroups::create(logs) {
        Ok(cgroups) => Some(cgroups),
        Err(error) => {
            note(format_args!("gateway and load run without cgroups of their own: {error:#}"));
            None
        }
    }
}

fn colour() -> Colour {
    let wanted = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted { Colour::Ansi } else { Colour::Plain }
}

/// Something to know while it runs. A reader that has gone is no error.
fn note(words: Arguments<'_>) {
    drop(writeln!(stderr(), "{words}"));
}

/// Part of the result. A reader that has gone is no error.
fn say(text: &str) {
    drop(stdout().write_all(text.as_bytes()));
}
