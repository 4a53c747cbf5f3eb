//! Orders of operators for single listeners, and what the tuner's books say of listeners that closed or are left alone.

use crate::tuning::tuner_world::{ADDRESS, backlog, backlog_becomes, of, recorded, records, setup, watches};
use crate::world::namespace;
use serde_json::Value;
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::programs::daemon::Daemon;
use support::programs::peer::Peer;

const RATE: u32 = 2000;
const CLIENTS: u32 = 200;

fn server(namespace: &Netns) -> (Peer, u16) {
    let mut server = Peer::start(namespace);
    let port = server.listen(ADDRESS, 5);
    server.serve(port, RATE);
    (server, port)
}

fn ctl(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = daemon.ctl(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("governorctl writes text")
}

fn row(daemon: &Daemon, namespace: &Netns, port: u16) -> Value {
    let tuner = daemon.get("/v1/tuner");
    of(&tuner, namespace).into_iter().find(|one| one["port"] == port).unwrap_or_else(|| panic!("{port}: {tuner:#}"))
}

#[test]
fn one_listener_is_enforced_and_restored_and_no_other() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let ((_one, port), (_other, other)) = (server(&namespace), server(&namespace));
    let mut clients = Peer::start(&namespace);
    let listener = format!("{ADDRESS}:{port}");
    // Everything else on the machine is only observed.
    let mut daemon = setup("127.77.0.99:1", "", "")
        .env("GOVERNOR_TUNER_MODE", "observe")
        .env("GOVERNOR_TUNER_MAX_WAIT", "2s")
        .start();
    watches(&daemon, &namespace, 2);
    let netns = namespace.inode().to_string();
    let said = ctl(&daemon, &["tune", "enforce", &listener, "--netns", &netns]);
    assert!(
        said.contains("enforce is set") && said.contains(&listener) && !said.contains(&format!(":{other} ")),
        "{said}"
    );
    for port in [port, other] {
        clients.burst(ADDRESS, port, CLIENTS);
    }
    let raised = backlog_becomes(&namespace, port, "raised", |backlog| backlog > 5);
    recorded(&daemon, "would_raise", 1);
    assert_eq!(backlog(&namespace, other), 5);
    assert_eq!(row(&daemon, &namespace, other)["mode"], "observe");
    let events = daemon.get("/v1/events?last_seconds=3600");
    assert!(events.as_array().unwrap().iter().any(|event| event["action"] == "tune mode"), "{events:#}");

    daemon.restart().unwrap();
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).iter().any(|one| one["mode"] == "enforce"));
    assert_eq!((backlog(&namespace, port), &row(&daemon, &namespace, port)["original"]), (raised, &5.into()));

    let said = ctl(&daemon, &["tune", "restore", &listener]);
    assert!(said.contains(&format!("backlog 5 instead of {raised}")), "{said}");
    assert_eq!(backlog(&namespace, port), 5);
    assert_eq!(row(&daemon, &namespace, port)["state"], "stood_down");
    clients.burst(ADDRESS, port, CLIENTS);
    assert_eq!(backlog(&namespace, port), 5, "it is left alone");
    ctl(&daemon, &["tune", "resume", &listener]);
    assert_eq!(row(&daemon, &namespace, port)["state"], "untouched");

    let shown = ctl(&daemon, &["tune"]);
    assert!(shown.contains(&format!("enforce for {listener} in network namespace {netns}")), "{shown}");
    let unknown = daemon.ctl(&["tune", "clear", &listener]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    ctl(&daemon, &["tune", "clear", &listener, "--netns", &netns]);
    assert_eq!(daemon.get("/v1/tuner")["settings"], Value::Array(Vec::new()));
    assert_eq!(row(&daemon, &namespace, port)["mode"], "observe");
}

#[test]
fn a_listener_is_named_by_its_process_cgroup_or_cookie() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let group = Cgroup::create("tuned").expect("root may");
    let mut one = Peer::start_in(&namespace, &group);
    let port = one.listen(ADDRESS, 5);
    let (_other, other) = server(&namespace);
    let daemon = setup("127.77.0.99:1", "", "").env("GOVERNOR_TUNER_MODE", "observe").start();
    watches(&daemon, &namespace, 2);
    let modes = || [port, other].map(|port| row(&daemon, &namespace, port)["mode"].as_str().unwrap().to_owned());
    let cookie = format!("cookie:{}", row(&daemon, &namespace, port)["cookie"]);
    for which in [&[cookie.as_str()][..], &["--pid", &one.pid().to_string()], &["--cgroup", group.path()]] {
        ctl(&daemon, &[&["tune", "enforce"], which].concat());
        assert_eq!(modes(), ["enforce", "observe"], "{which:?}");
        ctl(&daemon, &[&["tune", "clear"], which].concat());
        assert_eq!(modes(), ["observe", "observe"], "{which:?}");
    }
    for wrong in [
        &["tune", "enforce"][..],
        &["tune", "enforce", "https"],
        &["tune", "restore", ":1"],
        &["tune", "enforce", ":1", "--cgroup", "a"],
    ] {
        assert!(!daemon.ctl(wrong).status.success(), "{wrong:?}");
    }
    drop(one);
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).len() == 1);
}

#[test]
fn what_closed_or_is_left_alone_is_off_the_books() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let (mut owner, port) = server(&namespace);
    let mut clients = Peer::start(&namespace);
    let daemon = setup(&format!("{ADDRESS}:{port}"), "mode = \"enforce\"", "").start();
    watches(&daemon, &namespace, 1);
    clients.burst(ADDRESS, port, CLIENTS);
    recorded(&daemon, "raise", 1);
    for by_operator in [64, 77] {
        owner.relisten(port, by_operator);
        daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).iter().any(|one| one["backlog"] == by_operator));
    }
    assert_eq!(records(&daemon, "stand_down").len(), 1);
    owner.close_all();
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).is_empty());
}
