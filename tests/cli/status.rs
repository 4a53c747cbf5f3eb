//! `governorctl status` in the situations that operators call it in, against a real daemon: healthy, upstream dead, worker
//! stopped, bypass on. The transcript shows what is wrong first, each with the next command; the exit code is 1 for a problem.

use crate::transcript::of;
use crate::world::{POOL, client};
use governor_client::{AcquireRequest, Governor, MemberNews};
use governor_common::wire::reply::cause;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

/// A worker that accepts and closes connections, and writes its port first.
const WORKER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0), backlog=8)
print(listener.getsockname()[1], flush=True)
while True:
    listener.accept()[0].close()
";

/// A daemon with the pool for which a second is long and the listeners of these ports count. Nothing raises its level, which
/// would rise at some time or other in the transcript.
fn daemon(ports: &str) -> Daemon {
    let causes: Vec<&str> = cause::NAMES.iter().map(|(_, name)| *name).collect();
    Setup::new(POOL)
        .env("GOVERNOR_OVERLOAD_HOLD", "1s")
        .env("GOVERNOR_OVERLOAD_PORTS", ports)
        .env("GOVERNOR_OVERLOAD_IGNORE", &causes.join(","))
        .start()
}

/// Waits until `GET /v1/status` has a problem of this subject.
fn has_problem(daemon: &Daemon, subject: &str) {
    let is_it = |one: &Value| one["subject"] == subject && one["severity"] == "problem";
    tokio::task::block_in_place(|| {
        daemon.wait_for("/v1/status", |status| status["findings"].as_array().unwrap().iter().any(is_it));
    });
}

/// The transcript without what depends on the machine (its kernel, listeners of other tests) and with figures that change
/// from run to run as N. `place` is the listener of this test.
fn transcript(daemon: &Daemon, place: &str) -> String {
    let session = format!("gateway  {}  {}  ", std::process::id(), rustix::process::geteuid().as_raw());
    let text = of(daemon, &["status"]).replace(place, "PLACE").replace(&session, "gateway  OWN  UID  ");
    // It can have several lines and is the last fact here.
    let (facts, tables) = text.split_once("\n\n").unwrap();
    let facts = facts.split("\ndegraded").next().unwrap();
    let of_machine = |line: &String| {
        let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
        begins(&["kernel", "counting", "WATCH  kernel", "WATCH  counts"])
            || begins(&["listener", "WATCH  listener"]) && !line.contains("PLACE")
    };
    // Lines of one label follow each other, the label is before the first.
    let mut label = "";
    let labelled = facts.lines().map(|line| {
        let (own, fact) = line.split_once("  ").unwrap_or((label, line));
        label = own;
        format!("{label}  {fact}")
    });
    let facts: Vec<String> = labelled.filter(|line| !of_machine(line)).map(|line| steady(&line)).collect();
    format!("{}\n\n{tables}", facts.join("\n"))
}

/// Figures before a unit are N.
fn steady(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let next = words.iter().skip(1).map(Some).chain([None]);
    let named = words.iter().zip(next).map(|(word, next)| {
        let unit = next.map(|next| next.trim_end_matches([',', ';', ':']));
        let is_figure = word.parse::<f64>().is_ok() && matches!(unit, Some("s" | "ms"));
        if is_figure { "N" } else { *word }
    });
    named.collect::<Vec<_>>().join(" ")
}

