//! The tuner against real listeners of processes that know nothing of it: `ss` and `nstat` say what became of them.

use crate::tuning::tuner_world::{
    ADDRESS, backlog, backlog_becomes, burst_until_none_is_refused, handles, inventory, of, overflows, recorded,
    records, set_mode, setup, watches,
};
use crate::world::namespace;
use governor_client::{AcquireRequest, Config, Governor, NodeSecret, Priority};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use support::machine::netns::Netns;
use support::machine::ss;
use support::programs::peer::Peer;

/// Accepts a second of the server, and clients of a burst.
const RATE: u32 = 2000;
const CLIENTS: u32 = 200;

/// A server with this backlog, which accepts at [`RATE`], and its port.
fn server(namespace: &Netns, address: &str, backlog: u32) -> (Peer, u16) {
    let mut server = Peer::start(namespace);
    let port = server.listen(address, backlog);
    server.serve(port, RATE);
    (server, port)
}

#[test]
fn observing_says_what_it_would_do_and_enforcing_ends_the_overflows_of_a_server_that_knows_nothing_of_it() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let (server, port) = server(&namespace, ADDRESS, 5);
    let mut clients = Peer::start(&namespace);
    let listener = format!("{ADDRESS}:{port}");
    let daemon = setup(&listener, "mode = \"observe\"", "").start();
    watches(&daemon, &namespace, 1);

    assert!(clients.burst(ADDRESS, port, CLIENTS) < CLIENTS);
    assert!(overflows(&namespace) > 0);
    let would = &recorded(&daemon, "would_raise", 1)[0];
    assert!(would["before"] == 5 && would["after"].as_u64() > Some(5), "{would}");
    assert_eq!(backlog(&namespace, port), 5);
    let shown = String::from_utf8(daemon.ctl(&["tune", "--dry-run"]).stdout).unwrap();
    assert!(shown.contains(&listener) && shown.contains("were accepted in"), "{shown}");

    let (owner, own) = (inventory(server.pid()), handles(daemon.pid()));
    set_mode(&daemon, &listener, "enforce");
    burst_until_none_is_refused(&namespace, || clients.burst(ADDRESS, port, CLIENTS));
    let raised = recorded(&daemon, "raise", 1);
    let last = raised.last().unwrap();
    assert_eq!(last["after"], backlog(&namespace, port), "the journal has what the kernel says: {raised:#?}");
    assert_eq!((&raised[0]["before"], &last["pid"]), (&5.into(), &server.pid().into()));
    assert!(backlog(&namespace, port) >= CLIENTS / 2, "{raised:#?}");
    let events = daemon.get("/v1/events?last_seconds=3600");
    assert!(events.as_array().unwrap().iter().any(|event| event["action"] == "tune raise"), "{events}");

    assert_eq!(inventory(server.pid()), owner, "the owner has the same descriptors and threads");
    assert_eq!(handles(daemon.pid()), own, "and the tuner holds no socket or process of anybody");
    let state = daemon.get("/v1/tuner");
    assert_eq!(of(&state, &namespace)[0]["state"], "raised", "{state}");
    assert!(daemon.stop().success());
    assert!(backlog(&namespace, port) > 5, "a stop keeps what was raised");
}

#[test]
fn sustained_overload_is_not_given_a_longer_queue() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let port = server.listen(ADDRESS, 5);
    server.serve(port, 100);
    let mut clients = Peer::start(&namespace);
    let daemon = setup(&format!("{ADDRESS}:{port}"), "mode = \"enforce\"", "").start();
    watches(&daemon, &namespace, 1);
    clients.load(ADDRESS, port, 500, 4);
    assert!(overflows(&namespace) > 100);
    let tuner = daemon.get("/v1/tuner");
    let reason = of(&tuner, &namespace)[0]["plan"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("the queue stands") || reason.starts_with("nothing is accepted"), "{reason}");
    // The queue drains now; that is no burst either.
    daemon.wait_for("/v1/listeners", |rows| {
        rows.as_array().unwrap().iter().any(|row| row["port"] == port && row["depth"] == 0)
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((records(&daemon, "raise"), backlog(&namespace, port)), (Vec::new(), 5));
}

#[test]
fn a_server_on_ipv6_in_user_and_process_namespaces_of_its_own_is_tuned_alike() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start_apart(&namespace);
    let port = server.listen("::1", 5);
    server.serve(port, RATE);
    let mut clients = Peer::start(&namespace);
    let listener = format!("[::1]:{port}");
    let daemon = setup(&listener, "mode = \"enforce\"", "").start();
    watches(&daemon, &namespace, 1);
    burst_until_none_is_refused(&namespace, || clients.burst("::1", port, CLIENTS));
    let raised = recorded(&daemon, "raise", 1);
    assert_eq!(raised.last().unwrap()["after"], backlog(&namespace, port));
    assert_eq!(records(&daemon, "failed"), Vec::<serde_json::Value>::new());
}

