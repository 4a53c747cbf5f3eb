//! The guide's ten lines in front of a real daemon: what they promise.

use crate::site::{Answer, accounts, chat, quickstart, status_of};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::net::TcpStream;
use support::programs::daemon::Setup;

#[test]
fn ten_lines_hold_a_slot_until_the_stream_ends_and_refuse_what_is_too_much() {
    let daemon = Setup::new(&accounts(1, 2, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
    let gateway = quickstart(&daemon.socket(), "one secret for all workers");
    let mut streams: Vec<_> = ["sk-one", "sk-two"].map(|key| chat(gateway.address, key)).into();
    for stream in &mut streams {
        assert_eq!(stream.status, 200);
        assert!(stream.first_bytes() > 0);
    }
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 2);

    let refused = chat(gateway.address, "sk-three");
    assert_eq!((refused.status, refused.header("x-governor-origin")), (429, Some("pool")));
    assert_eq!(refused.header("ratelimit-policy"), Some(r#""pool_exhausted";q=2;qu="concurrent-requests""#));
    let seconds = refused.header("retry-after").unwrap();
    assert_eq!(refused.header("ratelimit"), Some(format!(r#""pool_exhausted";r=0;t={seconds}"#).as_str()));
    for line in ["GET /healthz", "GET /v1/models", "OPTIONS /v1/chat/completions"] {
        assert_eq!(status_of(gateway.address, line), 200, "{line} passes on a full node");
    }

    drop(streams);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert!(!gateway.log().contains("sk-one"), "raw keys are in no log");
}

#[test]
fn ten_lines_go_on_without_the_daemon_and_are_counted_when_it_is_back() {
    let mut daemon = Setup::new(&accounts(1, 2, "")).start();
    let gateway = quickstart(&daemon.socket(), "s");
    let mut first = chat(gateway.address, "sk-one");
    assert!(first.first_bytes() > 0);
    daemon.kill();
    let mut second = chat(gateway.address, "sk-two");
    assert_eq!(second.status, 200, "the fallback gives what is left of the share");
    assert!(second.first_bytes() > 0);
    daemon.restart().unwrap();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 2);
    drop((first, second));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_daemon_that_is_stopped_holds_no_request_up_and_hears_of_it_when_it_goes_on() {
    let daemon = Setup::new(&accounts(1, 3, "")).start();
    let gateway = quickstart(&daemon.socket(), "s");
    let mut first = chat(gateway.address, "sk-one");
    assert!(first.first_bytes() > 0);
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut second = chat(gateway.address, "sk-two");
    assert_eq!(second.status, 200, "its heartbeat stands still, so the fallback decides");
    assert!(second.first_bytes() > 0);
    kill_process(pid, Signal::CONT).unwrap();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 2);
    drop((first, second));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

/// The handler reads no body, and a body that comes after its head stays in the socket: so does the end behind it.
#[test]
fn a_client_that_closes_behind_an_unread_body_frees_its_slot() {
    let daemon = Setup::new(&accounts(1, 1, "")).start();
    let gateway = quickstart(&daemon.socket(), "s");
    let mut client = TcpStream::connect(gateway.address).unwrap();
    let head = "Host: gateway\r\nAuthorization: Bearer sk-one\r\nContent-Length: 5";
    write!(client, "POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = Answer::read(client.try_clone().unwrap());
    assert_eq!(answer.status, 200);
    assert!(answer.first_bytes() > 0);
    client.write_all(b"12345").unwrap();
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 1);
    drop((client, answer));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}
