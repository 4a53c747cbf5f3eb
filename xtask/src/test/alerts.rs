//! The alert rules against promtool: that Prometheus can read them, and that each fires on its trouble and on nothing else.

use super::tally::{self, Tally};
use crate::exec;
use std::process::Command;

const RULES: &str = "governor-user/dist/alerts.yml";
const TESTS: &str = "tests/alerts/alerts_test.yml";

/// Runs both; skipped where there is no promtool.
pub(super) fn run() -> Tally {
    if exec::find("promtool").is_none() {
        super::say(format_args!("SKIP: promtool (package prometheus) is not installed"));
        return Tally { skipped: 1, ..Tally::default() };
    }
    let promtool = |verb: &str, file: &str| {
        let mut command = Command::new("promtool");
        command.current_dir(exec::root()).args([verb, "rules", file]);
        let tally = tally::check(&mut command);
        Tally { passed: u64::from(tally.failed == 0), ..tally }
    };
    promtool("check", RULES).plus(promtool("test", TESTS))
}
