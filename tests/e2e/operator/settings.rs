//! Settings at run time: set, unset, reload, bypass. Running leases are never cut.

use crate::world::{client, daemon, lease, pool, refusal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup, free_port};

fn origin_of(daemon: &Daemon, key: &str) -> (Value, Value) {
    let entries = daemon.get("/v1/config");
    let entry = entries.as_array().unwrap().iter().find(|entry| entry["key"] == key).expect("the key is listed");
    (entry["value"].clone(), entry["origin"].clone())
}

#[test]
fn a_setting_made_at_run_time_survives_a_restart_and_unset_gives_the_layer_below_back() {
    let key = "pools.chat.fair_share";
    let mut daemon = daemon(1, 4, "fair_share = 70");
    assert_eq!(origin_of(&daemon, key), (json!(70), json!("file")));
    let (status, answer) = daemon.request("PUT", &format!("/v1/settings/{key}"), Some(&json!({ "value": 90 })));
    assert_eq!((status, &answer["previous"], &answer["value"]), (200, &json!(70), &json!(90)), "{answer}");
    daemon.restart().unwrap();
    assert_eq!(origin_of(&daemon, key), (json!(90), json!("override")));
    assert_eq!(daemon.get("/v1/pools")[0]["fair_share"], 90);
    let (status, answer) = daemon.request("DELETE", &format!("/v1/settings/{key}"), None);
    assert_eq!((status, &answer["value"], &answer["origin"]), (200, &json!(70), &json!("file")), "{answer}");
    assert_eq!(daemon.get("/v1/pools")[0]["fair_share"], 70);
}

#[test]
fn a_class_is_changed_at_run_time_and_by_environment_and_an_org_may_have_no_value() {
    let org = "[orgs.acme]\nid = \"000000000000000000000000000000aa\"\n";
    let setup = Setup::new(&format!("{org}{}", pool(1, 4, ""))).env("GOVERNOR_CLASSES_TIER1_CAP", "7");
    let daemon = setup.start();
    assert_eq!(origin_of(&daemon, "classes.tier0.cap"), (json!(100), json!("built-in")));
    assert_eq!(origin_of(&daemon, "classes.tier1.cap"), (json!(7), json!("environment")));
    let set = |key: &str, value: Value| {
        daemon.request("PUT", &format!("/v1/settings/{key}"), Some(&json!({ "value": value })))
    };
    let (status, answer) = set("orgs.acme.cap", json!(5));
    assert_eq!((status, &answer["previous"], &answer["value"]), (200, &json!(null), &json!(5)), "{answer}");
    let (status, answer) = daemon.request("DELETE", "/v1/settings/orgs.acme.cap", None);
    assert_eq!((status, &answer["value"]), (200, &json!(null)), "{answer}");
    assert_eq!(set("classes.tier0.cap", json!(0)).1["previous"], 100);
    assert_eq!(set("orgs.acme.id", json!("000000000000000000000000000000ab")).0, 409, "an identity is no setting");
    let (status, answer) = set("classes.tier0.weight", json!(0));
    assert_eq!(status, 400, "{answer}");
    assert_eq!(set("node.default_class", json!("tier9")).0, 400);
}

#[test]
fn the_environment_wins_over_the_file_and_is_named() {
    let setup = Setup::new(&pool(1, 4, "fair_share = 70"));
    let daemon = setup.env("GOVERNOR_POOLS_CHAT_FAIR_SHARE", "off").start();
    assert_eq!(origin_of(&daemon, "pools.chat.fair_share"), (json!("off"), json!("environment")));
}

