//! Programs of the system: which are on the path, and installing those that tests and benchmarks need. Installs only what
//! is missing, and only as root on a system with apt; otherwise the set-up ends with the command to run. Never starts a
//! service.

use super::step;
use crate::exec;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;

/// What shows that a package is there.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// A program on the path.
    Program(&'static str),
    /// A module that python3 imports: Debian ships parts of Python's own library as packages of their own.
    Module(&'static str),
}

/// What shows that it is there, the Debian package it comes from, and what needs it.
type Need = (Probe, &'static str, &'static str);

const NEEDS: [Need; 9] = [
    (Probe::Program("ss"), "iproute2", "kernel tests compare every count with it"),
    (Probe::Program("nstat"), "iproute2", "kernel tests compare overflow counters with it"),
    (Probe::Program("nginx"), "nginx", "tests tune its listeners, unmodified"),
    (Probe::Program("haproxy"), "haproxy", "tests tune its listeners, unmodified"),
    (Probe::Program("redis-server"), "redis-server", "a benchmark compares admission with it"),
    (Probe::Program("chromium"), "chromium", "a page in it reads refusals across origins"),
    (Probe::Program("python3"), "python3", "clients written in Python run in it"),
    (Probe::Module("ensurepip"), "python3-venv", "the official clients of providers are installed with it"),
    (Probe::Program("promtool"), "prometheus", "tests check the alert rules with it"),
];

/// What only `cargo xtask test --full` needs.
const FULL_NEEDS: [Need; 3] = [
    (Probe::Program("cmake"), "cmake", "the compression library of the Pingora example is built with it"),
    (Probe::Program("debootstrap"), "debootstrap", "set-up and package are tried in a minimal Debian made by it"),
    (Probe::Program("mke2fs"), "e2fsprogs", "the disk of an emulated Debian is made by it"),
];

/// Asked by Debian's packages before they start a service (deb-policy-rc.d: 101 forbids it).
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

impl Probe {
    fn is_there(self) -> bool {
        match self {
            Self::Program(name) => on_path(name),
            Self::Module(name) => {
                let mut python = Command::new("python3");
                python.args(["-c", &format!("import {name}")]);
                step::output(&mut python).is_ok()
            }
        }
    }
}

/// Installs what the tests and benchmarks need.
///
/// # Errors
/// Something is missing and cannot be installed: tests would fail for want of it, minutes later. The message names it.
pub(super) fn ensure() -> Result<()> {
    install_missing(&NEEDS)
}

/// The same for what only whole runs need.
///
/// # Errors
/// As [`ensure`].
pub(super) fn ensure_full() -> Result<()> {
    install_missing(&FULL_NEEDS)
}

fn install_missing(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().copied().filter(|(probe, ..)| !probe.is_there()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let purposes =
        || missing.iter().map(|(_, package, purpose)| format!("\n  {package}: {purpose}")).collect::<String>();
    if !on_path("apt-get") {
        bail!("there is no apt-get here; install these by hand, then run this again:{}", purposes());
    }
    if !is_root() {
        bail!(
            "installing packages needs root; run `apt-get install {}` as root, then this again:{}",
            packages.join(" "),
            purposes()
        );
    }
    step::timed(format_args!("install {}", packages.join(", ")), || install(&packages))?;
    // A package that no longer contains what it was installed for would fail a test, minutes later.
    if let Some((probe, package, _)) = missing.iter().find(|(probe, ..)| !probe.is_there()) {
        bail!("package {package} is installed and {probe:?} is still missing; its contents changed");
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
