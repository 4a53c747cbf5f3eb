//! Licences, sources and duplicates of all dependencies, by cargo-deny: the one found, else one built into the tools
//! folder. Where neither can be had (no network, no registry) the check is skipped and says so.

use super::tally::{self, Tally};
use crate::exec;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs the checks of `deny.toml`. Advisories are left out: they need a database from the network, and change without
/// any change here.
pub(super) fn run() -> Tally {
    let Some(program) = program() else {
        super::say(format_args!("SKIP: cargo-deny is not installed and cannot be built here"));
        return Tally { skipped: 1, ..Tally::default() };
    };
    tally::check(Command::new(program).current_dir(exec::root()).args(["check", "bans", "licenses", "sources"]))
}

fn program() -> Option<PathBuf> {
    let found = Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some("cargo-deny".into());
    }
    let root = exec::root().join("target/tools/deny");
    let built = root.join("bin/cargo-deny");
    if !built.is_file() {
        let mut install = exec::cargo();
        install.args(["install", "--locked", "--root"]).arg(&root).arg("cargo-deny");
        exec::run(&mut install).ok()?;
    }
    Some(built)
}