#[test]
fn every_socket_of_a_reuseport_group_gets_what_one_of_them_needs() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let port = server.listen_group(ADDRESS, 5, 3);
    server.serve_group(RATE);
    let mut clients = Peer::start(&namespace);
    let daemon = setup(&format!("{ADDRESS}:{port}"), "mode = \"enforce\"", "").start();
    watches(&daemon, &namespace, 3);
    burst_until_none_is_refused(&namespace, || clients.burst(ADDRESS, port, CLIENTS));
    let members = ss::listeners(&namespace);
    assert!(members.iter().all(|member| member.backlog > 5), "{members:?}");
    let raised = records(&daemon, "raise");
    assert!(raised.iter().any(|record| record["reason"].as_str().unwrap().contains("same address and port")));
}

#[test]
fn a_reload_is_made_good_once_a_process_and_an_operator_is_obeyed_until_resume() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let (mut server, port) = server(&namespace, ADDRESS, 5);
    let mut clients = Peer::start(&namespace);
    let listener = format!("{ADDRESS}:{port}");
    let daemon = setup(&listener, "mode = \"enforce\"", "").start();
    watches(&daemon, &namespace, 1);
    clients.burst(ADDRESS, port, CLIENTS);
    let raised = backlog_becomes(&namespace, port, "raised", |backlog| backlog > 5);

    server.relisten(port, 5);
    recorded(&daemon, "reverted", 1);
    let again = &recorded(&daemon, "reapply", 1)[0];
    assert_eq!((&again["before"], &again["after"]), (&5.into(), &raised.into()));
    assert_eq!(backlog(&namespace, port), raised);

    server.relisten(port, 64);
    let stood_down = &recorded(&daemon, "stand_down", 1)[0];
    assert_eq!((&stood_down["before"], &stood_down["after"]), (&raised.into(), &64.into()));
    clients.burst(ADDRESS, port, CLIENTS);
    clients.burst(ADDRESS, port, CLIENTS);
    assert_eq!(backlog(&namespace, port), 64);
    let shown = String::from_utf8(daemon.ctl(&["tune"]).stdout).unwrap();
    assert!(shown.contains("stood_down") && shown.contains("governorctl tune resume"), "{shown}");

    let resumed = daemon.ctl(&["tune", "resume", &listener]);
    assert!(resumed.status.success(), "{resumed:?}");
    burst_until_none_is_refused(&namespace, || clients.burst(ADDRESS, port, CLIENTS));
    assert!(backlog(&namespace, port) > 64);
    assert_eq!(daemon.ctl(&["tune", "resume", &listener]).status.code(), Some(1), "nothing is left alone");
}

