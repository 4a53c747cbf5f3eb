//! The example on Pingora: a workspace of its own, so that Pingora's dependencies are none of the ordinary build's. Here it
//! is checked like the rest, built, and put in front of a real daemon.

use super::tally::{self, Tally};
use crate::exec;
use std::process::Command;

/// The example's manifest.
const MANIFEST: &str = "governor-user/client/examples/pingora/Cargo.toml";

/// Checks, builds and runs it.
pub(super) fn run() -> Tally {
    let folder = match exec::target_folder() {
        Ok(target) => target.join("pingora"),
        Err(error) => {
            super::say(format_args!("{error:#}"));
            return Tally::FAILED;
        }
    };
    let own = |command: &str| {
        let mut cargo = exec::cargo();
        cargo.args([command, "--manifest-path", MANIFEST]);
        cargo
    };
    // Not `--locked`: what the client itself depends on moves with this workspace, not with that one's lock file.
    let built = |mut cargo: Command, more: &[&str]| tally::check(cargo.arg("--target-dir").arg(&folder).args(more));
    let mut total = tally::check(own("fmt").arg("--check"));
    total = total.plus(built(own("clippy"), &["--", "-D", "warnings"]));
    total = total.plus(built(own("build"), &[]));
    if total.failed > 0 {
        return total;
    }
    let mut test = exec::cargo();
    test.args(["test", "--package", "governor-tests", "--test", "pingora"]);
    test.env("GOVERNOR_PINGORA", folder.join("debug/governor-pingora-example"));
    total.plus(tally::tests(&mut test))
}
