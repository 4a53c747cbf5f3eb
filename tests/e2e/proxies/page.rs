//! The signal page of a real daemon, read by the library and by a program in another language.

use crate::world::{ask, client, daemon, lease, soon, until};
use governor_client::{Governor, Signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::programs::daemon::Setup;
use support::programs::python;
use support::skip;

/// Waits until the page shows this many in flight and parked.
async fn shows(signals: &Signals, in_flight: u32, parked: u32) {
    let signals = signals.clone();
    let look = move || {
        let pool = signals.pool("chat")?;
        (pool.in_flight == in_flight && pool.parked == parked).then_some(())
    };
    until(&format!("{in_flight} in flight and {parked} parked in the page"), look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_what_is_in_flight_and_parked_and_returns_to_nothing() {
    let daemon = daemon(1, 2, "fair_share = 80\nfair_share_mode = \"enforce\"");
    let governor = client(&daemon.socket()).await;
    let signals = governor.signals();
    shows(&signals, 0, 0).await;
    assert_eq!(signals.pool("chat").map(|pool| (pool.capacity, pool.congested)), Some((2, false)));
    let held = [lease(&governor, "a").await, lease(&governor, "b").await];
    let waiting = tokio::spawn({
        let governor = governor.clone();
        async move { governor.acquire(ask(&governor, "b").max_wait(crate::world::SOON)).await }
    });
    shows(&signals, 2, 1).await;
    let page = signals.read().unwrap();
    assert_eq!((page.node_counted, page.pools.len(), page.pools[0].congested), (3, 1, true));
    drop(held);
    let granted = soon(waiting).await.unwrap().unwrap();
    shows(&signals, 1, 0).await;
    drop(granted);
    shows(&signals, 0, 0).await;
    assert!(signals.pool("other").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_daemon_that_stands_still_is_stale_and_that_of_a_new_one_is_not() {
    let mut daemon = daemon(1, 2, "");
    let governor = client(&daemon.socket()).await;
    let signals = governor.signals();
    shows(&signals, 0, 0).await;
    let pid = Pid::from_raw(daemon.pid().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    stale(&signals, true).await;
    assert!(signals.pool("chat").is_none() && signals.read().is_none());
    kill_process(pid, Signal::CONT).unwrap();
    stale(&signals, false).await;
    let _held = lease(&governor, "a").await;
    daemon.kill();
    stale(&signals, true).await;
    daemon.restart().unwrap();
    // The lease is registered with the new daemon, whose page shows it.
    shows(&signals, 1, 0).await;
    assert!(!signals.is_stale());
}

async fn stale(signals: &Signals, expected: bool) {
    let signals = signals.clone();
    until("the page is stale or is not", move || (signals.is_stale() == expected).then_some(())).await;
}

/// `page.py`, which shows the page once for every line it is given.
struct Shown(Child, BufReader<std::process::ChildStdout>);

impl Shown {
    fn start(python: Command, daemon: &support::programs::daemon::Daemon) -> Self {
        let mut command = python;
        command.arg(python::example("page.py")).arg(daemon.socket()).arg("chat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self(child, answers)
    }

    fn look(&mut self) -> Value {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_another_language_reads_the_page_by_its_description() {
    let Some(python) = python::command() else { return skip("there is no python3") };
    let mut daemon = Setup::new(&format!("[node]\ncap = 50\n{}", crate::world::pool(2, 3, ""))).start();
    let governor: Governor = client(&daemon.socket()).await;
    let mut page = Shown::start(python, &daemon);
    let (_one, _two) = (lease(&governor, "a").await, lease(&governor, "b").await);
    shows(&governor.signals(), 2, 0).await;
    let first = page.look();
    let chat = serde_json::json!({"capacity": 6, "in_flight": 2, "parked": 0, "congested": false});
    assert_eq!((&first["pools"]["chat"], &first["node"]), (&chat, &serde_json::json!([2, 50])), "{first}");
    assert_eq!((&first["level"], &first["epoch"]), (&serde_json::json!("normal"), &serde_json::json!(1)), "{first}");
    let heartbeat = |shown: &Value| shown["heartbeat"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(heartbeat(&page.look()) > heartbeat(&first), "it beats while nothing happens");
    daemon.kill();
    let last = page.look();
    daemon.restart().unwrap();
    until("the new daemon writes its own page", {
        let signals = governor.signals();
        move || signals.pool("chat").filter(|pool| pool.in_flight == 2)
    })
    .await;
    assert_eq!(page.look(), last, "nobody writes the page of the daemon that died");
}
