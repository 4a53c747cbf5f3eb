//! The minimal profile: the client of a hundred lines in Python against a real daemon, and one of 70 that answers over HTTP.

mod script;

use crate::world::{client, daemon, lease, pool, soon};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use support::programs::daemon::{Daemon, Setup};
use support::programs::python;
use support::skip;

/// Runs `minimal.py` for a key: it may wait for so long, and runs a command that shows its member.
fn run(mut python: Command, daemon: &Daemon, pool: &str, key: &str, wait_ms: u32) -> Output {
    python.arg(python::example("minimal.py")).arg(daemon.socket());
    python.args([pool, key, &wait_ms.to_string(), "sh", "-c", "echo runs on $GOVERNOR_MEMBER; exit 3"]);
    python.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn it_has_at_most_a_hundred_lines() {
    let lines = std::fs::read_to_string(python::example("minimal.py")).unwrap().lines().count();
    assert!(lines <= 100, "{lines}");
}

#[test]
fn a_command_runs_with_a_slot_and_gives_it_back() {
    let Some(python) = python::command() else { return skip("there is no python3") };
    let daemon = daemon(1, 1, "");
    let output = run(python, &daemon, "chat", "team-a", 0);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "runs on m1\n", "{output:?}");
    assert_eq!(output.status.code(), Some(3), "the command's own: {output:?}");
    let pools = daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert_eq!(pools[0]["granted_total"], 1, "{pools}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_when_to_try_again_and_what_is_never_valid_says_so() {
    let Some(python) = python::command() else { return skip("there is no python3") };
    let again = python::command().expect("it was there a moment ago");
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let _held = lease(&governor, "other").await;
    let refused = tokio::task::block_in_place(|| run(python, &daemon, "chat", "team-a", 0));
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("429 pool_exhausted: "), "{refused:?}");
    let wrong = tokio::task::block_in_place(|| run(again, &daemon, "nowhere", "team-a", 0));
    assert_eq!(wrong.status.code(), Some(65), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("nowhere"), "{wrong:?}");
}

/// Waits parked, is granted; withdraws what it does not want to wait for, and goes on with the same session.
const SCRIPT: &str = r#"
import sys
sys.path.insert(0, sys.argv[2])
from minimal import Governor
governor = Governor(sys.argv[1], "script")
print("asking", flush=True)
lease, member = governor.acquire("chat", b"k" * 16, max_wait_ms=20000)
print("granted on", member, flush=True)
try:
    governor.acquire("chat", b"l" * 16, max_wait_ms=20000, patience=0.05)
except TimeoutError:
    print("withdrawn", flush=True)
sys.stdin.readline()
governor.release(lease)
lease, member = governor.acquire("chat", b"m" * 16, max_wait_ms=20000)
print("granted on", member, flush=True)
governor.release(lease)
sys.stdin.readline()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_parked_and_withdraws_what_it_does_not_want_to_wait_for() {
    let Some(mut python) = python::command() else { return skip("there is no python3") };
    let daemon = Setup::new(&pool(1, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    let held = lease(&governor, "other").await;
    python.args(["-c", SCRIPT]).arg(daemon.socket()).arg(python::examples());
    let mut script = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("asking"));
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    drop(held);
    assert_eq!(lines.next().as_deref(), Some("granted on m1"));
    assert_eq!(lines.next().as_deref(), Some("withdrawn"));
    // The session lives, so it was the Cancel that took the request out.
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 0 && pools[0]["in_flight"] == 1);
    let mut input = script.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    assert_eq!(lines.next().as_deref(), Some("granted on m1"));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    drop(input);
    soon(async { assert!(script.wait().unwrap().success()) }).await;
}
