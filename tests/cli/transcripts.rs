//! Every subcommand against a real daemon.

use crate::transcript::of;
use crate::world::{POOL, busy, quiet};
use support::programs::daemon::{Daemon, Setup};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_shows_who_holds_and_who_waits() {
    let busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["pools", "--members"]), @"
    POOL  OLDEST WAIT  PARKED  IN FLIGHT  CAPACITY  FAIR SHARE  CONGESTED  KEYS  GRANTED  REFUSED
    chat  TIME  1  2  2  from 80 %, enforce  yes  1  2  1

    POOL  MEMBER  IN FLIGHT  SLOTS  RESERVE  STATE
    chat  account-1  1  2  1  up
    chat  account-2  1  2  1  up
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["keys"]), @"
    POOL  KEY  LABEL  IN FLIGHT  PARKED  SHARE
    chat  KEY  batch  2  1  2
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["leases", "--pool", "chat"]), @"
    LEASE  POOL  MEMBER  KEY  KIND  SESSION  AGE  IDLE  EXPIRES IN  LABEL  ASKED AT
    l-ID  chat  account-1  KEY…  ordinary  s-1  TIME  -  TIME  batch  chat.rs:7
    l-ID  chat  account-2  KEY…  ordinary  s-1  TIME  -  TIME  batch  chat.rs:7
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["leases", "--idle", "1h"]), @"no lease is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_explained_by_its_id() {
    let busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["explain", &busy.decision]), @r#"
    The request was refused because no member of pool chat it may use had a free slot: 2 of 2 slots in use, 0 parked. It was answered 429 with origin pool and told to come back after 1 s.

    decision  d-ID, TIME ago
    outcome  refused with 429, retry after TIME
    rule  pool_exhausted (origin pool)
    pool  chat: 2 of 2 slots in use, 0 parked
    key  KEY… "user": 0 in flight, share 2; active keys 2
    node  2 counted requests, cap 1000
    waited  TIME
    session  s-1
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["explain", "00000000000000ff"]), @"
    governorctl: decision d-ID is unknown; decisions are kept for 24 hours, at most 64 MiB of them (some 150,000)
    (exit code 1)
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["explain", "../status"]), @r#"
    governorctl: "../status" is no decision id; it is the value of the response header x-governor-decision, up to 16 hexadecimal digits
    (exit code 1)
    "#);
}

#[test]
fn a_quiet_daemon_says_so() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["keys"]), @"no key has anything in flight or parked");
    insta::assert_snapshot!(of(&daemon, &["leases"]), @"no lease is held");
    insta::assert_snapshot!(of(&daemon, &["keys", "--pool", "nosuch"]), @r#"
    governorctl: no pool named "nosuch"; the pools are: chat
    (exit code 1)
    "#);
}

#[test]
fn status_shows_level_bypass_and_pools() {
    let daemon = quiet();
    let status = of(&daemon, &["status"]);
    for line in ["level  normal, pressure 0 ‰", "bypass  off", "no proxy is connected", "chat  0  2  0  0  0  "] {
        assert!(status.lines().any(|shown| shown.starts_with(line)), "{line:?} is not in\n{status}");
    }
    assert!(status.starts_with("governord  0.1.0, pid PID, up TIME\n"), "{status}");
}

#[test]
fn a_setting_is_changed_shown_and_changed_back() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["set", "pools.chat.fair_share", "90"]), @"pools.chat.fair_share is now 90 (override), it was 80");
    let origin = |key: &str| {
        let all = of(&daemon, &["config", "--origin"]);
        all.lines().find(|line| line.starts_with(key)).unwrap().to_owned()
    };
    let overridden = origin("pools.chat.fair_share ");
    assert!(overridden.starts_with("pools.chat.fair_share  90  override  "), "{overridden}");
    insta::assert_snapshot!(origin("pools.chat.fair_share_mode "), @"pools.chat.fair_share_mode  enforce  file  FOLDER/governor.toml:3");
    insta::assert_snapshot!(origin("node.cap "), @"node.cap  1000  built-in  -");
    insta::assert_snapshot!(origin("kernel.tier "), @"kernel.tier  netlink  environment  GOVERNOR_KERNEL_TIER");
    insta::assert_snapshot!(of(&daemon, &["unset", "pools.chat.fair_share"]), @"pools.chat.fair_share is now 80 (file), it was 90");
    insta::assert_snapshot!(of(&daemon, &["unset", "pools.chat.fair_share"]), @r#"
    governorctl: "pools.chat.fair_share" has no override
    (exit code 1)
    "#);
}

