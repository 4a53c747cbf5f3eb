//! Machines that forbid or lack something: a real daemon in a mount namespace that shows it such a machine. It runs on a
//! lower tier, says why in words that name the cause, knows less and invents nothing; where more is required it does not
//! start, for the same reason.

use support::machine::cgroup;
use support::programs::bins;
use support::programs::daemon::{Daemon, Setup};
use support::skip;

/// One machine.
struct Machine {
    what: &'static str,
    /// Makes it.
    script: &'static str,
    /// Why programs do not work on it; `None`: nothing forbids them.
    reason: Option<&'static str>,
}

const MACHINES: [Machine; 5] = [
    Machine {
        what: "lockdown in confidentiality mode",
        script: "mount -t tmpfs tmpfs /sys/kernel/security
                 echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown
                 exec",
        reason: Some("lockdown=confidentiality"),
    },
    Machine {
        what: "lockdown in integrity mode",
        script: "mount -t tmpfs tmpfs /sys/kernel/security
                 echo 'none [integrity] confidentiality' > /sys/kernel/security/lockdown
                 exec",
        reason: None,
    },
    Machine { what: "no BTF", script: "mount -t tmpfs tmpfs /sys/kernel/btf\nexec", reason: Some("no kernel BTF") },
    Machine {
        what: "BTF that cannot be parsed",
        script: "mount -t tmpfs tmpfs /sys/kernel/btf
                 echo 'this is not what it says it is, not at all' > /sys/kernel/btf/vmlinux
                 exec",
        reason: Some("not BTF"),
    },
    Machine {
        what: "BTF of a newer kernel",
        // A header of 24 bytes; one record, of kind 25; one name, the empty one.
        script: r"mount -t tmpfs tmpfs /sys/kernel/btf
                  {
                      printf '\237\353\001\000\030\000\000\000\000\000\000\000\014\000\000\000'
                      printf '\014\000\000\000\001\000\000\000'
                      printf '\000\000\000\000\000\000\000\031\000\000\000\000\000'
                  } > /sys/kernel/btf/vmlinux
                  exec",
        reason: Some("type 1 is of kind 25, which is not known here"),
    },
];

/// A daemon that finds this machine; `None`, and a line that says why, where it cannot be made.
fn on(script: &str, setup: Setup) -> Option<Result<Daemon, String>> {
    if !rustix::process::geteuid().is_root() {
        skip("a mount namespace of one's own needs root");
        return None;
    }
    match setup.within(script).try_start() {
        Ok(daemon) => Some(Ok(daemon)),
        Err(refusal) if refusal.log.contains("governord: ") => Some(Err(refusal.log)),
        Err(refusal) => {
            skip(&format!("the machine cannot be made: {}", refusal.log.trim()));
            None
        }
    }
}

/// Runs on a machine where no programs work, says why, and does not take what it cannot know for nothing.
fn runs_without_programs(daemon: &Daemon, reason: &str) {
    let status = daemon.get("/v1/status");
    assert_eq!(status["tier"], "netlink", "{status:#}");
    assert!(status["degraded"].to_string().contains(reason), "{status:#}");
    for row in daemon.get("/v1/listeners").as_array().into_iter().flatten() {
        assert!(!row["depth"].is_null(), "{row:#}");
        for unknown in ["depth_peak", "enqueued_total", "accepted_total"] {
            assert!(row[unknown].is_null(), "{unknown} is not seen here: {row:#}");
        }
    }
    assert_eq!(daemon.get("/v1/pools")[0]["name"], "chat", "admission does not depend on it");
}

fn setup() -> Setup {
    Setup::new("[pools.chat.members.a]\nslots = 8\n").tier("auto")
}

#[test]
fn every_obstacle_is_named_and_none_keeps_the_daemon_from_running() {
    let _machine = support::alone();
    for Machine { what, script, reason } in MACHINES {
        let Some(daemon) = on(script, setup()) else { return };
        let daemon = daemon.unwrap_or_else(|log| panic!("{what}: {log}"));
        match reason {
            Some(reason) => runs_without_programs(&daemon, reason),
            None => {
                let degraded = daemon.get("/v1/status")["degraded"].to_string();
                assert!(!degraded.contains("lockdown"), "{what}: {degraded}");
            }
        }
        assert!(daemon.stop().success(), "{what}");
    }
}

