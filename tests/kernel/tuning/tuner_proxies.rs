//! nginx and HAProxy as Debian ships them, tuned without any change to them, through their own reloads.

use crate::tuning::tuner_world::{
    ADDRESS, backlog, burst_until_none_is_refused, of, recorded, records, setup, watches,
};
use crate::world::namespace;
use rustix::process::Signal;
use std::{net::SocketAddr, thread, time::Duration};
use support::machine::netns::Netns;
use support::machine::ss;
use support::programs::daemon::Daemon;
use support::programs::peer::Peer;
use support::programs::proxy::{Proxy, signal, wait};
use support::skip;

const PORT: u16 = 8080;
const CLIENTS: u32 = 200;

fn place() -> SocketAddr {
    SocketAddr::new(ADDRESS.parse().expect("an address"), PORT)
}

/// Clients that come while the proxy is busy with something else for a moment; it is idle otherwise.
fn burst(clients: &mut Peer, busy: &[u32]) -> u32 {
    busy.iter().for_each(|pid| signal(*pid, Signal::STOP));
    clients.begin(ADDRESS, PORT, CLIENTS);
    thread::sleep(Duration::from_millis(60));
    busy.iter().for_each(|pid| signal(*pid, Signal::CONT));
    thread::sleep(Duration::from_millis(300));
    clients.reset_connections();
    CLIENTS
}

/// A daemon that tunes the proxy's listener and nothing else.
fn tuner(namespace: &Netns) -> Daemon {
    let daemon = setup(&place().to_string(), "mode = \"enforce\"", "").start();
    watches(&daemon, namespace, 1);
    daemon
}

#[test]
fn nginx_is_tuned_through_its_reload_its_upgrade_and_a_new_configuration() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(nginx) = Proxy::nginx(&namespace, place(), 5) else { return skip("nginx is not installed") };
    let mut clients = Peer::start(&namespace);
    let daemon = tuner(&namespace);
    let workers = || nginx.titled("nginx: worker");
    wait("two workers", || workers().len() == 2);

    burst_until_none_is_refused(&namespace, || burst(&mut clients, &workers()));
    let raised = backlog(&namespace, PORT);
    assert!(raised >= CLIENTS - 1, "{raised}");
    assert_eq!(recorded(&daemon, "raise", 1).last().unwrap()["after"], raised);

    // A reload of the same configuration: new workers on the same socket, on which nginx does not listen again.
    let old = workers();
    let master = nginx.titled("nginx: master")[0];
    signal(master, Signal::HUP);
    wait("new workers only", || workers().len() == 2 && workers().iter().all(|pid| !old.contains(pid)));
    thread::sleep(Duration::from_millis(200));
    assert_eq!((backlog(&namespace, PORT), records(&daemon, "reverted").len()), (raised, 0));

    // An upgrade of the program: the new master listens with what its configuration says, which is the value first seen.
    signal(master, Signal::USR2);
    recorded(&daemon, "reverted", 1);
    let again = &recorded(&daemon, "reapply", 1)[0];
    assert_eq!((&again["before"], &again["after"]), (&5.into(), &raised.into()));
    assert_eq!(backlog(&namespace, PORT), raised);
    let masters = nginx.titled("nginx: master");
    assert!(masters.len() == 2 && masters[0] == master, "{masters:?}");

    // Another value in the configuration: the operator wants it so.
    nginx.configure_nginx(place(), 64);
    signal(masters[1], Signal::HUP);
    let stood_down = &recorded(&daemon, "stand_down", 1)[0];
    assert_eq!((&stood_down["after"], backlog(&namespace, PORT)), (&64.into(), 64));
    burst(&mut clients, &workers());
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(backlog(&namespace, PORT), 64, "until told to resume");
    assert!(daemon.stop().success());
}

#[test]
fn haproxy_is_tuned_through_a_reload_that_hands_its_sockets_over_and_one_that_does_not() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(mut haproxy) = Proxy::haproxy(&namespace, place(), 5) else { return skip("HAProxy is not installed") };
    let mut clients = Peer::start(&namespace);
    let daemon = tuner(&namespace);

    burst_until_none_is_refused(&namespace, || burst(&mut clients, &[haproxy.pid()]));
    let raised = backlog(&namespace, PORT);
    assert!(raised >= CLIENTS - 1, "{raised}");

    // Handed over: the same socket in another process.
    let (old, stats) = (haproxy.pid().to_string(), haproxy.path("stats.sock").display().to_string());
    haproxy.succeed(&["-x", &stats, "-sf", &old]);
    assert_eq!((backlog(&namespace, PORT), records(&daemon, "stand_down").len()), (raised, 0));
    burst_until_none_is_refused(&namespace, || burst(&mut clients, &[haproxy.pid()]));
    assert_eq!(backlog(&namespace, PORT), raised);

    // Not handed over: another socket, as its owner asked for it, and tuned as such.
    let old = haproxy.pid().to_string();
    haproxy.succeed(&["-sf", &old]);
    wait("one socket listens", || ss::listeners(&namespace).len() == 1);
    assert_eq!(backlog(&namespace, PORT), 5);
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, &namespace).iter().any(|one| one["backlog"] == 5));
    burst_until_none_is_refused(&namespace, || burst(&mut clients, &[haproxy.pid()]));
    assert!(backlog(&namespace, PORT) >= CLIENTS - 1);
    assert_eq!(records(&daemon, "failed").len(), 0);
    assert!(daemon.stop().success());
}
