//! Programs of the system: which are on the path, and installing the few that tests compare with. Installs only what
//! is missing, and only as root; otherwise it says what cannot be done without it.

use super::step;
use crate::exec;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// A program, the Debian package it comes from, and what needs it.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("ss", "iproute2", "kernel tests compare every count with it"),
    ("nstat", "iproute2", "kernel tests compare overflow counters with it"),
];

/// Installs what is missing. Missing programs are a failure only for the tests that use them, so being unable to
/// install them is said and survived.
pub(super) fn ensure() -> Result<()> {
    let missing: Vec<_> = PROGRAMS.into_iter().filter(|(program, ..)| !on_path(program)).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let installed = if !on_path("apt-get") {
        Err(anyhow::anyhow!("there is no apt-get here"))
    } else if !is_root() {
        Err(anyhow::anyhow!("installing needs root"))
    } else {
        step::timed(format_args!("install {}", packages.join(", ")), || install(&packages))
    };
    if let Err(error) = installed {
        for (program, package, purpose) in missing {
            step::say(format_args!("{program} (package {package}) is missing, and {purpose}: {error:#}"));
        }
    }
    Ok(())
}

/// Whether a program of this name is on the path.
pub(super) fn on_path(program: &str) -> bool {
    exec::find(program).is_some()
}

/// Fetches the package lists anew, saying why.
pub(super) fn refresh_lists(why: &str) -> Result<()> {
    if !is_root() {
        bail!("{why}, and refreshing them needs root: run `apt-get update` as root, then this again");
    }
    step::timed(format_args!("apt-get update ({why})"), || {
        step::output(Command::new("apt-get").args(["update", "--quiet"]))
            .context("the package lists cannot be refreshed")
    })?;
    Ok(())
}

fn install(packages: &[&str]) -> Result<()> {
    let attempt = || {
        step::output(
            Command::new("apt-get")
                .args(["install", "--yes", "--quiet", "--no-install-recommends"])
                .args(packages)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    if attempt().is_err() {
        refresh_lists("the package lists may be out of date")?;
        attempt()?;
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
