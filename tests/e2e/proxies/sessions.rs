//! Sessions: who may open one, what happens when a process, a connection or the daemon ends.

use crate::raw::Raw;
use crate::world::{ask, client, config, daemon, lease, soon, until};
use bytes::BytesMut;
use governor_client::Governor;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_common::wire::request::{Acquire, Request};
use governor_common::wire::{codec, frame};
use std::io::{ErrorKind, Write};
use std::time::Duration;
use support::programs::daemon::Setup;

fn acquire() -> Request {
    Request::Acquire(Acquire { pool: "chat".to_owned(), ..Acquire::default() })
}

#[test]
fn a_frame_that_is_not_understood_is_answered_and_the_session_lives_on() {
    let daemon = daemon(1, 1, "");
    let mut raw = Raw::greeted(&daemon.socket());
    raw.stream.write_all(&[8, 0, 0, 0, 0x7e, 0, 0, 0, 5, 0, 0, 0]).unwrap();
    assert!(matches!(raw.reply_to(5), Reply::Error { code: ErrorCode::Unsupported, .. }));
    raw.send(6, &Request::Ping);
    assert_eq!(raw.reply_to(6), Reply::Pong);
}

#[test]
fn a_proxy_of_version_1_is_served_as_it_was_and_told_nothing_new() {
    let classes = "[node]\ncaps_mode = \"enforce\"\ndefault_class = \"tier0\"\n[classes.tier0]\ncap = 1\n";
    let daemon = Setup::new(&format!("{classes}{}", crate::world::pool(1, 4, ""))).start();
    let mut old = Raw::greeted_as(&daemon.socket(), 1);
    let org = governor_common::wire::KeyHash([7; 16]);
    let granted = old.acquire(2, |acquire| acquire.org = Some(org));
    assert!(matches!(granted, Reply::Grant(_)), "{granted:?}");
    let refused = old.acquire(3, |acquire| acquire.org = Some(org));
    assert!(matches!(refused, Reply::Shed(ref shed) if shed.reason == "class_cap"), "{refused:?}");
    // The org reached its ceiling twice by now: a proxy of version 2 would have been asked for its tier.
    old.send(4, &Request::Ping);
    let unasked = std::iter::from_fn(|| old.next().filter(|(id, _)| *id != 4));
    assert!(unasked.into_iter().all(|(_, reply)| !matches!(reply, Reply::TierAsk { .. })));
}

#[test]
fn a_stream_that_cannot_be_cut_ends_its_own_session_only() {
    let daemon = daemon(1, 2, "");
    let mut good = Raw::greeted(&daemon.socket());
    let mut bad = Raw::greeted(&daemon.socket());
    good.send(2, &acquire());
    bad.send(2, &acquire());
    assert!(matches!(good.reply_to(2), Reply::Grant(_)) && matches!(bad.reply_to(2), Reply::Grant(_)));
    bad.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    bad.stream.write_all(&[0; 8]).unwrap();
    while bad.next().is_some() {}
    good.send(3, &Request::Ping);
    good.reply_to(3);
    assert_eq!(daemon.get("/v1/leases").as_array().unwrap().len(), 2, "the process lives: its lease has its grace");
}

#[test]
fn the_first_frame_must_be_hello() {
    let daemon = daemon(1, 1, "");
    let mut raw = Raw::connect(&daemon.socket());
    raw.send(1, &acquire());
    assert!(matches!(raw.reply_to(1), Reply::Error { code: ErrorCode::Handshake, .. }));
    assert_eq!(raw.next(), None);
}

#[test]
fn a_proxy_that_does_not_read_is_cut_and_stalls_nobody() {
    let daemon = daemon(1, 1, "");
    let mut slow = Raw::greeted(&daemon.socket());
    let mut ping = BytesMut::new();
    codec::encode_request(&Request::Ping, 9, &mut ping).unwrap();
    let many = ping.repeat(4096);
    slow.stream.set_write_timeout(Some(crate::world::SOON)).unwrap();
    let cut = (0..4096).find_map(|_| slow.stream.write_all(&many).err());
    let kind = cut.expect("the daemon does not buffer without end").kind();
    assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{kind}");
    let mut other = Raw::greeted(&daemon.socket());
    other.send(2, &Request::Ping);
    assert_eq!(other.reply_to(2), Reply::Pong);
}

