//! `governorctl doctor`: what is wrong and what to do about it. The daemon checks itself; the machine is checked here,
//! so that there is an answer when the daemon is what is wrong.
//!
//! Without a daemon the local findings are shown and the exit code is 3, not 1: a script that asks whether the daemon
//! is there must get the same answer from every subcommand.

use super::answer::{Answer, Error, Exit};
use super::local;
use super::render::{Style, printable};
use super::run::Ctl;
use crate::control::api::{Check, CheckStatus};

/// Checks and shows. A failed check makes the answer negative.
pub(super) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let (checks, exit) = match ctl.client.get::<Vec<Check>>("/v1/doctor") {
        Ok(checks) => with_daemon(checks, local::machine()),
        Err(error) if error.exit() == Exit::Unreachable => {
            (without_daemon(&error, local::rights(), local::machine()), Exit::Unreachable)
        }
        Err(error) => return Err(error),
    };
    let answer = ctl.show(&checks, |checks, style| table(checks, *style));
    Ok(Answer { exit, ..answer })
}

/// The daemon's findings between its presence and the machine's. Rights are not looked at: the daemon reports its own.
fn with_daemon(checks: Vec<Check>, machine: Vec<Check>) -> (Vec<Check>, Exit) {
    let daemon = Check {
        name: "daemon".into(),
        status: CheckStatus::Ok,
        detail: "governord answers on its control socket".into(),
        fix: None,
    };
    let all: Vec<Check> = [daemon].into_iter().chain(checks).chain(machine).collect();
    let failed = all.iter().any(|check| check.status == CheckStatus::Fail);
    (all, if failed { Exit::Negative } else { Exit::Ok })
}

fn without_daemon(error: &Error, rights: Check, machine: Vec<Check>) -> Vec<Check> {
    let daemon = Check {
        name: "daemon".into(),
        status: CheckStatus::Fail,
        detail: error.to_string(),
        fix: Some("start governord, or name its control socket with --socket".into()),
    };
    [daemon, rights].into_iter().chain(machine).collect()
}

fn table(checks: &[Check], style: Style) -> String {
    let mut text = String::new();
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    for check in checks {
        let status = match check.status {
            CheckStatus::Ok => style.green("ok  "),
            CheckStatus::Warn => style.yellow("warn"),
            CheckStatus::Fail => style.red("FAIL"),
        };
        let name = printable(&check.name);
        text.push_str(&format!("{status}  {name:width$}  {}\n", printable(&check.detail)));
        if let Some(fix) = &check.fix {
            text.push_str(&format!("{:4}  {:width$}  → {}\n", "", "", printable(fix)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, status: CheckStatus, fix: Option<&str>) -> Check {
        Check { name: name.into(), status, detail: "as found".into(), fix: fix.map(str::to_owned) }
    }

    #[test]
    fn a_finding_comes_with_its_remedy() {
        let checks = [
            check("kernel BTF", CheckStatus::Ok, None),
            check("lockdown", CheckStatus::Warn, Some("boot with lockdown=integrity")),
            check("hook enqueue", CheckStatus::Fail, Some("see the log")),
        ];
        insta::assert_snapshot!(table(&checks, Style::PLAIN), @"
        ok    kernel BTF    as found
        warn  lockdown      as found
                            → boot with lockdown=integrity
        FAIL  hook enqueue  as found
                            → see the log
        ");
    }

    #[test]
    fn a_failed_check_makes_the_answer_negative_and_a_warning_does_not() {
        assert_eq!(with_daemon(vec![check("a", CheckStatus::Warn, None)], Vec::new()).1, Exit::Ok);
        assert_eq!(with_daemon(vec![check("a", CheckStatus::Fail, None)], Vec::new()).1, Exit::Negative);
    }

    #[test]
    fn without_a_daemon_the_first_finding_says_so() {
        let error = Error::Silent { socket: "/run/x.sock".into(), seconds: 10 };
        let rights = check("rights", CheckStatus::Ok, None);
        let checks = without_daemon(&error, rights, vec![check("kernel BTF", CheckStatus::Ok, None)]);
        assert_eq!(checks[0].status, CheckStatus::Fail);
        assert!(checks[0].detail.contains("/run/x.sock"));
        assert_eq!(checks.len(), 3);
    }
}
