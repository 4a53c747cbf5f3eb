//! Builds governor-ebpf and leaves the object where `loader` embeds it: `OUT_DIR/governor-ebpf`.
//!
//! The BPF build needs an environment that must not reach any other crate (a compiler with a `core` for BPF, one
//! feature gate of it, a library path for its LLVM). So this script runs itself a second time with that environment;
//! the second run does the build. A prebuilt object in `GOVERNOR_EBPF_OBJECT` skips all of it.

use anyhow::{Context as _, Result, bail};
use aya_build::{Package, Toolchain};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Path of an object to embed instead of building one.
const OBJECT: &str = "GOVERNOR_EBPF_OBJECT";
/// Folder that `cargo xtask setup` filled; set by `.cargo/config.toml`.
const TOOLS: &str = "GOVERNOR_TOOLS";
/// Marks the second run and names the toolchain's prefix.
const PREFIX: &str = "GOVERNOR_EBPF_PREFIX";
/// What aya-build says when there is no rustup: expected here, so not worth a warning.
const NO_RUSTUP: &str = "cargo:warning=which(rustup)=";

#[expect(clippy::print_stderr, reason = "a build script has nowhere else to say what is wrong")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Not by returning the error: it would bring a backtrace that buries the one sentence to read.
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    if let Some(prefix) = env::var_os(PREFIX) {
        return build(&prefix);
    }
    println!("cargo:rerun-if-env-changed={OBJECT}");
    println!("cargo:rerun-if-env-changed={TOOLS}");
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(object) = env::var_os(OBJECT).filter(|path| !path.is_empty()) {
        return embed(Path::new(&object));
    }
    let tools = env::var_os(TOOLS).map_or_else(|| PathBuf::from("../../target/tools"), PathBuf::from);
    let stamp = tools.join("stamp.json");
    if !stamp.exists() {
        bail!("the eBPF toolchain is not in {}: run `cargo xtask setup`", tools.display());
    }
    for path in [&stamp, Path::new("../../governor-common"), Path::new("../../Cargo.lock")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    rerun_with(&tools)
}

/// The first run's end: starts this program again in the environment of the BPF build and passes on what it says.
fn rerun_with(tools: &Path) -> Result<()> {
    let tools = fs::canonicalize(tools).with_context(|| format!("cannot resolve {}", tools.display()))?;
    let prefix = tools.join("ebpf/usr");
    let library = prefix.join("lib").join(format!("{}-linux-gnu", env::consts::ARCH));
    let mut command = Command::new(env::current_exe().context("a build script has a path")?);
    command
        .env(PREFIX, &prefix)
        // Feature gates for these two crates alone. The package's own name by itself would make aya-build ask for
        // build-std, which needs rust-src.
        .env("RUSTC_BOOTSTRAP", "aya_ebpf,governor_ebpf")
        .env("PATH", prepend(&[tools.join("bin"), prefix.join("bin")], "PATH")?)
        .env("LD_LIBRARY_PATH", prepend(&[tools.join("lib"), library], "LD_LIBRARY_PATH")?)
        .env("CARGO_TERM_QUIET", "true")
        .stdout(Stdio::piped());
    let output =
        command.spawn().and_then(std::process::Child::wait_with_output).context("cannot start the BPF build")?;
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with(NO_RUSTUP)) {
        println!("{line}");
    }
    if !output.status.success() {
        bail!("building governor-ebpf failed; if the toolchain is to blame, run `cargo xtask setup --force`");
    }
    Ok(())
}

/// The second run.
fn build(prefix: &OsString) -> Result<()> {
    let prefix = prefix.to_str().context("the workspace's path is not UTF-8, and rustup wants it so")?;
    let package = Package { name: "governor-ebpf", root_dir: "../../governor-ebpf", ..Package::default() };
    aya_build::build_ebpf([package], Toolchain::Custom(prefix))
}

fn embed(object: &Path) -> Result<()> {
    println!("cargo:rerun-if-changed={}", object.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?).join("governor-ebpf");
    fs::copy(object, &out).with_context(|| format!("cannot read {OBJECT}={}", object.display()))?;
    Ok(())
}

fn prepend(folders: &[PathBuf], variable: &str) -> Result<OsString> {
    let rest = env::var_os(variable).unwrap_or_default();
    let all = folders.iter().cloned().chain(env::split_paths(&rest).filter(|path| !path.as_os_str().is_empty()));
    env::join_paths(all).with_context(|| format!("a folder of {variable} holds a colon"))
}
