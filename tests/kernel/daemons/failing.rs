//! Sources that fail after the start: a daemon runs out of descriptors while it observes. What it cannot see any more is
//! unknown and never frozen, it says so once, and everything comes back.

use crate::daemons::life::row_of;
use crate::world::namespace;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};
use support::programs::daemon::{Daemon, Setup};
use support::programs::peer::Peer;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the control API that is open before descriptors run out.
struct Kept(BufReader<UnixStream>);

impl Kept {
    fn open(daemon: &Daemon) -> Self {
        let stream = UnixStream::connect(daemon.control_socket()).expect("the daemon runs");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Self(BufReader::new(stream))
    }

    fn get(&mut self, path: &str) -> Value {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: governor\r\n\r\n").expect("the daemon reads");
        let (mut line, mut length) = (String::new(), 0);
        while self.0.read_line(&mut line).expect("the daemon answers") > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the whole body");
        serde_json::from_slice(&body).expect("JSON")
    }

    fn wait_for(&mut self, path: &str, expected: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.get(path);
            if expected(&answer) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "never seen at {path}; last: {answer:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Leaves a process no free descriptor; gives back its limit. Those that it opens and closes again are not counted.
fn choke(pid: Pid) -> Rlimit {
    let lowest_free = || {
        let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("the daemon runs").flatten();
        let open: BTreeSet<u64> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        (0..).find(|number| !open.contains(number)).expect("there is a free number")
    };
    let samples = (0..50).map(|_| {
        thread::sleep(Duration::from_millis(2));
        lowest_free()
    });
    let lowest = samples.min().expect("fifty samples");
    let choked = Rlimit { current: Some(lowest), ..getrlimit(Resource::Nofile) };
    prlimit(Some(pid), Resource::Nofile, choked).expect("root may")
}

fn failing(doctor: &Value) -> Vec<String> {
    let checks = doctor.as_array().into_iter().flatten();
    checks.filter_map(|check| check["name"].as_str()?.strip_prefix("source ").map(str::to_owned)).collect()
}

#[test]
fn what_cannot_be_read_any_more_is_unknown_until_it_can() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let mut clients = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 4);
    let setup = Setup::new("").tier("auto").env("GOVERNOR_KERNEL_TICK", "20ms").env("GOVERNOR_KERNEL_AUDIT", "500ms");
    let daemon = setup.start();
    clients.connect("127.0.0.1", port, 2);
    let rows =
        daemon.wait_for("/v1/listeners", |rows| row_of(rows, &namespace, port).is_some_and(|row| row["depth"] == 2));
    let before = row_of(&rows, &namespace, port).unwrap();
    let pid = Pid::from_raw(daemon.pid().try_into().unwrap()).unwrap();
    let mut kept = Kept::open(&daemon);
    kept.get("/v1/status");

    let limit = choke(pid);
    kept.wait_for("/v1/listeners", |rows| row_of(rows, &namespace, port).is_none());
    let sources = ["socket_tables", "namespace_counters", "process_walk", "cgroup_tree"];
    // Each is noticed when it is read next.
    kept.wait_for("/v1/doctor", |doctor| {
        let failing = failing(doctor);
        sources.iter().all(|source| failing.iter().any(|name| name == source))
    });
    let status = kept.get("/v1/status");
    let degraded = status["degraded"].to_string();
    assert!(
        degraded.contains("cannot be listed by socket diagnostics (") && degraded.contains("os error 24"),
        "{degraded}"
    );
    let verdicts = kept.get("/v1/verdicts");
    let judged = verdicts.as_array().into_iter().flatten().filter(|row| row["port"] == port);
    assert_eq!(judged.count(), 0, "what is unknown is not judged");
    clients.connect("127.0.0.1", port, 1);

    prlimit(Some(pid), Resource::Nofile, limit).expect("root may");
    let rows =
        kept.wait_for("/v1/listeners", |rows| row_of(rows, &namespace, port).is_some_and(|row| row["depth"] == 3));
    let after = row_of(&rows, &namespace, port).unwrap();
    assert_eq!(after["cookie"], before["cookie"]);
    if !before["enqueued_total"].is_null() {
        kept.wait_for("/v1/listeners", |rows| {
            row_of(rows, &namespace, port).is_some_and(|row| row["enqueued_total"] == 3)
        });
    }
    kept.wait_for("/v1/doctor", |doctor| failing(doctor).is_empty());
    let begun = Instant::now();
    while daemon.log().matches("a kernel source works again").count() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{}", daemon.log());
        thread::sleep(Duration::from_millis(20));
    }
    let warned = daemon.log().matches("listeners cannot be listed by socket diagnostics").count();
    assert_eq!(warned, 2, "one warning and one line at its end: {}", daemon.log());
    assert!(daemon.stop().success());
}
