//! Hostile peers: each test attacks a real daemon within bounds, prints what the attack cost the others, and asserts the
//! bound that SECURITY.md names. Times are printed and never asserted: they depend on the machine.

mod advice;
mod connections;
mod flood;
mod leases;
mod sessions;

use crate::raw::Raw;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::Request;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::programs::daemon::Daemon;

/// Prints one line of figures; libtest shows it with `--show-output`.
fn figure(line: &str) {
    #[expect(clippy::print_stdout, reason = "the figures are what these tests are read for")]
    {
        println!("FIGURE: {line}");
    }
}

/// Latency of acquires of a session that behaves well.
struct Latency {
    p50: Duration,
    p99: Duration,
    worst: Duration,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "p50 {:?}, p99 {:?}, worst {:?}", self.p50, self.p99, self.worst)
    }
}

/// One acquire starts every so often, so that a stall delays as many as it would delay in a proxy.
const PACE: Duration = Duration::from_millis(2);

/// Measures `count` acquires on this session, each from the moment it should have been sent.
fn latency(raw: &mut Raw, count: u32) -> Latency {
    let begun = Instant::now();
    let mut all: Vec<Duration> = (0..count)
        .map(|n| {
            let due = begun + PACE * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = due.max(begun);
            let reply = raw.acquire(1000 + n, |_| ());
            let took = sent.elapsed();
            let Reply::Grant(grant) = reply else { panic!("no grant: {reply:?}") };
            raw.send(0, &Request::Release { leases: vec![grant.lease] });
            took
        })
        .collect();
    all.sort();
    let at = |permille: usize| all[(all.len() * permille / 1000).min(all.len() - 1)];
    Latency { p50: at(500), p99: at(990), worst: at(1000) }
}

/// One line of `/proc/PID/status` in KiB: `VmRSS` or `VmHWM`.
fn memory_kib(daemon: &Daemon, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Descriptors the daemon has open.
fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// Lets other users reach the daemon's sockets.
fn open_to_all(daemon: &Daemon) {
    let folder = daemon.socket().parent().unwrap().to_owned();
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// A user that owns nothing, for attacks by another user.
const OTHER: u32 = 65_534;

/// A Python program that another user runs against a socket until it is dropped. It prints a line when the attack stands.
struct Attacker(Child);

impl Attacker {
    fn start(script: &str, arguments: &[&str]) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("python3");
        command.args(["-I", "-B", "-c", script]).args(arguments).uid(OTHER).gid(OTHER);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// The line it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Whether another user can be played here.
fn can_change_user() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        support::skip("coming as another user needs root");
    }
    root
}

/// A session that greets the daemon within the patience of a test, and the time that took.
fn greeted(socket: &Path) -> (Raw, Duration) {
    let begun = Instant::now();
    let raw = Raw::greeted(socket);
    (raw, begun.elapsed())
}
