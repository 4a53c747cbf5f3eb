//! What a test machine said, line by line: the frame that `init.sh` puts around the tests (`VM …`), the test runner's
//! results, skips, and what the report test prints about tiers and hooks. Pure.

use serde::Serialize;
use std::collections::BTreeSet;

/// How one event is seen in a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hook {
    pub(super) event: String,
    pub(super) hook: String,
    /// The tier of what fires; `None`: nothing does.
    pub(super) tier: Option<String>,
    /// What it cannot see; where nothing fires, what is lost.
    pub(super) note: String,
}

/// A way to see an event that does not work in a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Tried {
    pub(super) event: String,
    pub(super) hook: String,
    pub(super) reason: String,
}

/// Everything read from one console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Said {
    /// `uname -r` and `-v`; `None`: it did not get as far as the tests.
    pub(super) kernel: Option<String>,
    /// Exit status of the test runner; `None`: it did not end.
    pub(super) exit: Option<i32>,
    /// The tier that the governor chose.
    pub(super) tier: Option<String>,
    /// Why it is not a better one.
    pub(super) degraded: Vec<String>,
    pub(super) hooks: Vec<Hook>,
    pub(super) tried: Vec<Tried>,
    /// The test that had begun and not ended when the console did.
    pub(super) unfinished: Option<String>,
    /// Tests that ended well, those that had nothing to test included.
    pub(super) passed: u64,
    pub(super) failed: Vec<String>,
    /// Reasons, by the test that gave them.
    pub(super) skipped: Vec<(String, String)>,
}

/// Reads a whole console.
pub(super) fn read(console: &str) -> Said {
    let mut said = Said::default();
    let mut section = "";
    for line in console.lines().map(|line| line.trim_end_matches('\r')) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            section = name;
        } else {
            said.line(line, section);
        }
    }
    said
}

impl Said {
    /// Tests that ended well and tested something.
    pub(super) fn tested(&self) -> usize {
        let passed = usize::try_from(self.passed).unwrap_or(usize::MAX);
        passed.saturating_sub(self.untested())
    }

    /// Tests that had nothing to test.
    pub(super) fn untested(&self) -> usize {
        let tests: BTreeSet<&str> = self.skipped.iter().map(|(test, _)| test.as_str()).collect();
        tests.len()
    }

    fn line(&mut self, line: &str, section: &str) {
        let Some((word, rest)) = line.split_once([' ', '\t']) else { return };
        match word {
            "VM" => self.frame(rest),
            "test" => self.result(rest),
            "SKIP:" => self.skipped.push((section.to_owned(), rest.to_owned())),
            "TIER" => self.tier = Some(rest.to_owned()),
            "DEGRADED" => self.degraded.push(rest.to_owned()),
            "HOOK" => self.hooks.extend(hook(rest)),
            "TRIED" => self.tried.extend(tried(rest)),
            _ => {}
        }
    }

    fn frame(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("KERNEL", name)) => self.kernel = Some(name.to_owned()),
            Some(("EXIT", code)) => self.exit = code.parse().ok(),
            _ => {}
        }
    }

    /// `name ... ok`, `name ... FAILED`, or the summary `result: …`, which says nothing new.
    fn result(&mut self, line: &str) {
        self.unfinished = None;
        match line.split_once(" ... ") {
            Some((name, "")) => self.unfinished = Some(name.to_owned()),
            Some((_, "ok")) => self.passed += 1,
            Some((name, "FAILED")) => self.failed.push(name.to_owned()),
            _ => {}
        }
    }
}

/// Event, hook, tier or `no`, note; separated by tabs.
fn hook(line: &str) -> Option<Hook> {
    let mut words = line.splitn(4, '\t').map(str::to_owned);
    let (event, hook, tier) = (words.next()?, words.next()?, words.next()?);
    let tier = Some(tier).filter(|tier| tier != "no");
    Some(Hook { event, hook, tier, note: words.next().unwrap_or_default() })
}

/// Event, hook, reason; separated by tabs.
fn tried(line: &str) -> Option<Tried> {
    let mut words = line.splitn(3, '\t').map(str::to_owned);
    Some(Tried { event: words.next()?, hook: words.next()?, reason: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    1.2] some driver: hello\r
VM KERNEL 6.12.118+deb13-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.12.118-1\r
running 3 tests\r
test listeners::depth ... ok\r
test report::hooks ... ok\r
test scale::many ... FAILED\r
successes:\r
---- listeners::depth stdout ----\r
SKIP: no private network namespace or cgroup: x\r
---- report::hooks stdout ----\r
TIER tracepoint\r
DEGRADED trampoline: not there\r
HOOK\tenqueue\ttp_btf/sk_data_ready\ttracepoint\t\r
HOOK\taccept\tfentry/__inet_accept\tno\tthe sojourn\r
TRIED\taccept\tfentry/__inet_accept\trefused with EPERM\r
HOOK nonsense\r
---- scale::many stdout ----\r
thread panicked\r
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.01s\r
VM EXIT 101\r
";

    #[test]
    fn a_whole_console_is_read() {
        let said = read(CONSOLE);
        assert!(said.kernel.as_ref().unwrap().ends_with("Debian 6.12.118-1"));
        assert_eq!((said.exit, said.passed), (Some(101), 2));
        assert_eq!((said.tested(), said.untested()), (1, 1));
        assert_eq!(said.failed, ["scale::many"]);
        assert_eq!(said.tier.as_deref(), Some("tracepoint"));
        assert_eq!(said.degraded, ["trampoline: not there"]);
        assert_eq!(
            said.skipped,
            [("listeners::depth".to_owned(), "no private network namespace or cgroup: x".to_owned())]
        );
        let enqueue = Hook {
            event: "enqueue".into(),
            hook: "tp_btf/sk_data_ready".into(),
            tier: Some("tracepoint".into()),
            note: String::new(),
        };
        assert_eq!((said.hooks.len(), &said.hooks[0]), (2, &enqueue));
        assert_eq!((said.hooks[1].tier.as_deref(), said.hooks[1].note.as_str()), (None, "the sojourn"));
        assert_eq!((said.tried.len(), said.tried[0].reason.as_str()), (1, "refused with EPERM"));
    }

    #[test]
    fn a_machine_that_died_has_no_exit() {
        let said = read("VM KERNEL 6.1.0\ntest a ... ok\ntest b ... ");
        assert_eq!((said.exit, said.passed), (None, 1));
        assert_eq!(said.unfinished.as_deref(), Some("b"));
        assert_eq!(read(CONSOLE).unfinished, None);
        assert_eq!(read("Kernel panic - not syncing").kernel, None);
    }
}
