//! `cargo xtask deb`: a Debian package of the daemon and its command line. The tree is assembled here and packed by
//! `dpkg-deb`, which every Debian has: nothing is compiled for it but what is packed. The package is tried by
//! installing it into a private copy of this machine, `deb/trial.sh`.

mod files;

use crate::{exec, setup};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pack the binaries of the tests, stripped: quick to make, and slower to run
    #[arg(long)]
    quick: bool,
    /// Install, start and remove it in a copy of this machine; needs root
    #[arg(long)]
    trial: bool,
}

/// Why a trial did not pass.
#[derive(Debug)]
pub(crate) enum Trial {
    /// It cannot be made here.
    NotHere(String),
    /// It was made and failed.
    Failed(anyhow::Error),
}

/// Installs and removes in namespaces of its own.
const TRIAL: &str = include_str!("deb/trial.sh");

/// The program that confines the daemon in a trial, and is its server and its proxy.
pub(crate) const FIELD: &str = "test-field";

/// How the script says that this machine cannot be copied.
const NOT_HERE: i32 = 77;

/// Runs the command and says where the package is.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    let package = build(args.quick)?;
    if args.trial {
        match trial(&package, args.quick) {
            Ok(()) => {}
            Err(Trial::NotHere(why)) => bail!("cannot be tried here: {why}"),
            Err(Trial::Failed(error)) => return Err(error),
        }
    }
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    {
        println!("{}", package.display());
    }
    Ok(())
}

/// For the tests: builds a package of their binaries and tries it.
pub(crate) fn step() -> Result<(), Trial> {
    for program in ["dpkg", "dpkg-deb", "gzip", "setpriv", "ss", "strip", "systemd-analyze", "unshare"] {
        if exec::find(program).is_none() {
            return Err(Trial::NotHere(format!("there is no {program}")));
        }
    }
    build(true).map_err(Trial::Failed).and_then(|package| trial(&package, true))
}

/// Builds the package; its path.
pub(crate) fn build(quick: bool) -> Result<PathBuf> {
    let mut cargo = exec::cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bin", "governord", "--bin", "governorctl", "--bin", FIELD]);
    cargo.args(if quick { &[][..] } else { &["--release"] });
    exec::run(&mut cargo)?;
    let binaries = binaries(quick)?;
    let folder = exec::target_folder()?.join("debian");
    let tree = folder.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    files::assemble(&tree, &binaries)?;
    let architecture = exec::output(Command::new("dpkg").arg("--print-architecture"))?;
    let name = format!("governor_{}_{}.deb", env!("CARGO_PKG_VERSION"), architecture.trim());
    files::control(&tree, architecture.trim())?;
    let package = folder.join(name);
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--uniform-compression"]).args(if quick {
        ["-Zgzip", "-z1"]
    } else {
        ["-Zxz", "-z6"]
    });
    exec::output(pack.arg("--build").args([&tree, &package]))?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// Where a build puts its programs.
pub(crate) fn binaries(quick: bool) -> Result<PathBuf> {
    Ok(exec::target_folder()?.join(if quick { "debug" } else { "release" }))
}

/// Tries a package in a copy of this machine.
fn trial(package: &Path, quick: bool) -> Result<(), Trial> {
    if !rustix::process::geteuid().is_root() {
        return Err(Trial::NotHere("a copy of this machine needs root".to_owned()));
    }
    let place = package.with_extension("trial");
    fs::create_dir_all(&place).map_err(|error| Trial::Failed(error.into()))?;
    let mut script = Command::new("unshare");
    script.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
    script.args(["sh", "-euc", TRIAL, "trial"]).args([package, &place]);
    script.arg(binaries(quick).map_err(Trial::Failed)?.join(FIELD));
    let output = script.output().context("cannot start unshare").map_err(Trial::Failed)?;
    // Its mounts went with it.
    fs::remove_dir(&place).map_err(|error| Trial::Failed(error.into()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    drop(stderr().write_all(said.as_bytes()));
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(match output.status.code() {
        Some(NOT_HERE) => Trial::NotHere(why),
        _ => Trial::Failed(anyhow::anyhow!("the trial of {} failed:\n{said}{why}", package.display())),
    })
}
