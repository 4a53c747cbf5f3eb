//! Programs of the system: which are on the path, and installing the few that tests and benchmarks compare with. Installs
//! only what is missing, and only as root; otherwise it says what cannot be done without it. Never starts a service.

use super::step;
use crate::exec;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;

/// A program, the Debian package it comes from, and what needs it.
type Program = (&'static str, &'static str, &'static str);

const PROGRAMS: [Program; 8] = [
    ("ss", "iproute2", "kernel tests compare every count with it"),
    ("nstat", "iproute2", "kernel tests compare overflow counters with it"),
    ("nginx", "nginx", "tests tune its listeners, unmodified"),
    ("haproxy", "haproxy", "tests tune its listeners, unmodified"),
    ("redis-server", "redis-server", "a benchmark holds admission against it"),
    ("chromium", "chromium", "a page in it reads refusals across origins"),
    ("python3", "python3-venv", "the official clients of providers run in it"),
    ("promtool", "prometheus", "tests check the alert rules with it"),
];

/// What only `cargo xtask test --full` needs.
const FULL_PROGRAMS: [Program; 1] =
    [("cmake", "cmake", "the compression library of the Pingora example is built with it")];

/// Asked by Debian's packages before they start a service (deb-policy-rc.d: 101 forbids it).
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing. Missing programs are a failure only for the tests that use them, so being unable to
/// install them is said and survived.
pub(super) fn ensure() {
    bring(&PROGRAMS);
}

/// The same for what only whole runs need.
pub(super) fn ensure_full() {
    bring(&FULL_PROGRAMS);
}

fn bring(programs: &[Program]) {
    let missing: Vec<_> = programs.iter().copied().filter(|(program, ..)| !on_path(program)).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return;
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
    let _services = forbid_services()?;
    let attempt = || {
        step::output(
            Command::new("apt-get")
                .args(["install", "--yes", "--quiet", "--no-install-recommends", "--option", "DPkg::Lock::Timeout=120"])
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

/// Keeps packages from starting their services until the result is dropped. A policy that is there already stays.
fn forbid_services() -> Result<Option<Forbidden>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(SERVICE_POLICY);
    match file {
        Ok(mut file) => {
            let forbidden = Forbidden;
            // The mode above was cut by the umask.
            file.set_permissions(Permissions::from_mode(0o755))
                .and_then(|()| file.write_all(b"#!/bin/sh\nexit 101\n"))
                .with_context(|| format!("cannot write {SERVICE_POLICY}"))?;
            Ok(Some(forbidden))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot create {SERVICE_POLICY}")),
    }
}

/// Our policy, removed at the end.
struct Forbidden;

impl Drop for Forbidden {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(SERVICE_POLICY) {
            step::say(format_args!("cannot remove {SERVICE_POLICY}: {error}"));
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