#[test]
fn a_broken_connection_keeps_its_leases_for_the_grace_only() {
    let daemon = Setup::new(&format!("[node]\nsession_grace = \"300ms\"\n{}", crate::world::pool(1, 1, ""))).start();
    let mut raw = Raw::greeted(&daemon.socket());
    raw.send(2, &acquire());
    assert!(matches!(raw.reply_to(2), Reply::Grant(_)));
    drop(raw);
    daemon.wait_for("/v1/leases", |leases| leases == &serde_json::json!([]));
    daemon.wait_for("/v1/status", |status| status["sessions"] == serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_registered_again_after_the_daemon_was_killed() {
    let mut daemon = daemon(2, 2, "fair_share = 80\nfair_share_mode = \"enforce\"");
    let governor = client(&daemon.socket()).await;
    let held = [lease(&governor, "a").await, lease(&governor, "a").await, lease(&governor, "b").await];
    daemon.kill();
    let mut connected = governor.connected();
    soon(connected.wait_for(|connected| !connected)).await.unwrap();
    daemon.restart().unwrap();
    let leases = daemon.wait_for("/v1/leases", |leases| leases.as_array().is_some_and(|all| all.len() == 3));
    let labels: Vec<_> = leases.as_array().unwrap().iter().filter_map(|lease| lease["label"].as_str()).collect();
    assert_eq!(labels.iter().filter(|label| **label == "a").count(), 2, "{leases}");
    drop(held);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_is_bounded_by_the_last_known_share_of_capacity() {
    let mut daemon = daemon(1, 3, "");
    let governor = client(&daemon.socket()).await;
    let _held = lease(&governor, "a").await;
    daemon.kill();
    let mut connected = governor.connected();
    soon(connected.wait_for(|connected| !connected)).await.unwrap();
    let second = soon(governor.acquire(ask(&governor, "b"))).await.expect("the proxy goes on");
    assert!(second.is_fallback());
    let _third = soon(governor.acquire(ask(&governor, "b"))).await.expect("up to the capacity it knew");
    soon(governor.acquire(ask(&governor, "b"))).await.expect_err("and no further");
    daemon.restart().unwrap();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_announced_and_the_proxy_goes_on_alone() {
    let daemon = daemon(1, 2, "");
    let governor = client(&daemon.socket()).await;
    let held = lease(&governor, "a").await;
    let stopped = tokio::task::spawn_blocking(move || daemon.stop());
    assert!(soon(stopped).await.unwrap().success());
    let alone = soon(governor.acquire(ask(&governor, "b"))).await.expect("the fallback is open");
    assert!(alone.is_fallback());
    drop((held, alone));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_is_not_allowed_is_told_so() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("coming as another user needs root");
    }
    let setup = Setup::new(&crate::world::pool(1, 1, "")).env("GOVERNOR_DAEMON_ALLOW_USERS", "65533");
    let daemon = setup.env("GOVERNOR_DAEMON_SOCKET_MODE", "0666").start();
    // Root always may; this one has to come as somebody else.
    let socket = daemon.socket();
    std::fs::set_permissions(socket.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nsys.stdout.buffer.write(s.recv(4096))";
    let output = until("a process of another user ends", move || {
        use std::os::unix::process::CommandExt;
        std::process::Command::new("python3").args(["-c", script]).arg(&socket).uid(65534).gid(65534).output().ok()
    })
    .await;
    let mut bytes = BytesMut::from(&output.stdout[..]);
    let frame = frame::decode_frame(&mut bytes).unwrap().expect("one frame");
    let reply = codec::parse_reply(&frame).unwrap();
    assert!(matches!(reply, Reply::Error { code: ErrorCode::Denied, .. }), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn before_any_contact_only_the_node_cap_holds() {
    let folder = tempfile::tempdir().unwrap();
    let setup =
        governor_client::Config { node_cap: 2, patience: Duration::ZERO, ..config(&folder.path().join("none")) };
    let governor = Governor::start(setup);
    let first = soon(governor.acquire(ask(&governor, "a"))).await.unwrap();
    let _second = soon(governor.acquire(ask(&governor, "a"))).await.unwrap();
    assert_eq!(first.member(), None, "nobody told which members there are");
    let refused = soon(governor.acquire(ask(&governor, "a"))).await.unwrap_err();
    assert_eq!(refused.status(), 529);
}
