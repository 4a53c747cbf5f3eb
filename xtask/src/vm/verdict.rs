//! What became of a series: booted and judged against what is expected of it, or not tested and why. Pure.

use super::console::Said;
use super::emulator::End;
use super::series::{Series, Skips};
use serde::Serialize;

/// One row of the matrix.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) series: &'static str,
    #[serde(flatten)]
    pub(super) fate: Fate,
}

/// Whether it ran.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Fate {
    /// A machine was started.
    Tested(Box<Tested>),
    /// None was, so nothing is known about the series.
    NotTested { reason: String },
}

/// A machine that was started.
#[derive(Debug, Serialize)]
pub(super) struct Tested {
    /// Debian version of the kernel.
    pub(super) version: String,
    /// From power-on to power-off.
    pub(super) seconds: f64,
    /// What was wrong apart from failed tests; empty and no failed test: it passed.
    pub(super) complaints: Vec<String>,
    pub(super) said: Said,
}

impl Tested {
    /// Failed tests and everything else that is wrong.
    pub(super) fn failures(&self) -> usize {
        self.said.failed.len() + self.complaints.len()
    }
}

/// What is wrong with a machine's run, apart from the tests that say so themselves.
pub(super) fn complaints(series: &Series, said: &Said, end: End) -> Vec<String> {
    let mut wrong = Vec::new();
    let during = said.unfinished.as_ref().map_or_else(String::new, |test| format!(", during {test}"));
    if end == End::TimedOut {
        wrong.push(format!("it fell silent and was killed{during}"));
    }
    if said.kernel.is_none() {
        wrong.push("it did not start".to_owned());
        return wrong;
    }
    match said.exit {
        None if end == End::Stopped => wrong.push(format!("it died before the tests ended{during}")),
        Some(code) if code != 0 && said.failed.is_empty() => wrong.push(format!("the tests ended with status {code}")),
        Some(0) if said.passed == 0 => wrong.push("no test ran".to_owned()),
        None | Some(_) => {}
    }
    match said.tier.as_deref() {
        Some(tier) if tier != series.tier => {
            wrong.push(format!("it reached the {tier} tier, not the {} tier", series.tier));
        }
        None | Some(_) => {}
    }
    if series.skips == Skips::Fail {
        wrong.extend(said.skipped.iter().map(|(test, reason)| format!("{test} was skipped: {reason}")));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::series::ALL;
    use super::*;

    fn said() -> Said {
        Said {
            kernel: Some("6.1.0".into()),
            exit: Some(0),
            passed: 3,
            tier: Some("trampoline".into()),
            ..Said::default()
        }
    }

    #[test]
    fn a_run_as_expected_has_no_complaint() {
        assert_eq!(complaints(&ALL[0], &said(), End::Stopped), Vec::<String>::new());
        let failed = Said { exit: Some(101), failed: vec!["a".into()], ..said() };
        assert_eq!(complaints(&ALL[0], &failed, End::Stopped), Vec::<String>::new());
    }

    #[test]
    fn what_a_machine_did_not_say_is_never_taken_for_success() {
        let complaints = |said: Said, end| complaints(&ALL[0], &said, end).join("; ");
        assert_eq!(complaints(Said::default(), End::Stopped), "it did not start");
        assert_eq!(complaints(Said { exit: None, ..said() }, End::Stopped), "it died before the tests ended");
        assert_eq!(
            complaints(Said { exit: None, unfinished: Some("a".into()), ..said() }, End::TimedOut),
            "it fell silent and was killed, during a"
        );
        assert_eq!(
            complaints(Said { exit: Some(127), passed: 0, ..said() }, End::Stopped),
            "the tests ended with status 127"
        );
        assert_eq!(complaints(Said { passed: 0, ..said() }, End::Stopped), "no test ran");
        assert_eq!(
            complaints(Said { tier: Some("netlink".into()), ..said() }, End::Stopped),
            "it reached the netlink tier, not the trampoline tier"
        );
    }

    #[test]
    fn skips_are_expected_only_where_the_table_says_so() {
        let skipped =
            |tier: &str| Said { tier: Some(tier.into()), skipped: vec![("scale".into(), "no BTF".into())], ..said() };
        assert_eq!(complaints(&ALL[0], &skipped("trampoline"), End::Stopped), ["scale was skipped: no BTF"]);
        assert!(complaints(&ALL[3], &skipped("netlink"), End::Stopped).is_empty());
    }
}
