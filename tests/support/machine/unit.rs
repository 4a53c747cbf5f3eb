//! What a systemd unit lets its service do: the system calls that its filter lines leave over, in systemd's own order of
//! evaluation, and the rights, namespaces and address families it names. Reads text; applies nothing (see `confine.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Groups of system calls by name (`@system-service`), with their members; a member may be a group.
pub type Groups = BTreeMap<String, Vec<String>>;

/// Always allowed where calls are listed that are allowed.
const DEFAULT: &str = "@default";

/// What a unit leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Names of the system calls that pass.
    pub calls: BTreeSet<String>,
    /// The bounding set: `CAP_BPF` …
    pub capabilities: BTreeSet<String>,
    /// Kinds of namespaces that may be made or entered: `net` …
    pub namespaces: BTreeSet<String>,
    /// Families of sockets that may be made: `AF_UNIX` …
    pub families: BTreeSet<String>,
    /// Whether programs it starts may gain rights.
    pub no_new_privileges: bool,
}

impl Confinement {
    /// Of a unit's text.
    ///
    /// # Errors
    /// A group that is not among `groups`, or a unit without one of the settings: then it leaves everything open.
    pub fn of(unit: &str, groups: &Groups) -> Result<Self, String> {
        let words = |key: &str| settings(unit, key).flat_map(str::split_whitespace).map(str::to_owned).collect();
        let confinement = Self {
            calls: calls(settings(unit, "SystemCallFilter"), groups)?,
            capabilities: words("CapabilityBoundingSet"),
            namespaces: words("RestrictNamespaces"),
            families: words("RestrictAddressFamilies"),
            no_new_privileges: settings(unit, "NoNewPrivileges").last() == Some("yes"),
        };
        let listed = [&confinement.capabilities, &confinement.namespaces, &confinement.families];
        match listed.iter().all(|set| !set.is_empty() && set.iter().all(|word| !word.starts_with('~'))) {
            true => Ok(confinement),
            false => {
                Err("the unit has to list capabilities, namespaces and address families that are allowed".to_owned())
            }
        }
    }
}