#[test]
fn a_refused_setting_says_what_is_expected() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["set", "pools.chat.fair_share", "101"]), @r#"
    governorctl: the configuration is not valid
    override: pools.chat.fair_share: expected "off", "max-min" or a threshold from 1 to 100 percent, found `101`
    (exit code 1)
    "#);
    insta::assert_snapshot!(of(&daemon, &["set", "pools.chat.fair_share", "-1"]), @r#"
    governorctl: the configuration is not valid
    override: pools.chat.fair_share: expected "off", "max-min" or a threshold from 1 to 100 percent, found `-1`
    (exit code 1)
    "#);
    insta::assert_snapshot!(of(&daemon, &["set", "pools.chat.fair_shar", "80"]), @r#"
    governorctl: no setting named "pools.chat.fair_shar"; did you mean "pools.chat.fair_share"?
    (exit code 1)
    "#);
    insta::assert_snapshot!(of(&daemon, &["set", "kernel.tick", "1s"]), @r#"
    governorctl: "kernel.tick" cannot be changed at run time: set it in the file or environment and restart
    (exit code 1)
    "#);
}

#[test]
fn bypass_is_switched_and_seen() {
    let daemon = quiet();
    insta::assert_snapshot!(of(&daemon, &["bypass", "on", "--for", "30m"]), @"bypass is on: every request passes, for TIME more");
    assert!(of(&daemon, &["status"]).contains("bypass  on: every request passes, for TIME more"));
    insta::assert_snapshot!(of(&daemon, &["bypass", "off"]), @"bypass is off");
}

#[test]
fn a_listener_is_listed_with_its_backlog() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let daemon = quiet();
    daemon.wait_for("/v1/listeners", |rows| {
        let held = |row: &serde_json::Value| row["pids"].as_array().is_some_and(|pids| !pids.is_empty());
        rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["port"] == address.port() && held(row)))
    });
    let table = of(&daemon, &["listeners"]);
    // This test process holds it.
    let held = format!("[{}]", std::process::id());
    let shown = |line: &str| line.starts_with(&format!("{address}  ok  ")) && line.contains(&held);
    assert!(table.lines().any(shown), "{table}");
    let json = daemon.ctl(&["listeners", "--format", "json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    let row = rows.iter().find(|row| row["port"] == address.port()).unwrap();
    assert_eq!((&row["depth"], &row["family"]), (&0.into(), &"ipv4".into()));
    // The standard library listens with 4096 at most and the system's limit at least.
    assert!(row["backlog"].as_u64().is_some_and(|backlog| backlog >= 128), "{row}");
    for key in ["cookie", "netns", "depth_peak", "enqueued_total", "accepted_total", "overflows_total", "drops_total"] {
        assert!(row.get(key).is_some(), "{key} is there even when it is null: {row}");
    }
}

#[test]
fn counts_per_cgroup_that_cannot_be_had_are_a_negative_answer_with_the_reason() {
    let daemon = Setup::new(POOL).tier("procfs").start();
    let output = daemon.ctl(&["cgroups", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "no JSON is better than wrong JSON");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("governorctl: connections per cgroup are unavailable: "), "{said}");
}

#[test]
fn json_is_what_the_control_api_says() {
    let daemon = quiet();
    for (subcommand, path) in [("pools", "/v1/pools"), ("keys", "/v1/keys"), ("config", "/v1/config")] {
        let shown: serde_json::Value =
            serde_json::from_slice(&daemon.ctl(&["--format", "json", subcommand]).stdout).unwrap();
        assert_eq!(shown, daemon.get(path), "{subcommand}");
    }
}

#[test]
fn doctor_finds_the_daemon_and_looks_at_the_machine() {
    let daemon = quiet();
    let output = daemon.ctl(&["doctor", "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    let checks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["daemon", "tier", "bypass", "kernel BTF", "lockdown", "cgroup v2"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name} is not in {checks:?}");
    }
    let table = checks.iter().find(|check| check["name"] == "hook table").expect("the tables are always read");
    assert_eq!(table["hook"]["candidates"][0]["fires"], true, "{table}");
}

#[test]
fn doctor_says_of_every_hook_what_was_tried_and_what_is_lost() {
    // Whatever works here: with rights that is some tier of eBPF, else polling; and polling by order.
    for tier in ["auto", "netlink"] {
        every_hook_is_explained(&Setup::new(POOL).tier(tier).start());
    }
}

fn every_hook_is_explained(daemon: &Daemon) {
    let shown: Vec<serde_json::Value> =
        serde_json::from_slice(&daemon.ctl(&["doctor", "--format", "json"]).stdout).unwrap();
    let text = String::from_utf8(daemon.ctl(&["doctor"]).stdout).unwrap();
    let hooks: Vec<&serde_json::Value> = shown.iter().filter(|check| check.get("hook").is_some()).collect();
    for event in ["enqueue", "accept", "overflow_syn", "overflow_ack", "connections", "table"] {
        assert!(hooks.iter().any(|check| check["hook"]["event"] == event), "{event} is not in {shown:?}");
    }
    for check in hooks {
        let hook = &check["hook"];
        let candidates = hook["candidates"].as_array().unwrap();
        let firing = candidates.iter().filter(|candidate| candidate["fires"] == true).count();
        assert_eq!(firing > 0, hook["active"] == true, "{check}");
        assert!(!hook["lost_without"].as_str().unwrap().is_empty(), "{check}");
        assert_eq!(check["status"], if firing > 0 { "ok" } else { "warn" }, "{check}");
        for candidate in candidates.iter().filter(|candidate| candidate["fires"] == false) {
            let (name, reason) = (candidate["hook"].as_str().unwrap(), candidate["reason"].as_str().unwrap());
            assert!(!reason.is_empty(), "{check}");
            assert!(text.contains(name) && text.contains(reason), "{name} or {reason} is not in\n{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_capped_listed_and_set_free_again() {
    let busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--cap", "1", "--for", "1h", "--reason", "runaway job"]), @r#"
    key KEY… "batch": cap 1 for TIME, it was no override
    note: its cap is only recorded while node.caps_mode is observe; governorctl set node.caps_mode enforce makes every cap of the node count
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["key"]), @"
    KEY  LABEL  OVERRIDE  ENDS IN  SET BY  SET AT  REASON
    KEY  batch  cap 1  TIME  uid UID  DATE  runaway job
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["keys"]), @"
    POOL  KEY  LABEL  IN FLIGHT  PARKED  SHARE  WEIGHT  FLOOR  CAP  OVERRIDE
    chat  KEY  batch  2  1  2  1  0  1  yes
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--clear"]), @r#"key KEY… "batch": no override, it was cap 1 for TIME"#);
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--clear"]), @"
    governorctl: key KEY has no override
    (exit code 1)
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["key", "nobody", "--suspend"]), @r#"
    governorctl: no key is called "nobody"; name it by its label or by its 32 hexadecimal digits, as governorctl keys shows them
    (exit code 1)
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--floor", "4", "--cap", "2"]), @"
    governorctl: a floor of 4 is above its own cap of 2
    (exit code 1)
    ");
    busy.daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().is_some_and(|all| all.len() == 2));
    insta::assert_snapshot!(of(&busy.daemon, &["events", "--last", "10m"]), @"
    WHEN  WHO  WHAT  SUBJECT  BEFORE  AFTER  REASON
    DATE  uid UID  key  KEY  -  cap 1  runaway job
    DATE  uid UID  key-clear  KEY  cap 1  -  -
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_an_override_are_merged_and_removed_one_by_one() {
    let busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--cap", "5", "--for", "1h"]), @r#"
    key KEY… "batch": cap 5 for TIME, it was no override
    note: its cap is only recorded while node.caps_mode is observe; governorctl set node.caps_mode enforce makes every cap of the node count
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--floor", "2"]), @r#"
    key KEY… "batch": cap 5, floor 2 for TIME, it was cap 5 for TIME
    note: its cap is only recorded while node.caps_mode is observe; governorctl set node.caps_mode enforce makes every cap of the node count; weight and floor change no share while no pool enforces max-min; governorctl set pools.NAME.fair_share max-min and governorctl set pools.NAME.fair_share_mode enforce make them count
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--unset", "cap,end"]), @r#"
    key KEY… "batch": floor 2 until cleared, it was cap 5, floor 2 for TIME
    note: weight and floor change no share while no pool enforces max-min; governorctl set pools.NAME.fair_share max-min and governorctl set pools.NAME.fair_share_mode enforce make them count
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--unset", "cap"]), @"
    governorctl: its override has no cap to unset
    (exit code 1)
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["key", "batch", "--unset", "floor"]), @r#"key KEY… "batch": no override, it was floor 2 until cleared"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_without_an_id_are_found() {
    let mut busy = busy().await;
    insta::assert_snapshot!(of(&busy.daemon, &["refusals", "--since", "10m"]), @"
    1 refusal in the last TIME

    POOL  REASON  STATUS  COUNT
    chat  pool_exhausted  429  1

    AGE  DECISION  POOL  KEY  LABEL  REASON  STATUS  WAITED  RETRY AFTER
    TIME  d-ID  chat  KEY…  user  pool_exhausted  429  TIME  TIME
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["refusals", "--key", "user", "--reason", "fair_share"]), @"0 refusals in the last TIME");
    let json = busy.daemon.ctl(&["refusals", "--format", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&found["total"], &found["rows"][0]["id"]), (&1.into(), &busy.decision.as_str().into()));
    // The next run has it from the disk.
    busy.daemon.restart().unwrap();
    let found = busy.daemon.get("/v1/refusals");
    assert_eq!((&found["total"], &found["rows"][0]["id"]), (&1.into(), &busy.decision.as_str().into()));
    assert!(found["oldest_seconds"].is_u64(), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_and_a_session_are_explained_by_their_ids() {
    let busy = busy().await;
    let lease = busy.daemon.get("/v1/leases")[0]["lease"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(of(&busy.daemon, &["explain", &format!("l-{lease}")]), @r#"
    Lease l-ID holds a slot of pool chat on member account-1 for key KEY… "batch". It was granted TIME ago and expires in TIME unless its proxy renews it.

    lease  l-ID
    kind  ordinary
    priority  normal
    last byte  not reported
    asked at  chat.rs:7
    session  s-1 (gateway, process OWN, uid UID)
    "#);
    insta::assert_snapshot!(of(&busy.daemon, &["explain", "s-1"]), @"Session s-1 (gateway, process OWN, uid UID) is a connected proxy that holds 2 leases.");
    insta::assert_snapshot!(of(&busy.daemon, &["explain", "l-00000000000000ff"]), @"
    governorctl: lease l-ID is not held; leases that ended are not kept; governorctl leases lists those that are held
    (exit code 1)
    ");
    insta::assert_snapshot!(of(&busy.daemon, &["explain", "s-99"]), @"
    governorctl: session s-99 is not connected; governorctl status lists those that are
    (exit code 1)
    ");
    assert_eq!(
        of(&busy.daemon, &["explain", &format!("d-{}", busy.decision)]),
        of(&busy.daemon, &["explain", &busy.decision])
    );
}

#[test]
fn bypass_events_have_the_true_state_before_and_the_duration() {
    let daemon = quiet();
    for arguments in [&["bypass", "on", "--for", "30m"][..], &["bypass", "on"], &["bypass", "off"], &["bypass", "off"]]
    {
        assert!(daemon.ctl(arguments).status.success());
    }
    let events =
        daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().is_some_and(|all| all.len() >= 3));
    let states: Vec<(&str, &str)> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["before"].as_str().unwrap(), event["after"].as_str().unwrap()))
        .collect();
    let timed = |text: &str| text.starts_with("on for 1") && text.ends_with(" s");
    assert_eq!((states[0].0, states[1].1, states[2]), ("off", "on", ("on", "off")), "{states:?}");
    assert!(timed(states[0].1) && timed(states[1].0), "{states:?}");
    assert!(
        daemon.log().lines().filter(|line| line.contains("bypass")).all(|line| !line.contains('{')),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_bypass_that_ends_while_no_daemon_runs_is_recorded_once() {
    let mut daemon = quiet();
    assert!(daemon.ctl(&["bypass", "on", "--for", "1s"]).status.success());
    daemon.kill();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for _ in 0..2 {
        daemon.restart().unwrap();
        let ended = |event: &&serde_json::Value| event["by"] == "governord" && event["action"] == "bypass";
        let events = daemon.wait_for("/v1/events?last_seconds=600", |events| {
            events.as_array().is_some_and(|all| all.iter().any(|event| ended(&event)))
        });
        let ended: Vec<_> = events.as_array().unwrap().iter().filter(ended).collect();
        assert_eq!(ended.len(), 1, "{events}");
        assert_eq!((&ended[0]["before"], &ended[0]["after"]), (&"on".into(), &"off".into()));
    }
}

#[test]
fn a_raw_key_is_hashed_as_the_client_library_hashes_it() {
    use std::io::Write;
    use std::process::Stdio;
    let hash = |secret: Option<&str>, arguments: &[&str], raw: &str| {
        let mut command = support::programs::daemon::ctl_command(
            std::path::Path::new("/nonexistent/control.sock"),
            &["key", "--hash"],
        );
        command.args(arguments).env_remove("NODE_SECRET").envs(secret.map(|secret| ("NODE_SECRET", secret)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It may have ended by then, because of its secret.
        drop(child.stdin.take().unwrap().write_all(raw.as_bytes()));
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let secret = governor_client::NodeSecret::new(b"shared secret").unwrap();
    let config = governor_client::Config { secret, ..governor_client::Config::new("/nonexistent/proxy.sock") };
    let expected = format!("{}\n", governor_client::Governor::start(config).key(b"sk-123"));
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "shared secret\n").unwrap();
    assert_eq!(hash(Some("shared secret"), &[], "sk-123\n"), (Some(0), expected.clone(), String::new()));
    assert_eq!(hash(None, &["--secret-file", file.to_str().unwrap()], "sk-123").1, expected);
    let (code, _, said) = hash(Some(""), &[], "sk-123\n");
    assert!(code == Some(1) && said.contains("node secret is empty"), "{said}");
    let (code, _, said) = hash(Some("shared secret"), &[], "");
    assert!(code == Some(1) && said.contains("standard input is empty"), "{said}");
}

#[test]
fn a_key_needs_a_setting_that_fits_it() {
    let daemon = quiet();
    for (arguments, words) in [
        (&["key", "--cap", "1"][..], "<KEY>"),
        (&["key", "batch", "--for", "1h"], "--cap"),
        (&["key", "batch", "--clear", "--suspend"], "cannot be used with"),
        (&["key", "--clear"], "<KEY>"),
        (&["key", "batch"], "--cap"),
    ] {
        let said = of(&daemon, arguments);
        assert!(said.contains(words) && said.ends_with("(exit code 2)"), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orgs_show_their_class_and_what_they_may_hold() {
    let daemon =
        Setup::new("[pools.chat]\nfair_share = \"max-min\"\n[pools.chat.members.a]\nslots = 8\nreserve = 0\n").start();
    let governor = crate::world::client(&daemon).await;
    let ask = governor_client::AcquireRequest::new("chat").key(governor.key(b"k")).label("batch").site("chat.rs:7");
    let lease = governor.acquire(ask.org(governor.key(b"acme")).class("tier0")).await.unwrap();
    insta::assert_snapshot!(of(&daemon, &["keys", "--orgs"]), @"
    ORG  CLASS  TIER  REQUESTS  CAP  POOL  IN FLIGHT  PARKED  SHARE  WEIGHT  FLOOR
    KEY  tier0  -  1  100  chat  1  0  7  1  0
    ");
    insta::assert_snapshot!(of(&daemon, &["keys"]), @"
    POOL  KEY  LABEL  ORG  IN FLIGHT  PARKED  SHARE
    chat  KEY  batch  KEY…  1  0  7
    ");
    let suspended = lease.suspend();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    insta::assert_snapshot!(of(&daemon, &["leases"]), @"
    LEASE  POOL  MEMBER  KEY  KIND  SESSION  AGE  IDLE  EXPIRES IN  LABEL  ORG  STATE  ASKED AT
    l-ID  chat  a  KEY…  ordinary  s-1  TIME  -  TIME  batch  KEY…  suspended  chat.rs:7
    ");
    drop(suspended);
}