#[test]
fn the_cap_of_the_sockets_namespace_is_named_and_raised_there_only_if_asked_for() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    assert!(namespace.set("core/somaxconn", "8"));
    let (_server, port) = server(&namespace, ADDRESS, 8);
    let mut clients = Peer::start(&namespace);
    let listener = format!("{ADDRESS}:{port}");
    let host = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();

    let daemon = setup(&listener, "mode = \"enforce\"", "").start();
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).iter().any(|one| one["somaxconn"] == 8));
    clients.burst(ADDRESS, port, CLIENTS);
    let clamped = &recorded(&daemon, "clamped", 1)[0];
    let reason = clamped["reason"].as_str().unwrap();
    assert!(reason.starts_with("clamped: 8") && reason.contains(&namespace.inode().to_string()), "{reason}");
    assert_eq!((backlog(&namespace, port), &clamped["limit"]), (8, &"somaxconn".into()));
    assert!(daemon.stop().success());

    let global = "raise_somaxconn = true\nat_exit = \"restore\"";
    let daemon = setup(&listener, "mode = \"enforce\"", global).start();
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).iter().any(|one| one["somaxconn"] == 8));
    burst_until_none_is_refused(&namespace, || clients.burst(ADDRESS, port, CLIENTS));
    let cap = &records(&daemon, "somaxconn")[0];
    assert_eq!(cap["before"], 8, "{cap}");
    assert!(backlog(&namespace, port) > 8);
    assert_eq!(std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap(), host, "the host's is its own");
    assert!(daemon.stop().success());
    assert_eq!(backlog(&namespace, port), 8, "the stop has restored it");
    let cap = std::process::Command::new("ip")
        .args(["netns", "exec", namespace.name(), "cat", "/proc/sys/net/core/somaxconn"])
        .output()
        .unwrap();
    assert_eq!(cap.stdout, b"8\n");
}

#[test]
fn a_daemon_that_was_killed_knows_in_its_next_life_what_the_owner_had_asked_for() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let (_server, port) = server(&namespace, ADDRESS, 5);
    let mut clients = Peer::start(&namespace);
    let listener = format!("{ADDRESS}:{port}");
    let mut daemon = setup(&listener, "mode = \"enforce\"", "at_exit = \"restore\"").start();
    watches(&daemon, &namespace, 1);
    clients.burst(ADDRESS, port, CLIENTS);
    backlog_becomes(&namespace, port, "raised", |backlog| backlog > 5);
    recorded(&daemon, "raise", 1);
    daemon.kill();
    assert!(backlog(&namespace, port) > 5);
    daemon.restart().unwrap();
    let tuner = daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).len() == 1);
    let one = &of(&tuner, &namespace)[0];
    assert_eq!((&one["original"], &one["state"]), (&5.into(), &"raised".into()), "{tuner}");
    daemon.halt();
    assert_eq!(backlog(&namespace, port), 5, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_in_front_of_an_idle_proxy_is_given_room_and_costs_no_request() {
    let Some(namespace) = namespace() else { return };
    let (_server, port) = server(&namespace, ADDRESS, 5);
    let mut clients = Peer::start(&namespace);
    // The proxy's listener by its port; what it asks for comes over a session of this process.
    let policy = format!(
        "mode = \"enforce\"\n[overload]\nmode = \"enforce\"\nports = [\"{port}\"]\n\
         [[pools.chat.members]]\nname = \"m\"\nslots = 8"
    );
    let daemon = setup(&format!("{ADDRESS}:{port}"), &policy, "").start();
    watches(&daemon, &namespace, 1);
    let config =
        Config { name: "idle".to_owned(), secret: NodeSecret::new(b"tuner").unwrap(), ..Config::new(daemon.socket()) };
    let governor = Governor::start(config);
    let mut connected = governor.connected();
    connected.wait_for(|connected| *connected).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let mut granted = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let request = AcquireRequest::new("chat").key(governor.key(b"light")).priority(Priority::Sheddable);
                drop(governor.acquire(request).await.expect("nobody is refused for a queue that drains"));
                granted += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            granted
        }
    });
    let namespace = tokio::task::spawn_blocking(move || {
        burst_until_none_is_refused(&namespace, || clients.burst(ADDRESS, port, CLIENTS));
        namespace
    });
    let namespace = namespace.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(asking.await.unwrap() > 0);
    assert!(backlog(&namespace, port) > 5);
    assert_eq!(daemon.get("/v1/status")["shed_level"], "normal");
}

#[test]
fn a_raise_is_taken_back_after_quiet() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let (_server, port) = server(&namespace, ADDRESS, 5);
    let mut clients = Peer::start(&namespace);
    let daemon = setup(&format!("{ADDRESS}:{port}"), "mode = \"enforce\"\nquiet = \"2s\"", "").start();
    watches(&daemon, &namespace, 1);
    clients.burst(ADDRESS, port, CLIENTS);
    recorded(&daemon, "raise", 1);
    let lowered = &recorded(&daemon, "lower", 1)[0];
    assert_eq!((&lowered["after"], backlog(&namespace, port)), (&5.into(), 5));
}
