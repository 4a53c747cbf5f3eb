//! `governorctl doctor`: what is wrong and what to do about it. The daemon checks itself; the machine is checked here,
//! so that there is an answer when the daemon is what is wrong.
//!
//! Without a daemon the local findings are shown and the exit code is 3, not 1: a script that asks whether the daemon
//! is there must get the same answer from every subcommand.

use crate::cli::answer::{Answer, Error, Exit};
use crate::cli::node::local;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Style, printable, wrapped};
use governor_api::{Check, CheckStatus};

/// Checks and shows. A failed check makes the answer negative.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
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
        hook: None,
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
        hook: None,
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
        let mut line = |line: String| text.push_str(&wrapped(&line, width + 8, style.width()));
        line(format!("{status}  {name:width$}  {}", printable(&check.detail)));
        for (hook, tier, reason) in refused(check) {
            line(format!("{:4}  {:width$}  tried {hook} ({tier}): {reason}", "", ""));
        }
        if let Some(fix) = &check.fix {
            line(format!("{:4}  {:width$}  → {}", "", "", printable(fix)));
        }
    }
    text
}

/// Ways to see an event that were tried and do not work here, best first. Neighbours with the same reason share a line.
fn refused(check: &Check) -> Vec<(String, &'static str, String)> {
    let mut lines: Vec<(String, &'static str, String)> = Vec::new();
    let candidates = check.hook.iter().flat_map(|hook| &hook.candidates);
    for candidate in candidates.filter(|candidate| !candidate.fires) {
        let (hook, tier) = (printable(&candidate.hook), candidate.tier.as_str());
        let reason = printable(&candidate.reason);
        match lines.last_mut().filter(|(_, of, why)| *of == tier && *why == reason) {
            Some((hooks, ..)) => hooks.push_str(&format!(", {hook}")),
            None => lines.push((hook, tier, reason)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{HookCandidate, HookView, Tier};

    fn check(name: &str, status: CheckStatus, fix: Option<&str>) -> Check {
        Check { name: name.into(), status, detail: "as found".into(), fix: fix.map(str::to_owned), hook: None }
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
    fn a_hook_comes_with_everything_that_was_tried() {
        let tried = |hook: &str, tier, reason: &str| HookCandidate {
            hook: hook.into(),
            tier,
            fires: reason.is_empty(),
            reason: reason.into(),
        };
        let refused = "the kernel refuses to load it: EPERM; lockdown=integrity";
        let hook = |candidates: Vec<HookCandidate>| HookView { candidates, ..HookView::default() };
        let checks = [
            Check {
                hook: Some(hook(vec![
                    tried("fexit/inet_csk_complete_hashdance", Tier::Trampoline, refused),
                    tried("fexit/inet_csk_reqsk_queue_add", Tier::Trampoline, refused),
                    tried("tp_btf/sk_data_ready", Tier::Tracepoint, ""),
                ])),
                ..check("hook enqueue", CheckStatus::Ok, None)
            },
            Check {
                hook: Some(hook(vec![
                    tried("fentry/__inet_accept", Tier::Trampoline, refused),
                    tried("fentry/security_sock_graft", Tier::Trampoline, "it is not in the kernel's BTF"),
                ])),
                ..check("hook accept", CheckStatus::Warn, None)
            },
        ];
        insta::assert_snapshot!(table(&checks, Style::PLAIN), @"
        ok    hook enqueue  as found
                            tried fexit/inet_csk_complete_hashdance, fexit/inet_csk_reqsk_queue_add (trampoline): the kernel refuses to load it: EPERM; lockdown=integrity
        warn  hook accept   as found
                            tried fentry/__inet_accept (trampoline): the kernel refuses to load it: EPERM; lockdown=integrity
                            tried fentry/security_sock_graft (trampoline): it is not in the kernel's BTF
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
