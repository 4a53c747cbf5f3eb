//! A gateway that is told to stop: nothing new, nothing cut, and then it ends by itself.

use super::websocket::{hear, open, say};
use crate::site::{accounts, chat, gateway_with, post, status_of, upstream};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::programs::daemon::Setup;

/// Waits until nobody listens there any more.
fn gone(address: std::net::SocketAddr) {
    let bound = Instant::now() + crate::world::SOON;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < bound, "it still accepts");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_runs_goes_on_to_its_end_and_then_the_gateway_ends() {
    let daemon = Setup::new(&accounts(1, 4, "")).start();
    let upstream = upstream(1, 4);
    let mut gateway = gateway_with(&upstream, &daemon.socket(), &["--grace-seconds", "60"]);
    let mut stream = post(gateway.address, "/v1/chat/completions", "sk-one", r#"{"stream":true,"max_tokens":15}"#);
    assert!(stream.first_bytes() > 0);
    let mut socket = open(&gateway).into_stream();
    gateway.terminate();
    gone(gateway.address);
    let text = stream.body();
    assert!(text.contains("word15 ") && text.contains("[DONE]"), "the stream is whole: {text:?}");
    say(&mut socket, "still there?");
    assert_eq!(hear(&mut socket), "still there?");
    assert!(gateway.ended().is_none(), "a WebSocket is open");
    drop(socket);
    assert!(gateway.wait().success(), "{}", gateway.log());
    daemon.wait_for("/v1/status", |status| status["node"]["counted"] == 0);
}

#[test]
fn readiness_fails_before_the_gateway_stops_to_accept() {
    let daemon = Setup::new(&accounts(1, 4, "")).start();
    let upstream = upstream(1, 4);
    let mut gateway = gateway_with(&upstream, &daemon.socket(), &["--leave-ms", "600000"]);
    assert_eq!(status_of(gateway.address, "GET /readyz"), 200);
    gateway.terminate();
    let bound = Instant::now() + crate::world::SOON;
    while status_of(gateway.address, "GET /readyz") != 503 {
        assert!(Instant::now() < bound, "it stays ready");
    }
    assert_eq!(status_of(gateway.address, "GET /healthz"), 200, "leaving is no reason to be killed");
    let answer = post(gateway.address, "/v1/chat/completions", "sk-one", r#"{"max_tokens":1}"#);
    assert_eq!(answer.status, 200, "who comes all the same is served");
    drop(answer);
    // Told again, it does not wait any longer.
    gateway.terminate();
    assert!(gateway.wait().success());
}

#[test]
fn told_twice_it_ends_at_once_and_frees_what_it_held() {
    let daemon = Setup::new(&accounts(1, 4, "")).start();
    let upstream = upstream(1, 4);
    let mut gateway = gateway_with(&upstream, &daemon.socket(), &["--grace-seconds", "3600"]);
    let mut stream = chat(gateway.address, "sk-one");
    assert!(stream.first_bytes() > 0);
    gateway.terminate();
    gone(gateway.address);
    assert!(gateway.ended().is_none(), "a stream is open");
    gateway.terminate();
    assert!(gateway.wait().success());
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}
