//! The program that runs in the machines: the kernel tests and what they start. It is the one of the ordinary build,
//! brought along with the libraries it is linked to, because a second, static build of everything takes minutes.

use crate::exec;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;

/// What was built.
#[derive(Debug)]
pub(super) struct Program {
    /// The kernel tests.
    pub(super) tests: PathBuf,
    /// Programs that lie one folder above them, where the tests look for them.
    pub(super) beside: Vec<PathBuf>,
}

/// Builds what is not there yet. Names the whole workspace, as every step of `cargo xtask test` does, so that cargo
/// resolves the same features and compiles nothing twice.
pub(super) fn build() -> Result<Program> {
    let mut command = exec::cargo();
    command
        .args(["build", "--quiet", "--workspace", "--bins", "--test", "kernel"])
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let mut tests = None;
    let mut beside = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let Some(executable) = message["executable"].as_str().map(PathBuf::from) else { continue };
        if message["target"]["kind"][0] == "test" {
            tests = Some(executable);
        } else if !executable.ends_with("xtask") {
            beside.push(executable);
        }
    }
    Ok(Program { tests: tests.context("cargo built no kernel tests")?, beside })
}