#[test]
fn a_missing_right_is_named() {
    let _machine = support::alone();
    let launcher = bins::binary("test-peer");
    let script = format!("exec '{}' --without-programs", launcher.display());
    let Some(daemon) = on(&script, setup()) else { return };
    let daemon = daemon.unwrap_or_else(|log| panic!("{log}"));
    runs_without_programs(&daemon, "missing CAP_BPF and CAP_PERFMON");
    assert!(daemon.stop().success());
}

#[test]
fn where_more_is_required_each_obstacle_is_a_clean_start_failure_with_the_same_reason() {
    let _machine = support::alone();
    for Machine { what, script, reason } in MACHINES {
        let Some(reason) = reason else { continue };
        let Some(refused) = on(script, setup().env("GOVERNOR_KERNEL_REQUIRE", "tracepoint")) else { return };
        let log = refused.map(drop).expect_err(what);
        assert!(log.contains("the tracepoint tier is required but only netlink works here"), "{what}: {log}");
        assert!(log.contains(reason), "{what}: {log}");
    }
}

#[test]
fn a_host_with_v1_cgroups_only_has_no_counts_per_cgroup_and_says_so() {
    let _machine = support::alone();
    let Ok(root) = cgroup::root() else { return skip("no cgroup2 is mounted here either") };
    let script = format!("umount -l '{}'\nexec", root.display());
    let Some(daemon) = on(&script, setup()) else { return };
    let daemon = daemon.unwrap_or_else(|log| panic!("{log}"));
    let reason = "no cgroup2 is mounted (v1 groups do not reach sockets)";
    let (status, answer) = daemon.request("GET", "/v1/cgroups", None);
    assert!(status == 503 && answer.to_string().contains(reason), "{status}: {answer:#}");
    let status = daemon.get("/v1/status");
    assert!(status["degraded"].to_string().contains(reason), "{status:#}");
    assert!(daemon.stop().success());
}

#[test]
fn a_right_that_holders_need_is_named() {
    let _machine = support::alone();
    let launcher = bins::binary("test-peer");
    let Some(namespace) = crate::world::namespace() else { return };
    let mut server = support::programs::peer::Peer::start(&namespace);
    let port = server.listen("127.77.0.9", 5);
    let script = format!("exec '{}' --without-sight", launcher.display());
    let Some(daemon) = on(&script, setup().tier("netlink")) else { return };
    let daemon = daemon.unwrap_or_else(|log| panic!("{log}"));
    let reason = "missing CAP_SYS_PTRACE";
    daemon.wait_for("/v1/listeners", |rows| {
        let mut rows = rows.as_array().into_iter().flatten();
        rows.any(|row| row["port"] == port && row["netns"] == namespace.inode())
    });
    let doctor = daemon.wait_for("/v1/doctor", |checks| checks.to_string().contains("holders"));
    let mut checks = doctor.as_array().into_iter().flatten();
    let holders = checks.find(|check| check["name"] == "holders").unwrap();
    assert!(holders["status"] == "warn" && holders["detail"].to_string().contains(reason), "{holders:#}");
    let tuner = daemon.wait_for("/v1/tuner", |tuner| !tuner["holders_unknown"].is_null());
    assert!(tuner["holders_unknown"]["reason"].to_string().contains(reason), "{tuner:#}");
    for arguments in [&["tune"][..], &["tune", "--dry-run"], &["explain", "listener", &format!("127.77.0.9:{port}")]] {
        let shown = String::from_utf8(daemon.ctl(arguments).stdout).unwrap();
        assert!(shown.contains(reason), "{arguments:?}: {shown}");
    }
    let enforced = daemon.ctl(&["tune", "enforce", &format!("127.77.0.9:{port}")]);
    let shown = String::from_utf8(enforced.stdout).unwrap();
    assert!(shown.contains("it cannot be tuned") && shown.contains(reason), "{shown}");
    let status = daemon.get("/v1/status");
    assert!(status["degraded"].to_string().contains(reason), "{status:#}");
    assert!(daemon.stop().success());
}
