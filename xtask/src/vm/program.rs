//! The program that runs in the machines: the kernel tests and what they start, linked statically, because the
//! machines have no libraries. Built once for all of them, in a target folder of its own.

use crate::exec;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Named so that nothing but the tests gets the flags: without a target, build scripts would be linked statically too.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What was built.
#[derive(Debug)]
pub(super) struct Program {
    /// The kernel tests.
    pub(super) tests: PathBuf,
    /// Programs that lie one folder above them, where the tests look for them.
    pub(super) beside: Vec<PathBuf>,
}

/// Builds into `target`.
pub(super) fn build(target: &Path) -> Result<Program> {
    let object = object()?;
    let mut command = exec::cargo();
    command
        .args(["build", "--package", "governor-tests", "--package", "governor-user", "--bins", "--test", "kernel"])
        .args(["--target", TARGET, "--config", "profile.dev.strip='debuginfo'"])
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static")
        .env("GOVERNOR_EBPF_OBJECT", object);
    let mut tests = None;
    let mut beside = Vec::new();
    for message in messages(&mut command)? {
        let Some(executable) = message["executable"].as_str().map(PathBuf::from) else { continue };
        if message["target"]["kind"][0] == "test" {
            tests = Some(executable);
        } else {
            beside.push(executable);
        }
    }
    Ok(Program { tests: tests.context("cargo built no kernel tests")?, beside })
}

/// The eBPF object of the ordinary build, so that it is not built a second time: what the caller gave, else what the
/// build script of governor-user left.
fn object() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("GOVERNOR_EBPF_OBJECT").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    let mut command = exec::cargo();
    command.args(["build", "--workspace", "--lib"]);
    let out = messages(&mut command)?
        .into_iter()
        .filter(|message| message["reason"] == "build-script-executed")
        .filter(|message| message["package_id"].as_str().is_some_and(|id| id.contains("/governor-user#")))
        .find_map(|message| message["out_dir"].as_str().map(PathBuf::from))
        .context("cargo names no output folder of governor-user")?;
    let object = out.join("governor-ebpf");
    if object.is_file() { Ok(object) } else { bail!("governor-user left no eBPF object in {}", out.display()) }
}

/// Runs cargo and returns what it says about its results; errors and warnings pass through.
fn messages(command: &mut std::process::Command) -> Result<Vec<Value>> {
    command.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