/// Groups as the installed systemd defines them.
///
/// # Errors
/// There is no systemd-analyze, or it fails.
pub fn groups_of_systemd() -> Result<Groups, String> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", "--no-pager"]).output();
    let output = output.map_err(|error| format!("cannot start systemd-analyze: {error}"))?;
    if !output.status.success() {
        return Err(format!("systemd-analyze: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(groups(&String::from_utf8_lossy(&output.stdout)))
}

/// Groups in the output of `systemd-analyze syscall-filter`: a name, then its members, indented.
fn groups(text: &str) -> Groups {
    let mut groups = Groups::new();
    let mut current = String::new();
    for line in text.lines() {
        let word = line.trim();
        match (line.starts_with(char::is_whitespace), word.starts_with(['#', '@']), word.is_empty()) {
            (_, _, true) => {}
            (false, ..) => word.clone_into(&mut current),
            (true, true, _) if word.starts_with('#') => {}
            (true, ..) => groups.entry(current.clone()).or_default().push(word.to_owned()),
        }
    }
    // What this kernel has and systemd does not know is listed last and is no group.
    groups.retain(|name, _| name.starts_with('@'));
    groups
}

/// The first line decides whether calls are allowed or forbidden by default; each later line adds or removes names.
fn calls<'a>(lines: impl Iterator<Item = &'a str>, groups: &Groups) -> Result<BTreeSet<String>, String> {
    let mut allowed = BTreeSet::new();
    for (index, line) in lines.enumerate() {
        let (removes, names) = line.strip_prefix('~').map_or((false, line), |names| (true, names));
        if index == 0 {
            if removes {
                return Err("the first SystemCallFilter= has to list what is allowed".to_owned());
            }
            expand(DEFAULT, groups, &mut allowed)?;
        }
        let mut named = BTreeSet::new();
        for name in names.split_whitespace() {
            expand(name, groups, &mut named)?;
        }
        if removes {
            allowed.retain(|call| !named.contains(call));
        } else {
            allowed.append(&mut named);
        }
    }
    Ok(allowed)
}

fn expand(name: &str, groups: &Groups, into: &mut BTreeSet<String>) -> Result<(), String> {
    if !name.starts_with('@') {
        into.insert(name.to_owned());
        return Ok(());
    }
    let members = groups.get(name).ok_or_else(|| format!("this systemd has no group {name}"))?;
    members.iter().try_for_each(|member| expand(member, groups, into))
}

/// Values of a key in the order of the file. None of these is given across lines.
fn settings<'a>(unit: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let prefix = format!("{key}=");
    unit.lines().filter_map(move |line| line.strip_prefix(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &str = "\
@debug
    # Debugging
    pidfd_getfd
    ptrace

@default
    # Always
    exit
    @sync
@sync
    fsync
Ungrouped system calls (known but not included in any of the groups except @known):
    exotic
";

    fn effective(lines: &[&str]) -> Vec<String> {
        calls(lines.iter().copied(), &groups(GROUPS)).unwrap().into_iter().collect()
    }

    #[test]
    fn a_removing_line_takes_back_allowed_names() {
        assert_eq!(effective(&["pidfd_getfd", "~@debug"]), ["exit", "fsync"]);
        assert_eq!(effective(&["bpf", "~@debug", "pidfd_getfd"]), ["bpf", "exit", "fsync", "pidfd_getfd"]);
        assert_eq!(effective(&["bpf ptrace", "~@sync ptrace"]), ["bpf", "exit"]);
    }

    #[test]
    fn what_cannot_be_judged_is_an_error() {
        let calls = |line| calls([line].into_iter(), &groups(GROUPS)).unwrap_err();
        assert!(calls("@new").contains("no group @new"));
        assert!(calls("~@debug").contains("what is allowed"));
        assert!(Confinement::of("SystemCallFilter=bpf\n", &groups(GROUPS)).is_err());
    }

    #[test]
    fn the_shipped_unit_allows_what_is_needed_and_no_more() {
        let Ok(groups) = groups_of_systemd() else {
            return crate::skip("systemd-analyze is missing: what the unit's groups of system calls hold is unknown");
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../governor-user/dist/governord.service");
        let unit = Confinement::of(&std::fs::read_to_string(path).unwrap(), &groups).unwrap();
        let allowed = |name: &&&str| unit.calls.contains(**name);
        let needed = [
            "bpf",
            "chown",
            "connect",
            "listen",
            "memfd_create",
            "perf_event_open",
            "pidfd_getfd",
            "pidfd_open",
            "setns",
            "unshare",
        ];
        assert_eq!(needed.iter().filter(|name| !allowed(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
        let dangerous = [
            "add_key",
            "capset",
            "delete_module",
            "init_module",
            "io_setup",
            "io_uring_enter",
            "io_uring_register",
            "io_uring_setup",
            "kcmp",
            "kexec_load",
            "keyctl",
            "mount",
            "move_mount",
            "move_pages",
            "name_to_handle_at",
            "open_by_handle_at",
            "personality",
            "pivot_root",
            "process_madvise",
            "process_vm_readv",
            "process_vm_writev",
            "ptrace",
            "reboot",
            "request_key",
            "setuid",
            "setresuid",
            "swapon",
            "umount2",
            "userfaultfd",
        ];
        assert_eq!(dangerous.iter().filter(allowed).collect::<Vec<_>>(), Vec::<&&str>::new());
        let rights = "CAP_BPF CAP_CHOWN CAP_DAC_READ_SEARCH CAP_NET_ADMIN CAP_PERFMON CAP_SYS_ADMIN CAP_SYS_PTRACE";
        assert!(unit.capabilities.iter().map(String::as_str).eq(rights.split(' ')), "{:?}", unit.capabilities);
        assert!(unit.no_new_privileges && unit.namespaces.iter().eq(["net"]));
    }
}
