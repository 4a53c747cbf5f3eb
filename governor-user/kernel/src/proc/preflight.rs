//! What stands in the way of a tier on this machine, in one line an operator can act on. Looks before anything is
//! loaded, because the kernel's own error (often a memory-lock limit or a bare EPERM) blames something else. It never
//! decides by a kernel version: what looks possible is then proved by the self-test.

use rustix::thread::{CapabilitySet, capabilities};
use std::{fs, path::Path};

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Why BTF tracepoints cannot work here; `None` when nothing is known to prevent them.
pub fn tracepoint_obstacle() -> Option<String> {
    // Not mounted or not compiled in: then nothing is locked down.
    let lockdown = fs::read_to_string(LOCKDOWN).unwrap_or_default();
    obstacle(Path::new(KERNEL_BTF).exists(), &lockdown, effective())
}

fn obstacle(has_btf: bool, lockdown_file: &str, effective: CapabilitySet) -> Option<String> {
    if !has_btf {
        return Some(format!("no kernel BTF ({KERNEL_BTF} is missing)"));
    }
    if lockdown(lockdown_file) == Some("confidentiality") {
        return Some("lockdown=confidentiality forbids reading kernel memory".to_owned());
    }
    missing(effective, &[(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")])
}

/// Why other network namespaces cannot be looked into; `None` when the rights are there.
pub fn namespaces_obstacle() -> Option<String> {
    let effective = effective();
    let needed = [(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"), (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE")];
    let absent: Vec<_> = needed.iter().filter(|(flag, _)| !effective.contains(*flag)).map(|(_, name)| *name).collect();
    (!absent.is_empty()).then(|| format!("missing {}", absent.join(" and ")))
}

/// Why descriptors of other users' processes cannot be looked at or duplicated, in words that name the rights.
pub fn holders_obstacle() -> String {
    holders(effective())
}

fn holders(effective: CapabilitySet) -> String {
    let needed =
        [(CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"), (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH")];
    // CAP_DAC_OVERRIDE includes the second.
    let has = |flag| {
        effective.contains(flag)
            || (flag == CapabilitySet::DAC_READ_SEARCH && effective.contains(CapabilitySet::DAC_OVERRIDE))
    };
    let absent: Vec<_> = needed.iter().filter(|(flag, _)| !has(*flag)).map(|(_, name)| *name).collect();
    if absent.is_empty() {
        "the rights are there: a security module, or a process with more rights, refuses".to_owned()
    } else {
        format!("missing {}", absent.join(" and "))
    }
}

fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// `CAP_SYS_ADMIN` includes the two that were split off from it.
fn missing(effective: CapabilitySet, needed: &[(CapabilitySet, &str)]) -> Option<String> {
    if effective.contains(CapabilitySet::SYS_ADMIN) {
        return None;
    }
    let absent: Vec<_> = needed.iter().filter(|(flag, _)| !effective.contains(*flag)).map(|(_, name)| *name).collect();
    (!absent.is_empty()).then(|| format!("missing {}", absent.join(" and ")))
}

/// The chosen word of `none [integrity] confidentiality`.
fn lockdown(line: &str) -> Option<&str> {
    line.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracketed_word_is_the_lockdown_in_force() {
        assert_eq!(lockdown("none integrity [confidentiality]\n"), Some("confidentiality"));
        assert_eq!(lockdown("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(lockdown("[none] integrity confidentiality\n"), Some("none"));
        assert_eq!(lockdown(""), None);
    }

    #[test]
    fn each_rung_of_the_ladder_has_its_own_reason() {
        let all = CapabilitySet::BPF | CapabilitySet::PERFMON;
        for (btf, lockdown, rights, expected) in [
            (true, "none integrity [confidentiality]\n", all, Some("lockdown=confidentiality")),
            (true, "none [integrity] confidentiality\n", all, None),
            (true, "", all, None),
            (false, "[none] integrity confidentiality\n", all, Some("no kernel BTF")),
            (true, "[none] integrity confidentiality\n", CapabilitySet::empty(), Some("missing CAP_BPF")),
        ] {
            let reason = obstacle(btf, lockdown, rights);
            match expected {
                Some(words) => assert!(reason.as_ref().is_some_and(|reason| reason.starts_with(words)), "{reason:?}"),
                None => assert_eq!(reason, None, "{lockdown}"),
            }
        }
    }

    #[test]
    fn each_right_that_holders_need_is_named() {
        let (ptrace, search) = (CapabilitySet::SYS_PTRACE, CapabilitySet::DAC_READ_SEARCH);
        assert_eq!(holders(CapabilitySet::empty()), "missing CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
        assert_eq!(holders(ptrace), "missing CAP_DAC_READ_SEARCH");
        assert_eq!(holders(search), "missing CAP_SYS_PTRACE");
        assert_eq!(holders(CapabilitySet::DAC_OVERRIDE), "missing CAP_SYS_PTRACE");
        assert!(holders(ptrace | CapabilitySet::DAC_OVERRIDE).contains("security module"));
    }

    #[test]
    fn the_missing_capability_is_named() {
        let needed = [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
        assert_eq!(missing(CapabilitySet::empty(), &needed).as_deref(), Some("missing CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing(CapabilitySet::BPF, &needed).as_deref(), Some("missing CAP_PERFMON"));
        assert_eq!(missing(CapabilitySet::BPF | CapabilitySet::PERFMON, &needed), None);
        assert_eq!(missing(CapabilitySet::SYS_ADMIN, &needed), None);
    }
}
