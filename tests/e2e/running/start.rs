//! Starts that must fail, each with one clear sentence and the right exit code.

use crate::world::{daemon, pool};
use std::process::{Command, Output};
use support::programs::daemon::{Setup, free_port};

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("governord can be started");
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn refused(setup: Setup) -> (Option<i32>, String) {
    let refusal = setup.try_start().expect_err("it must not start");
    (refusal.status.code(), refusal.log)
}

#[test]
fn a_misspelt_key_names_its_line_and_the_nearest_name() {
    let (code, said) = refused(Setup::new("[node]\nmax_paralel = 5\n"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("governor.toml:2: unknown key \"node.max_paralel\": did you mean \"max_parked\"?"), "{said}");
}

#[test]
fn check_says_whether_a_configuration_is_valid_without_starting() {
    let good = daemon(1, 1, "");
    let (code, said) = ended(good.command().arg("--check"));
    assert_eq!(code, Some(0), "{said}");
    std::fs::write(good.config_file(), "[pools.chat.park]\nmax_wait = 30\n").unwrap();
    let (code, said) = ended(good.command().arg("--check"));
    assert_eq!(code, Some(1));
    assert!(said.contains(":2: ") && said.contains("\"30s\""), "{said}");
}

#[test]
fn variables_of_kubernetes_services_are_ignored_and_any_other_must_be_a_setting() {
    let links = [
        ("GOVERNOR_NODE_PORT", "tcp://10.96.0.7:9464"),
        ("GOVERNOR_NODE_PORT_9464_TCP_ADDR", "10.96.0.7"),
        ("GOVERNOR_NODE_SERVICE_HOST", "10.96.0.7"),
        ("GOVERNOR_NODE_SERVICE_PORT", "9464"),
    ];
    let pod = || links.iter().fold(Setup::new(&pool(1, 1, "")), |setup, (name, value)| setup.env(name, value));
    let daemon = pod().start();
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("Kubernetes")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("GOVERNOR_NODE_PORT and 3 more"), "{lines:?}");
    assert_eq!(daemon.get("/v1/status")["warnings"], serde_json::json!([]));
    let (code, said) = ended(daemon.command().arg("--check"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("note: ignored environment variables"), "{said}");

    let (code, said) = refused(pod().env("GOVERNOR_POOL_CHAT_FAIR_SHARE", "80"));
    assert_eq!(code, Some(1), "{said}");
    let hint = "GOVERNOR_POOL_CHAT_FAIR_SHARE: unknown variable: did you mean GOVERNOR_POOLS_CHAT_FAIR_SHARE?";
    assert!(said.contains(hint) && !said.contains("_PORT"), "{said}");
}

#[test]
fn a_duration_without_end_is_refused_with_its_bounds() {
    let (code, said) = refused(Setup::new("[node]\nlease_ttl = \"99999999999h\"\n"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(":2: ") && said.contains("expected a duration from 1s to 1h"), "{said}");
}

#[test]
fn guarantees_that_cannot_be_kept_are_refused_with_both_numbers() {
    let pool = "[pools.a]\nfair_share = \"max-min\"\n[pools.a.members.x]\nslots = 5\nreserve = 0\n";
    let org = |name: &str, digit: u8, lines: &str| format!("[orgs.{name}]\nid = \"{digit:032x}\"\n{lines}\n");
    let good = daemon(1, 1, "");
    for (orgs, words) in [
        (org("acme", 1, "floor = 6"), ["a floor of 6", "its 5 slots"]),
        (org("acme", 1, "floor = 3") + &org("base", 2, "floor = 3"), ["floors of 6", "its 5 slots"]),
        (org("acme", 1, "floor = 4\ncap = 2"), ["a floor of 4", "cap of 2"]),
    ] {
        std::fs::write(good.config_file(), format!("{pool}{orgs}")).unwrap();
        let (code, said) = ended(good.command().arg("--check"));
        assert_eq!(code, Some(1), "{said}");
        assert!(words.iter().all(|word| said.contains(word)) && said.contains("governor.toml:"), "{said}");
    }
    let (code, said) = refused(Setup::new("[org.acme]\ncap = 1\n"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("did you mean \"orgs\"?"), "{said}");
}

#[test]
fn a_second_instance_is_refused_and_the_first_goes_on() {
    let first = daemon(1, 1, "");
    let (code, said) = ended(&mut first.command());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another governord is running on"), "{said}");
    assert_eq!(first.get("/v1/status")["level"], "normal");
}

#[test]
fn a_port_in_use_is_named_with_the_setting_to_change() {
    let address = free_port();
    let _taken = std::net::TcpListener::bind(address).unwrap();
    let (code, said) = refused(Setup::new("").metrics(address));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address.to_string()) && said.contains("daemon.metrics_listen"), "{said}");
}

#[test]
fn its_own_listener_asks_for_a_backlog_of_1024_as_far_as_the_kernel_allows() {
    let address = free_port();
    let daemon = Setup::new("").metrics(address).start();
    let cap = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<u32>().unwrap();
    let rows = daemon.wait_for("/v1/listeners", |rows| own(rows, address.port()).is_some());
    assert_eq!(own(&rows, address.port()), Some(u64::from(cap.min(1024))));
}

/// The backlog of the listener on this port of loopback.
fn own(rows: &serde_json::Value, port: u16) -> Option<u64> {
    let mut rows = rows.as_array()?.iter();
    rows.find(|row| row["port"] == port && row["address"] == "127.0.0.1")?["backlog"].as_u64()
}

#[test]
fn a_tier_that_is_required_and_not_to_be_had_ends_the_start_with_the_reason() {
    let (code, said) = refused(Setup::new("[kernel]\nrequire = \"trampoline\"\n").tier("auto"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the trampoline tier is required but only"), "{said}");
}

#[test]
fn without_capabilities_it_governs_on_a_lower_tier_and_says_which_one_is_missing() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("giving rights up needs root");
    }
    let mut daemon = Setup::new(&pool(1, 1, "")).tier("auto").start();
    let folder = daemon.socket().parent().unwrap().to_owned();
    daemon.kill();
    std::fs::remove_file(daemon.socket()).unwrap();
    std::fs::remove_file(daemon.control_socket()).unwrap();
    for path in [&folder, &daemon.state_dir()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    for entry in std::fs::read_dir(daemon.state_dir()).unwrap() {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(65534), Some(65534)).unwrap();
    }
    use std::os::unix::process::CommandExt;
    let required = ended(daemon.command().env("GOVERNOR_KERNEL_REQUIRE", "tracepoint").uid(65534).gid(65534));
    assert_eq!(required.0, Some(1), "{}", required.1);
    assert!(required.1.contains("the tracepoint tier is required but only"), "{}", required.1);
    assert!(required.1.contains("CAP_"), "the missing capability is named: {}", required.1);
}

#[test]
fn a_socket_left_over_by_a_crash_is_no_obstacle() {
    let mut daemon = daemon(1, 1, "");
    daemon.kill();
    assert!(daemon.socket().exists());
    daemon.restart().unwrap();
    assert!(daemon.stop().success());
}

#[test]
fn the_default_configuration_is_printed_and_valid() {
    let daemon = daemon(1, 1, "");
    let output = daemon.command().arg("--print-default-config").output().unwrap();
    std::fs::write(daemon.config_file(), &output.stdout).unwrap();
    let (code, said) = ended(daemon.command().arg("--check"));
    assert_eq!(code, Some(0), "{said}");
}
