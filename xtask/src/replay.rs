//! `cargo xtask replay FILE`: decisions of a daemon, put to this tree's engine once more.

use crate::{exec, setup};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What `governorctl --format json explain ID` printed, or a segment of the folder `decisions` in the state folder
    file: PathBuf,
}

/// Runs the command. Ends the process with the program's own code: 1 when an answer is not the same.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    // The program runs in the workspace's root, the name was given where the caller is.
    let file = std::path::absolute(&args.file).with_context(|| format!("{} is no path", args.file.display()))?;
    let mut command = exec::cargo();
    command.args(["run", "--quiet", "--package", "governor-tests", "--bin", "replay", "--"]).arg(file);
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        std::process::exit(status.code().unwrap_or(2));
    }
    Ok(())
}
