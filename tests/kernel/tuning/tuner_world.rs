//! What the tests of the tuner need: a listener whose address only this test uses, and a daemon that tunes it and no other
//! listener of the machine.

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};
use support::machine::netns::Netns;
use support::machine::nstat;
use support::machine::ss;
use support::programs::daemon::{Daemon, Setup};

/// On loopback, and used by nobody else: a daemon sees every listener of the machine and must not touch those of others.
pub(crate) const ADDRESS: &str = "127.77.0.1";

/// Long enough for the slowest machine; nothing waits this long when it works.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon whose tuner is off but for `listener` (`address:port`), where `mode` and the rest of `policy` hold. On the best
/// tier there is.
pub(crate) fn setup(listener: &str, policy: &str, global: &str) -> Setup {
    let config = format!(
        "[tuner]\nmode = \"off\"\n{global}\n[[tuner.listener]]\nlisten = \"{listener}\"\n\
         # A slow machine accepts slowly.\nmax_wait = \"2s\"\n{policy}\n"
    );
    Setup::new(&config).tier("auto").env("GOVERNOR_KERNEL_TICK", "20ms").env("GOVERNOR_KERNEL_AUDIT", "500ms")
}

/// The records of the journal that have this action, oldest first.
pub(crate) fn records(daemon: &Daemon, action: &str) -> Vec<Value> {
    let journal = daemon.get("/v1/tuner/journal?last_seconds=3600");
    let records = journal.as_array().into_iter().flatten();
    records.filter(|record| record["action"] == action).cloned().collect()
}

/// Waits until the journal has so many records of an action; they.
pub(crate) fn recorded(daemon: &Daemon, action: &str, count: usize) -> Vec<Value> {
    let all = daemon.wait_for("/v1/tuner/journal?last_seconds=3600", |journal| {
        journal.as_array().into_iter().flatten().filter(|record| record["action"] == action).count() >= count
    });
    drop(all);
    records(daemon, action)
}

/// Waits until the daemon sees so many listeners of the namespace and who holds them.
pub(crate) fn watches(daemon: &Daemon, namespace: &Netns, count: usize) {
    let held =
        |row: &&Value| row["netns"] == namespace.inode() && row["pids"].as_array().is_some_and(|pids| !pids.is_empty());
    daemon.wait_for("/v1/listeners", |rows| rows.as_array().into_iter().flatten().filter(held).count() == count);
    daemon.wait_for("/v1/tuner", |tuner| of(tuner, namespace).len() == count);
}

/// The listeners of a namespace, as the tuner tells.
pub(crate) fn of(tuner: &Value, namespace: &Netns) -> Vec<Value> {
    let all = tuner["listeners"].as_array().into_iter().flatten();
    all.filter(|one| one["netns"] == namespace.inode()).cloned().collect()
}

/// Changes the mode of the one listener at run time.
pub(crate) fn set_mode(daemon: &Daemon, listener: &str, mode: &str) {
    let key = format!("/v1/settings/tuner.listener.{}.mode", listener.replace('[', "%5B").replace(']', "%5D"));
    let (status, answer) = daemon.request("PUT", &key, Some(&json!({ "value": mode })));
    assert_eq!(status, 200, "{answer}");
}

/// The backlog of the listener on `port` as `ss` tells.
pub(crate) fn backlog(namespace: &Netns, port: u16) -> u32 {
    let rows = ss::listeners(namespace);
    rows.iter().find(|row| row.port == port).expect("it listens").backlog
}

/// Waits until `ss` tells this of the listener's backlog.
pub(crate) fn backlog_becomes(namespace: &Netns, port: u16, what: &str, expected: impl Fn(u32) -> bool) -> u32 {
    let begun = Instant::now();
    loop {
        let now = backlog(namespace, port);
        if expected(now) {
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "the backlog is {now}, and never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Packets that the namespace has refused because an accept queue was full, as the kernel counts.
pub(crate) fn overflows(namespace: &Netns) -> u64 {
    nstat::counters(namespace, &["TcpExtListenOverflows"])[0]
}

/// What a process has open and its threads: numbers of descriptors with what they stand for, and task ids.
pub(crate) fn inventory(pid: u32) -> (BTreeMap<String, String>, Vec<String>) {
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{pid}/{folder}")).expect("the process lives").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let link = |number: String| {
        let link = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap_or_default();
        (number, link.display().to_string())
    };
    (names("fd").into_iter().map(link).collect(), names("task"))
}

/// How many sockets and handles of processes a daemon has open, but for connections that were made to ask it something,
/// once that has settled.
pub(crate) fn handles(pid: u32) -> usize {
    let count = || {
        let open = inventory(pid).0;
        open.values().filter(|link| link.starts_with("socket:") || link.contains("pidfd")).count()
    };
    let mut last = count();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(20));
        last = last.min(count());
    }
    last
}

/// Sends bursts until one is refused nothing, and then serves everybody.
pub(crate) fn burst_until_none_is_refused(namespace: &Netns, mut burst: impl FnMut() -> u32) {
    for _ in 0..20 {
        let before = overflows(namespace);
        let served = burst();
        if overflows(namespace) == before {
            assert!(served > 0, "nobody came");
            return;
        }
        // Orders for one listener are a second apart.
        std::thread::sleep(Duration::from_millis(1100));
    }
    panic!("bursts are refused still; ss: {:?}", ss::listeners(namespace));
}
