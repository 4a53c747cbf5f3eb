//! `cargo xtask bare`: the project's commands on a user's machine: a minimal Debian (debootstrap's minbase, a C compiler and
//! git, nothing else) in a folder, with this machine's Rust toolchain and a clean clone of the last commit. What the set-up
//! forgets to install shows here. Shares the machine's network and kernel; owns neither.

use crate::debian::archive::Archives;
use crate::exec;
use crate::setup;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make the minimal Debian again instead of using the one of an earlier run
    #[arg(long)]
    force: bool,
    /// The command and its flags
    #[arg(value_name = "COMMAND", default_value = "setup", num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Mounts and enters.
const ENTER: &str = include_str!("bare/enter.sh");

/// What README asks of a machine beside cargo: a C compiler and git, and certificates to download with.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,git";

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let place = exec::target_folder()?.join("bare");
    if args.force {
        remove(&place)?;
    }
    let command: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let started = Instant::now();
    xtask(&place, &command)?;
    say(format_args!("`cargo xtask {}` took {:.0} s", command.join(" "), started.elapsed().as_secs_f64()));
    Ok(())
}

/// Runs `cargo xtask COMMAND…` in a clean clone in a fresh copy of the minimal Debian, and removes the copy after success.
///
/// # Errors
/// The Debian cannot be made here, or the command fails; then the copy stays for a look.
pub(crate) fn xtask(place: &Path, command: &[&str]) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("making and entering a minimal Debian needs root");
    }
    setup::ensure_full_programs()?;
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let _lock = setup::lock(&place.join("lock"))?;
    let base = base(place)?;
    let root = place.join("root");
    remove(&root)?;
    exec::output(Command::new("cp").arg("--archive").arg(&base).arg(&root))?;
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(exec::root()).arg(root.join("governor"));
    exec::output(&mut clone)?;
    let toolchain = exec::output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(exec::root()))?;
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
    enter.args(["sh", "-euc", ENTER, "bare"]).arg(&root).arg(toolchain.trim());
    enter.args(["cargo", "xtask"]).args(command);
    exec::run(&mut enter).with_context(|| format!("on a minimal Debian, which stays in {}", root.display()))?;
    remove(&root)
}

/// The minimal Debian of this machine's release, made once; it appears only when it is complete.
fn base(place: &Path) -> Result<PathBuf> {
    let base = place.join("base");
    if base.is_dir() {
        return Ok(base);
    }
    let fresh = place.join("base.new");
    remove(&fresh)?;
    debootstrap(PACKAGES, &fresh)?;
    // Where this machine's owner gets packages from, and how, is where the copy does.
    for part in ["sources.list", "sources.list.d", "apt.conf.d"] {
        let (from, into) = (Path::new("/etc/apt").join(part), fresh.join("etc/apt").join(part));
        if from.exists() {
            remove(&into)?;
            exec::output(Command::new("cp").args(["--recursive", "--dereference"]).arg(from).arg(into))?;
        }
    }
    for file in ["etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt"] {
        let from = Path::new("/").join(file);
        if from.is_file() {
            fs::copy(&from, fresh.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    fs::rename(&fresh, &base).with_context(|| format!("cannot rename {}", fresh.display()))?;
    Ok(base)
}

/// Makes a minimal Debian of this machine's release with some more packages in `into`.
///
/// # Errors
/// debootstrap fails, or this machine has no archive of Debian among its sources.
pub(crate) fn debootstrap(packages: &str, into: &Path) -> Result<()> {
    let release = setup::release()?;
    let archives = Archives::of_machine()?;
    say(format_args!("debootstrap {release} (minbase, {packages}) …"));
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase").arg(format!("--include={packages}")).arg(&release).arg(into);
    exec::output(debootstrap.arg(archives.main_uri())).map(drop)
}

/// Removes a file or a folder with all that is in it, if it is there.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

#[expect(clippy::print_stderr, reason = "progress of a command-line program")]
fn say(line: std::fmt::Arguments<'_>) {
    eprintln!("bare: {line}");
}
