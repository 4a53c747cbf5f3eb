//! What `doctor` can see of the machine without a daemon: rights, kernel type information, lockdown, cgroups. Reads
//! a few files, changes nothing. Each check is a pure function of what was read.

use governor_api::{Check, CheckStatus};
use std::io;
use std::path::Path;

/// Capabilities that the daemon needs, by bit number.
const CAPABILITIES: [(u32, &str); 4] =
    [(39, "CAP_BPF"), (38, "CAP_PERFMON"), (12, "CAP_NET_ADMIN"), (19, "CAP_SYS_PTRACE")];

/// What this kernel offers to any user.
pub(in crate::cli) fn machine() -> Vec<Check> {
    let read = |path: &str| std::fs::read_to_string(path);
    vec![
        btf(Path::new("/sys/kernel/btf/vmlinux").exists()),
        lockdown(read("/sys/kernel/security/lockdown")),
        cgroup(read("/proc/self/mountinfo")),
    ]
}

/// What a daemon started by this user could do.
pub(in crate::cli) fn rights() -> Check {
    capabilities(std::fs::read_to_string("/proc/self/status"))
}

fn check(name: &str, status: CheckStatus, detail: impl Into<String>, fix: Option<&str>) -> Check {
    Check { name: name.to_owned(), status, detail: detail.into(), fix: fix.map(str::to_owned), hook: None }
}

/// The effective capabilities of this process; those of a daemon come from its service manager.
fn capabilities(status: io::Result<String>) -> Check {
    let effective = status.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    let Some(effective) = effective else {
        return check("rights", CheckStatus::Warn, "the capabilities of this process cannot be read", None);
    };
    let missing: Vec<&str> =
        CAPABILITIES.iter().filter(|(bit, _)| effective >> bit & 1 == 0).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return check("rights", CheckStatus::Ok, "this user can load eBPF and read all sockets", None);
    }
    check(
        "rights",
        CheckStatus::Warn,
        format!("this user lacks {}; governord started by it would poll instead of trace", missing.join(", ")),
        Some("start governord as root or by its systemd unit"),
    )
}

fn btf(present: bool) -> Check {
    if present {
        return check("kernel BTF", CheckStatus::Ok, "/sys/kernel/btf/vmlinux is there", None);
    }
    check(
        "kernel BTF",
        CheckStatus::Warn,
        "no kernel BTF (/sys/kernel/btf/vmlinux): the netlink tier is the best there is",
        Some("use a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
    )
}

/// The word in brackets is the mode in force; the others are what could be chosen.
fn lockdown(file: io::Result<String>) -> Check {
    let text = match file {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check("lockdown", CheckStatus::Ok, "this kernel has none", None);
        }
        Err(error) => return check("lockdown", CheckStatus::Warn, format!("cannot be read: {error}"), None),
    };
    let mode = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        Some(mode @ ("none" | "integrity")) => {
            check("lockdown", CheckStatus::Ok, format!("lockdown={mode} allows eBPF"), None)
        }
        Some(mode @ "confidentiality") => check(
            "lockdown",
            CheckStatus::Warn,
            format!("lockdown={mode} forbids eBPF: the netlink tier is the best there is"),
            Some("boot with lockdown=integrity"),
        ),
        Some(mode) => check("lockdown", CheckStatus::Warn, format!("lockdown={mode} is not known here"), None),
        None => check("lockdown", CheckStatus::Warn, "no mode is marked in /sys/kernel/security/lockdown", None),
    }
}

/// Where cgroup v2 is mounted, and whether it stands alone.
fn cgroup(mountinfo: io::Result<String>) -> Check {
    let text = match mountinfo {
        Ok(text) => text,
        Err(error) => return check("cgroup v2", CheckStatus::Warn, format!("mounts cannot be read: {error}"), None),
    };
    // mountinfo: id parent dev root POINT options … - TYPE source options
    let mounts: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            Some((right.split(' ').next()?, left.split(' ').nth(4)?))
        })
        .collect();
    let v1 = mounts.iter().any(|(kind, _)| *kind == "cgroup");
    match mounts.iter().find(|(kind, _)| *kind == "cgroup2") {
        Some((_, point)) if !v1 => check("cgroup v2", CheckStatus::Ok, format!("mounted at {point}"), None),
        Some((_, point)) => check(
            "cgroup v2",
            CheckStatus::Warn,
            format!("mounted at {point} beside cgroup v1: processes in the v2 root are not counted per cgroup"),
            Some("boot with systemd.unified_cgroup_hierarchy=1"),
        ),
        None => check(
            "cgroup v2",
            CheckStatus::Warn,
            "not mounted: connections are not counted per cgroup",
            Some("mount -t cgroup2 none /sys/fs/cgroup"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        for (file, status) in [
            ("[none] integrity confidentiality\n", CheckStatus::Ok),
            ("none [integrity] confidentiality\n", CheckStatus::Ok),
            ("none integrity [confidentiality]\n", CheckStatus::Warn),
            ("none integrity confidentiality\n", CheckStatus::Warn),
        ] {
            assert_eq!(lockdown(Ok(file.to_owned())).status, status, "{file}");
        }
        assert_eq!(lockdown(Err(io::ErrorKind::NotFound.into())).status, CheckStatus::Ok);
        assert!(lockdown(Ok("none integrity [confidentiality]".into())).detail.contains("lockdown=confidentiality"));
    }

    #[test]
    fn missing_capabilities_are_named() {
        let with = |mask: &str| capabilities(Ok(format!("Name:\tx\nCapEff:\t{mask}\n")));
        assert_eq!(with("000001ffffffffff").status, CheckStatus::Ok);
        let some = with("0000004000001000");
        assert_eq!(some.status, CheckStatus::Warn);
        assert!(some.detail.contains("CAP_BPF, CAP_SYS_PTRACE"), "{}", some.detail);
        assert_eq!(capabilities(Ok(String::new())).status, CheckStatus::Warn);
    }

    #[test]
    fn cgroup_v2_alone_is_told_from_a_hybrid() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let v1 = "33 30 0:29 / /sys/fs/cgroup/cpu rw shared:7 - cgroup cgroup rw,cpu\n";
        assert_eq!(cgroup(Ok(v2.to_owned())).status, CheckStatus::Ok);
        assert_eq!(cgroup(Ok(format!("{v2}{v1}"))).status, CheckStatus::Warn);
        assert_eq!(cgroup(Ok(v1.to_owned())).status, CheckStatus::Warn);
    }

    #[test]
    fn the_checks_run_on_this_machine() {
        assert_eq!(machine().len(), 3);
        assert_eq!(rights().name, "rights");
    }
}
