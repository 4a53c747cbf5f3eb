//! Sessions that greet and then read nothing: limits are coalesced, sessions are capped.

use super::figure;
use super::memory_kib;
use crate::world::pool;
use bytes::BytesMut;
use governor_common::wire::request::{Hello, Request};
use governor_common::wire::{VERSION, codec};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Instant;
use support::programs::daemon::Setup;

/// Sessions of the attack.
const SESSIONS: usize = 2000;

/// `daemon.max_sessions_per_uid` as it is built in.
const MOST_OF_A_USER: usize = 512;

#[test]
fn sessions_that_do_not_read_cost_a_bounded_amount() {
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(8192),
            ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
        },
    )
    .unwrap();
    let pools: String = (0..8).map(|n| pool(10, 8, "").replace("chat", &format!("pool-{n}"))).collect();
    let daemon = Setup::new(&pools).env("GOVERNOR_DAEMON_RECORD", "off").start();
    let before = memory_kib(&daemon, "VmRSS");
    let mut bytes = BytesMut::new();
    let hello = Hello { version: VERSION, name: "mute".to_owned(), resume: None };
    codec::encode_request(&Request::Hello(hello), 1, &mut bytes).unwrap();
    let begun = Instant::now();
    let held: Vec<UnixStream> = (0..SESSIONS)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.socket()).unwrap();
            // A session over the cap is closed before it has said anything.
            stream.write_all(&bytes).ok();
            stream
        })
        .collect();
    let sessions = daemon.get("/v1/status")["sessions"].as_array().unwrap().len();
    let took = begun.elapsed();
    figure(&format!(
        "{SESSIONS} sessions greet and do not read: {sessions} served, answered after {took:?}; memory {before} → {} KiB (most {})",
        memory_kib(&daemon, "VmRSS"),
        memory_kib(&daemon, "VmHWM"),
    ));
    assert!(sessions <= MOST_OF_A_USER, "one user has as many sessions as it may");
    drop(held);
    daemon.wait_for("/v1/status", |status| status["sessions"] == serde_json::json!([]));
    let (_raw, greeted) = super::greeted(&daemon.socket());
    figure(&format!("after they left a session is greeted in {greeted:?}"));
}
