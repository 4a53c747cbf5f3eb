//! Connections that say nothing or half of something: descriptors stay bounded and a proxy can always connect.

use super::Attacker;
use super::can_change_user;
use super::descriptors;
use super::figure;
use super::greeted;
use super::open_to_all;
use crate::signals::metrics::page_over;
use crate::world::pool;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::programs::daemon::{Daemon, Setup, free_port};

/// Opens connections to a Unix path or a TCP port, sends half a request on each, and holds them.
const HALF_OPEN: &str = r#"
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held, refused = [], 0
for _ in range(int(sys.argv[2])):
    try:
        if sys.argv[1].startswith("/"):
            s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(sys.argv[1])
        else:
            s = socket.socket(); s.settimeout(2); s.connect(("127.0.0.1", int(sys.argv[1])))
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        held.append(s)
    except OSError:
        refused += 1
print(len(held), refused, flush=True)
sys.stdin.read()
"#;

/// Connects and closes without a word, as fast as it can.
const SILENT: &str = r#"
import socket, sys
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    try:
        s.connect(sys.argv[1])
    except OSError:
        pass
    s.close()
print("done", flush=True)
sys.stdin.read()
"#;

/// Connects and holds without a word.
const MUTE: &str = r#"
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX); s.settimeout(2)
    try:
        s.connect(sys.argv[1]); held.append(s)
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"#;

/// Descriptors the daemon may have in these tests.
const LIMIT: usize = 512;

fn daemon(metrics: SocketAddr) -> Daemon {
    let daemon = Setup::new(&pool(1, 8, ""))
        .within(&format!("ulimit -n {LIMIT}; exec"))
        .metrics(metrics)
        .env("GOVERNOR_DAEMON_SOCKET_MODE", "0666")
        .env("GOVERNOR_DAEMON_CONTROL_MODE", "0666")
        .start();
    open_to_all(&daemon);
    daemon
}

/// Greets within a second at most, so that the attack is still on; `None`: it could not.
fn proxy_connects(daemon: &Daemon) -> Option<Duration> {
    let socket = daemon.socket();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(std::panic::catch_unwind(|| greeted(&socket).1).ok()));
    receiver.recv_timeout(Duration::from_secs(3)).ok().flatten()
}

#[test]
fn half_open_requests_leave_descriptors_for_proxies() {
    if !can_change_user() {
        return;
    }
    let metrics = free_port();
    let daemon = daemon(metrics);
    let idle = descriptors(&daemon);
    let control = daemon.control_socket();
    for target in [control.to_str().unwrap(), &metrics.port().to_string()] {
        let mut attacker = Attacker::start(HALF_OPEN, &[target, "700"]);
        let held = attacker.line();
        let (during, connects) = (descriptors(&daemon), proxy_connects(&daemon));
        figure(&format!(
            "700 half-open requests to {}: held and refused {held}; descriptors {idle} → {during} of {LIMIT}; a proxy connects: {connects:?}",
            if target.starts_with('/') { "control" } else { "metrics" },
        ));
        assert!(connects.is_some(), "a proxy is served while the attack lasts");
    }
}

#[test]
fn metrics_on_a_unix_socket_are_served_while_their_port_is_attacked() {
    if !can_change_user() {
        return;
    }
    let metrics = free_port();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics.sock");
    let setup = Setup::new(&pool(1, 8, "")).metrics(metrics);
    let _daemon = setup.env("GOVERNOR_DAEMON_METRICS_SOCKET", socket.to_str().unwrap()).start();
    let mut attacker = Attacker::start(HALF_OPEN, &[&metrics.port().to_string(), "300"]);
    attacker.line();
    let text = page_over(UnixStream::connect(&socket).unwrap(), "Accept: application/openmetrics-text\r\n").1;
    assert!(text.contains("governor_sessions") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn connections_without_hello_keep_nothing() {
    if !can_change_user() {
        return;
    }
    let daemon = daemon(free_port());
    let idle = descriptors(&daemon);
    let socket = daemon.socket();
    let mut closing = Attacker::start(SILENT, &[socket.to_str().unwrap(), "2000"]);
    let begun = Instant::now();
    assert_eq!(closing.line(), "done");
    let (after, connects) = (descriptors(&daemon), proxy_connects(&daemon));
    figure(&format!(
        "2000 connections closed without Hello in {:?}: descriptors {idle} → {after} of {LIMIT}; a proxy connects: {connects:?}",
        begun.elapsed()
    ));
    assert!(connects.is_some(), "a proxy is served after the attack");
    drop(closing);
    let mut mute = Attacker::start(MUTE, &[socket.to_str().unwrap(), "700"]);
    let held = mute.line();
    let (during, connects) = (descriptors(&daemon), proxy_connects(&daemon));
    figure(&format!(
        "{held} connections held without Hello: descriptors {idle} → {during} of {LIMIT}; a proxy connects: {connects:?}"
    ));
    assert!(connects.is_some(), "a proxy of another user is served while the attack lasts");
}
