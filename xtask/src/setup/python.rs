//! The official Python clients that the end-to-end tests put in front of the gateway, in a virtual environment below
//! `target/tools`: exact versions, and nothing outside the build folder.

use super::{Tools, step};
use crate::exec;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

/// The packages and their versions, one a line.
const REQUIREMENTS: &str = "tests/e2e/official/requirements.txt";

/// Makes the environment when it is missing or has other versions.
///
/// # Errors
/// It cannot be made: the tests that use it would fail, minutes later.
pub(super) fn ensure(tools: &Tools) -> Result<()> {
    if is_current(tools) {
        return Ok(());
    }
    fs::create_dir_all(&tools.root).with_context(|| format!("cannot create {}", tools.root.display()))?;
    let _lock = super::lock(&tools.root.join("python.lock"))?;
    if is_current(tools) {
        return Ok(());
    }
    step::timed(format_args!("install the official Python clients"), || install(tools))
        .context("the end-to-end tests need the official Python clients")
}

fn folder(tools: &Tools) -> PathBuf {
    tools.root.join("python")
}

/// The copy of the requirements that is written last says that they are all there.
fn is_current(tools: &Tools) -> bool {
    let (wanted, have) = (exec::root().join(REQUIREMENTS), folder(tools).join("requirements.txt"));
    match (fs::read(wanted), fs::read(have)) {
        (Ok(wanted), Ok(have)) => wanted == have,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn install(tools: &Tools) -> Result<()> {
    // Made beside the old one and then put in its place, so that tests that run meanwhile miss it for no time.
    let fresh = tools.root.join("python.new");
    step::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&fresh))
        .context("cannot make a virtual environment")?;
    let requirements = exec::root().join(REQUIREMENTS);
    step::output(
        Command::new(fresh.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"])
            .args(["--only-binary", ":all:", "--requirement"])
            .arg(&requirements),
    )?;
    fs::copy(&requirements, fresh.join("requirements.txt")).context("cannot note what is installed")?;
    let (place, old) = (folder(tools), tools.root.join("python.old"));
    if place.exists() {
        fs::rename(&place, &old).context("cannot move the old environment away")?;
    }
    fs::rename(&fresh, &place).context("cannot put the new environment in its place")?;
    match fs::remove_dir_all(&old) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("cannot remove the old environment"),
        Ok(()) | Err(_) => Ok(()),
    }
}
