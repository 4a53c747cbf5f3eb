//! `cargo xtask setup`: everything the build and the tests need beyond a stable Rust, put into `target/tools`.
//!
//! Four parts, each a file: a compiler with a `core` for BPF ([`compiler`]), `bpf-linker` for that compiler's LLVM
//! ([`linker`]), the system programs the tests need ([`system`]), and the official Python clients they put in front of the
//! gateway ([`python`]). Nothing that could conflict with the user's own compiler is installed. A stamp file remembers what was built, so a second run only looks.

mod compiler;
mod linker;
mod python;
mod stamp;
mod step;
mod system;

use crate::exec;
use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use stamp::Stamp;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Throw away what an earlier setup built and start over
    #[arg(long)]
    force: bool,
}

/// Runs the command, telling what it does and what was already there.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = Tools::new();
    if args.force {
        tools.forget()?;
    }
    let started = Instant::now();
    system::ensure()?;
    python::ensure(&tools)?;
    let stamp = tools.complete()?;
    step::say(format_args!(
        "ready in {:.1} s: rustc {} (LLVM {}), bpf-linker {}",
        started.elapsed().as_secs_f64(),
        stamp.compiler,
        stamp.llvm,
        stamp.linker
    ));
    Ok(())
}

/// Brings what a build needs, quietly when nothing is missing. Safe to call from several processes at once.
pub(crate) fn ensure() -> Result<()> {
    Tools::new().complete().map(drop)
}

/// Brings what a build needs and the programs that tests and benchmarks compare with.
pub(crate) fn ensure_with_programs() -> Result<()> {
    system::ensure()?;
    python::ensure(&Tools::new())?;
    ensure()
}

/// Brings the programs that only a whole run of the tests needs.
///
/// # Errors
/// One is missing and cannot be installed.
pub(crate) fn ensure_full_programs() -> Result<()> {
    system::ensure_full()
}

/// Name of this machine's Debian release, e.g. `bookworm`.
///
/// # Errors
/// `/etc/os-release` is missing or has no name.
pub(crate) fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot tell which release this machine has")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("this machine's release has no name")?.trim_matches('"').to_owned())
}

/// The folders of the tools. Always below the workspace's own `target`, whatever `CARGO_TARGET_DIR` says, because
/// `.cargo/config.toml` has to name the place for a plain `cargo build`.
#[derive(Debug)]
struct Tools {
    root: PathBuf,
}

impl Tools {
    fn new() -> Self {
        Self { root: exec::root().join("target/tools") }
    }

    /// The unpacked Debian packages.
    fn packages(&self) -> PathBuf {
        self.root.join("ebpf")
    }

    /// The toolchain's prefix, in the shape `rustup run PATH` accepts.
    fn prefix(&self) -> PathBuf {
        self.packages().join("usr")
    }

    /// Holds one link, to libLLVM: bpf-linker loads the first `libLLVM*` it finds on its library path.
    fn llvm(&self) -> PathBuf {
        self.root.join("lib")
    }

    fn stamp(&self) -> PathBuf {
        self.root.join("stamp.json")
    }

    /// Brings everything up to date and returns what is there.
    fn complete(&self) -> Result<Stamp> {
        compiler::repair_cargo(self)?;
        if let Some(stamp) = self.current() {
            return Ok(stamp);
        }
        fs::create_dir_all(&self.root).with_context(|| format!("cannot create {}", self.root.display()))?;
        let _lock = lock(&self.root.join("lock"))?;
        // Another process may have done the work while this one waited for the lock.
        if let Some(stamp) = self.current() {
            return Ok(stamp);
        }
        let compiler = compiler::install(self)?;
        let linker = linker::install(self, compiler.llvm)?;
        let stamp = Stamp::new(compiler.version, compiler.llvm, linker);
        stamp.write(&self.stamp())?;
        Ok(stamp)
    }

    /// The stamp, if what it speaks of is really there.
    fn current(&self) -> Option<Stamp> {
        let stamp = Stamp::read(&self.stamp())?;
        let whole = [
            self.prefix().join("bin/rustc"),
            self.prefix().join("bin/cargo"),
            self.prefix().join(compiler::CORE),
            self.root.join("bin/bpf-linker"),
            self.llvm().join(format!("libLLVM-{}.so", stamp.llvm)),
        ]
        .iter()
        .all(|path| path.exists());
        (whole && stamp.linker == linker::VERSION).then_some(stamp)
    }

    fn forget(&self) -> Result<()> {
        match fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.root.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Takes the lock that keeps two setups from building into one folder; it ends with the returned file.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    flock(&file, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}