#[test]
fn a_value_that_is_refused_changes_nothing_and_says_what_is_expected() {
    let daemon = daemon(1, 4, "fair_share = 70");
    for value in [json!(0), json!(101), json!("on"), json!(null)] {
        let (status, answer) =
            daemon.request("PUT", "/v1/settings/pools.chat.fair_share", Some(&json!({ "value": value })));
        assert_eq!(status, 400, "{value}: {answer}");
    }
    let (status, answer) = daemon.request("PUT", "/v1/settings/kernel.tick", Some(&json!({ "value": "1s" })));
    assert_eq!(status, 409, "{answer}");
    let (status, answer) = daemon.request("PUT", "/v1/settings/pools.chat.fair_shar", Some(&json!({ "value": 80 })));
    assert_eq!(status, 404);
    assert!(answer["hint"].as_str().is_some_and(|hint| hint.contains("pools.chat.fair_share")), "{answer}");
    assert_eq!(daemon.get("/v1/pools")[0]["fair_share"], 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn switching_the_rule_on_keeps_leases_and_holds_at_once() {
    let daemon = daemon(1, 10, "");
    let governor = client(&daemon.socket()).await;
    let mut held = vec![lease(&governor, "light").await];
    for _ in 0..8 {
        held.push(lease(&governor, "heavy").await);
    }
    for (key, value) in [("pools.chat.fair_share", json!(80)), ("pools.chat.fair_share_mode", json!("enforce"))] {
        assert_eq!(daemon.request("PUT", &format!("/v1/settings/{key}"), Some(&json!({ "value": value }))).0, 200);
    }
    let refused = refusal(&governor, "heavy", Duration::ZERO).await;
    assert_eq!(refused.reason(), "fair_share");
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 9);
    held.push(lease(&governor, "light").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_min_fills_the_pool_to_its_headroom_and_keeps_that_for_newcomers() {
    let daemon = daemon(1, 10, "fair_share_mode = \"enforce\"");
    let governor = client(&daemon.socket()).await;
    for (key, value) in [("pools.chat.headroom", json!(2)), ("pools.chat.fair_share", json!("max-min"))] {
        let (status, answer) = daemon.request("PUT", &format!("/v1/settings/{key}"), Some(&json!({ "value": value })));
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(daemon.get("/v1/pools")[0]["fair_share"], "max-min");
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(lease(&governor, "heavy").await);
    }
    assert_eq!(refusal(&governor, "heavy", Duration::ZERO).await.reason(), "fair_share");
    held.push(lease(&governor, "light").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_what_runs_and_a_broken_file_changes_nothing() {
    let daemon = daemon(1, 4, "");
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(lease(&governor, "a").await);
    }
    let reload = |text: &str| {
        std::fs::write(daemon.config_file(), text).unwrap();
        let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    };
    reload(&pool(1, 2, ""));
    let pools = daemon.wait_for("/v1/pools", |pools| pools[0]["capacity"] == 2);
    assert_eq!(pools[0]["in_flight"], 4, "nothing is cut");
    refusal(&governor, "b", Duration::ZERO).await;
    held.truncate(1);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 1);
    held.push(lease(&governor, "b").await);
    refusal(&governor, "b", Duration::ZERO).await;

    reload("[pools.chat\n");
    let end = std::time::Instant::now() + crate::world::SOON;
    while !daemon.log().contains("configuration not reloaded") {
        assert!(std::time::Instant::now() < end, "the broken file is reported\n{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(daemon.get("/v1/pools")[0]["capacity"], 2);

    let waiting = tokio::spawn({
        let governor = governor.clone();
        async move { lease(&governor, "c").await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    reload(&pool(1, 4, ""));
    crate::world::soon(waiting).await.expect("waiters are woken by a raised limit");
}

/// The entry of a key in `GET /v1/config`.
fn entry(daemon: &Daemon, key: &str) -> Value {
    let entries = daemon.get("/v1/config");
    entries.as_array().unwrap().iter().find(|entry| entry["key"] == key).cloned().unwrap_or_default()
}

fn reload_event(daemon: &Daemon, action: &str) -> Value {
    let found = |events: &Value| events.as_array().unwrap().iter().rev().find(|one| one["action"] == action).cloned();
    found(&daemon.wait_for("/v1/events?last_seconds=600", |events| found(events).is_some())).unwrap()
}

#[test]
fn a_reload_shows_what_is_in_force_and_what_waits_for_a_restart() {
    let metrics = free_port();
    let setup = Setup::new(&format!("[kernel]\naudit = \"9s\"\n{}", pool(1, 4, ""))).metrics(metrics);
    let mut daemon = setup.start();
    let after = "[kernel]\naudit = \"11s\"\n[overload]\nhold = \"3s\"\nmode = \"enforce\"\n\
                 [cgroups.\"/a\"]\nmax_connections = 5\n";
    std::fs::write(daemon.config_file(), format!("{after}{}", pool(1, 2, ""))).unwrap();
    kill_process(Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
    let pools = daemon.wait_for("/v1/pools", |pools| pools[0]["capacity"] == 2);
    assert_eq!(pools[0]["capacity"], 2);

    // In force at once: never said to wait.
    for (key, value) in [("overload.mode", json!("enforce")), ("pools.chat.members.m1.slots", json!(2))] {
        let entry = entry(&daemon, key);
        assert_eq!((&entry["value"], entry.get("pending")), (&value, None), "{key}: {entry}");
    }
    // Waiting: never shown as in force.
    let waiting = [
        ("kernel.audit", json!("9s"), json!("11s")),
        ("overload.hold", json!("2s"), json!("3s")),
        ("cgroups./a.max_connections", Value::Null, json!(5)),
    ];
    for (key, effective, pending) in &waiting {
        let entry = entry(&daemon, key);
        assert_eq!((&entry["value"], &entry["pending"]["value"]), (effective, pending), "{key}: {entry}");
        assert_eq!(entry["pending"]["origin"], "file");
    }
    let status = daemon.get("/v1/status");
    assert_eq!(status["pending"], json!(["cgroups./a.max_connections", "kernel.audit", "overload.hold"]));
    let event = reload_event(&daemon, "reload");
    assert_eq!((&event["by"], &event["before"]["kernel.audit"]), (&json!("SIGHUP"), &json!("9s")), "{event}");
    assert_eq!(
        (&event["after"]["overload.mode"], event["after"].get("node.cap")),
        (&json!("enforce"), None),
        "{event}"
    );
    assert!(event["reason"].as_str().unwrap().contains("after a restart: cgroups./a.max_connections, kernel.audit"));
    let logged = daemon.log();
    let line = logged.lines().find(|line| line.contains("wait for a restart")).expect("it is logged");
    assert!(line.contains("kernel.audit") && !line.contains("overload.mode"), "{line}");

    // The old value again: nothing waits.
    std::fs::write(daemon.config_file(), format!("[kernel]\naudit = \"9s\"\n{}", pool(1, 2, ""))).unwrap();
    let (status, answer) = daemon.request("POST", "/v1/reload", Some(&json!(null)));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(daemon.get("/v1/status")["pending"], json!([]));

    std::fs::write(daemon.config_file(), format!("{after}{}", pool(1, 2, ""))).unwrap();
    daemon.restart().unwrap();
    for (key, _, pending) in waiting {
        let entry = entry(&daemon, key);
        assert_eq!((&entry["value"], entry.get("pending")), (&pending, None), "{key} after the restart: {entry}");
    }
}

#[test]
fn a_pool_that_becomes_unlimited_by_a_reload_is_in_force_at_once() {
    let daemon = daemon(1, 1, "");
    std::fs::write(daemon.config_file(), "[pools.chat]\nunlimited = true\n").unwrap();
    let output = daemon.ctl(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(daemon.get("/v1/pools")[0]["unlimited"], true);
    assert_eq!(daemon.get("/v1/status")["pending"], json!([]));
    assert_eq!(entry(&daemon, "pools.chat.unlimited")["value"], true);
}

#[test]
fn a_failed_reload_is_shown_until_one_succeeds() {
    let metrics = free_port();
    let daemon = Setup::new(&pool(1, 4, "")).metrics(metrics).start();
    let scrape = || crate::signals::metrics::text(metrics);
    std::fs::write(daemon.config_file(), "[node]\ncap = -1\n").unwrap();
    let output = daemon.ctl(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("governor.toml:2") && said.contains("the configuration in force stays"), "{said}");
    let failure = daemon.get("/v1/status")["reload_failure"].clone();
    assert!(failure["error"].as_str().is_some_and(|error| error.contains("governor.toml:2")), "{failure}");
    let shown = |arguments: &[&str]| String::from_utf8_lossy(&daemon.ctl(arguments).stdout).into_owned();
    assert!(shown(&["status"]).contains("governor.toml:2"));
    assert!(shown(&["doctor"]).contains("changed nothing"));
    assert!(scrape().contains("governor_reload_failed 1"), "the alert GovernorReloadFailed");
    assert!(reload_event(&daemon, "reload-failed")["reason"].as_str().unwrap().contains("governor.toml:2"));

    std::fs::remove_file(daemon.config_file()).unwrap();
    assert_eq!(daemon.request("POST", "/v1/reload", Some(&json!(null))).0, 400);
    let failure = daemon.get("/v1/status")["reload_failure"].clone();
    assert!(failure["error"].as_str().is_some_and(|error| error.contains("No such file")), "{failure}");

    std::fs::write(daemon.config_file(), pool(1, 3, "")).unwrap();
    assert!(daemon.ctl(&["reload"]).status.success());
    assert_eq!(daemon.get("/v1/status")["reload_failure"], Value::Null);
    assert!(scrape().contains("governor_reload_failed 0"));
    assert!(!shown(&["doctor"]).contains("changed nothing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_file_that_was_removed_is_shown_and_made_again_by_a_reload() {
    let daemon = daemon(1, 4, "");
    let before = client(&daemon.socket()).await;
    let _held = lease(&before, "a").await;
    let missing = |key: &str| {
        let checks = daemon.get("/v1/doctor");
        let check = checks.as_array().unwrap().iter().find(|check| check["name"] == key).cloned();
        check.map(|check| check["detail"].as_str().unwrap().to_owned())
    };
    assert_eq!(missing("daemon.socket"), None);
    std::fs::remove_file(daemon.socket()).unwrap();
    let detail = missing("daemon.socket").expect("the doctor shows it");
    assert!(detail.contains(daemon.socket().to_str().unwrap()), "{detail}");
    // A file that the daemon did not create is not removed.
    std::fs::write(daemon.socket(), "mine").unwrap();
    let output = daemon.ctl(&["reload"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("is not a socket"), "{output:?}");
    std::fs::remove_file(daemon.socket()).unwrap();
    // A file that is not valid does not keep the sockets from being made.
    let valid = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), "[node]\ncap = -1\n").unwrap();
    assert_eq!(daemon.ctl(&["reload"]).status.code(), Some(1));
    std::fs::write(daemon.config_file(), valid).unwrap();
    assert_eq!(missing("daemon.socket"), None);
    let after = client(&daemon.socket()).await;
    let _second = lease(&after, "b").await;
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 2, "the session before goes on");
    let sessions = daemon.get("/v1/status")["sessions"].clone();
    let mut ids: Vec<u64> = sessions.as_array().unwrap().iter().map(|one| one["id"].as_u64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 2, "{sessions}");
    reload_event(&daemon, "socket-restored");

    std::fs::remove_file(daemon.control_socket()).unwrap();
    let output = daemon.ctl(&["status"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--signal=HUP"), "{output:?}");
    kill_process(Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
    let end = std::time::Instant::now() + crate::world::SOON;
    while !daemon.ctl(&["status", "--format", "json"]).status.success() {
        assert!(std::time::Instant::now() < end, "{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (socket, control) = (daemon.socket(), daemon.control_socket());
    assert!(daemon.stop().success());
    assert!(!socket.exists() && !control.exists(), "a stop removes both");
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_lets_everything_pass_until_it_is_switched_off_even_after_a_restart() {
    let mut daemon = daemon(1, 1, "");
    let (status, answer) = daemon.request("POST", "/v1/bypass", Some(&json!({ "on": true, "for_seconds": 600 })));
    assert_eq!((status, &answer["on"]), (200, &json!(true)), "{answer}");
    daemon.restart().unwrap();
    assert_eq!(daemon.get("/v1/status")["bypass"]["on"], true);
    let governor = client(&daemon.socket()).await;
    let _held = (lease(&governor, "a").await, lease(&governor, "a").await, lease(&governor, "a").await);
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 3, "counted all the same");
    assert_eq!(daemon.request("POST", "/v1/bypass", Some(&json!({ "on": false }))).0, 200);
    refusal(&governor, "a", Duration::ZERO).await;
}

#[test]
fn a_bypass_for_a_while_ends_by_itself() {
    let daemon = daemon(1, 1, "");
    let on = json!({ "on": true, "for_seconds": 1 });
    assert_eq!(daemon.request("POST", "/v1/bypass", Some(&on)).0, 200);
    daemon.wait_for("/v1/status", |status| status["bypass"]["on"] == false);
}