/// A request of the key `batch` that is granted, with the report that counts it.
async fn granted(daemon: &Daemon, governor: &Governor) -> governor_client::Lease {
    let ask = AcquireRequest::new("chat").key(governor.key(b"batch")).label("batch");
    let lease = governor.acquire(ask).await.unwrap();
    let is_counted = |pool: &Value| pool["in_flight"] == 1 && pool["granted_last_minute"] == 1;
    tokio::task::block_in_place(|| daemon.wait_for("/v1/status", |status| is_counted(&status["pools"][0])));
    lease
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_is_one_screen_without_a_finding() {
    let daemon = daemon("1");
    let governor = client(&daemon).await;
    let _held = granted(&daemon, &governor).await;
    insta::assert_snapshot!(transcript(&daemon, "no listener"), @"
    governord  0.1.0, pid PID, up TIME
    level  normal, pressure 0 ‰
    bypass  off
    node  1 counted requests, cap 1000; 0 parked, at most 500

    SESSION  PROXY  PID  UID  LEASES
    s-1  gateway  OWN  UID  1

    POOL  IN FLIGHT  CAPACITY  PARKED  GRANTED/MIN  REFUSED/MIN  MEMBERS  FAIR SHARE  CONGESTED
    chat  1  2  0  1  0  2 up  from 80 %, enforce  no
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_upstream_is_a_problem() {
    let daemon = daemon("1");
    let governor = client(&daemon).await;
    let _held = granted(&daemon, &governor).await;
    for member in ["account-1", "account-2"] {
        governor.member_report("chat", member, MemberNews::Overloaded);
    }
    has_problem(&daemon, "pool chat");
    insta::assert_snapshot!(transcript(&daemon, "no listener"), @"
    governord  0.1.0, pid PID, up TIME
    PROBLEM  pool chat: the upstream has failed for N s: 1 of 2 members of the pool chat are cooling, and the one kept in use fails too; see: governorctl members
    level  normal, pressure 0 ‰
    bypass  off
    node  1 counted requests, cap 1000; 0 parked, at most 500

    SESSION  PROXY  PID  UID  LEASES
    s-1  gateway  OWN  UID  1

    POOL  IN FLIGHT  CAPACITY  PARKED  GRANTED/MIN  REFUSED/MIN  MEMBERS  FAIR SHARE  CONGESTED
    chat  1  1  0  1  0  1 up, 1 cooling  from 80 %, enforce  yes
    (exit code 1)
    ");
}

/// The worker process, killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_is_a_problem() {
    let Some(mut python) = support::programs::python::command() else {
        return support::skip("no python3 of 3.10 or later");
    };
    let mut child = python.args(["-c", WORKER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let worker = Worker(child);
    let place = format!("127.0.0.1:{}", line.trim());
    let daemon = daemon(line.trim());
    let governor = client(&daemon).await;
    let _held = granted(&daemon, &governor).await;
    kill_process(Pid::from_child(&worker.0), Signal::STOP).unwrap();
    // Until then it may accept one more.
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", worker.0.id())).unwrap();
    while !stat().contains(") T ") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _waiting: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(&place).unwrap()).collect();
    has_problem(&daemon, &format!("listener {place}"));
    insta::assert_snapshot!(transcript(&daemon, &place), @"
    governord  0.1.0, pid PID, up TIME
    PROBLEM  listener PLACE: acceptor_stalled: 3 of at most 9 connections wait and nothing was accepted for N s; see: governorctl explain listener PLACE
    level  normal, pressure 0 ‰
    listener  PLACE acceptor_stalled: 3 of at most 9 connections wait and nothing was accepted for N s
    bypass  off
    node  1 counted requests, cap 1000; 0 parked, at most 500

    SESSION  PROXY  PID  UID  LEASES
    s-1  gateway  OWN  UID  1

    POOL  IN FLIGHT  CAPACITY  PARKED  GRANTED/MIN  REFUSED/MIN  MEMBERS  FAIR SHARE  CONGESTED
    chat  1  2  0  1  0  2 up  from 80 %, enforce  no
    (exit code 1)
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_on_is_a_problem_with_its_end() {
    let daemon = daemon("1");
    let governor = client(&daemon).await;
    let _held = granted(&daemon, &governor).await;
    assert!(daemon.ctl(&["bypass", "on", "--for", "30m"]).status.success());
    insta::assert_snapshot!(transcript(&daemon, "no listener"), @"
    governord  0.1.0, pid PID, up TIME
    PROBLEM  bypass: every request passes without a limit for N s more unless it is switched off; see: governorctl bypass off
    level  normal, pressure 0 ‰
    bypass  on: every request passes, for TIME more
    node  1 counted requests, cap 1000; 0 parked, at most 500

    SESSION  PROXY  PID  UID  LEASES
    s-1  gateway  OWN  UID  1

    POOL  IN FLIGHT  CAPACITY  PARKED  GRANTED/MIN  REFUSED/MIN  MEMBERS  FAIR SHARE  CONGESTED
    chat  1  2  0  1  0  2 up  from 80 %, enforce  no
    (exit code 1)
    ");
}
