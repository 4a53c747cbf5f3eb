//! The example on Pingora in front of a real daemon. A test program of its own, because that example is built apart:
//! `cargo xtask test --full` does, and says where it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod site;
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod world;

use site::{Answer, Program, accounts, chat, cool, post, stats, upstream};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::programs::daemon::{Setup, free_port};

/// A running gateway on Pingora, killed with this value.
struct Pingora {
    child: Child,
    address: SocketAddr,
}

impl Pingora {
    fn start(upstream: &Program, socket: &Path) -> Self {
        let program = std::env::var_os("GOVERNOR_PINGORA").expect("`cargo xtask test --full` builds it and says where");
        let address = free_port();
        let child = Command::new(program)
            .args(["--listen", &address.to_string(), "--upstream", &upstream.address.to_string(), "--socket"])
            .arg(socket)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let bound = Instant::now() + world::SOON;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < bound, "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address }
    }
}

impl Drop for Pingora {
    fn drop(&mut self) {
        // Fails only for a child that has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn one_request_is_granted_and_the_next_is_refused_until_the_first_has_ended() {
    let daemon = Setup::new(&accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
    let upstream = upstream(1, 1);
    let gateway = Pingora::start(&upstream, &daemon.socket());
    let mut granted = chat(gateway.address, "sk-first");
    assert!(granted.status == 200 && granted.first_bytes() > 0, "{}", granted.head);
    let lease = daemon.get("/v1/leases")[0].clone();
    assert_eq!((&lease["member"], lease["key"].is_string()), (&"acct-01".into(), true), "{lease}");

    let refused = post(gateway.address, "/v1/messages", "sk-second", "{}");
    assert_eq!((refused.status, refused.header("x-governor-origin")), (429, Some("pool")), "{}", refused.head);
    assert!(refused.header("retry-after-ms").is_some(), "{}", refused.head);
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");

    drop(granted);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert_eq!(answered(post(gateway.address, "/v1/messages", "sk-second", r#"{"max_tokens":2}"#)), "word1 word2 ");
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert_eq!(stats(upstream.address)["refused_full_total"], 0);
}

fn answered(answer: Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.head);
    answer.json()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn an_account_that_refuses_is_cooled_and_its_request_moved_unseen_by_the_client() {
    let daemon = Setup::new(&accounts(2, 4, "")).start();
    let upstream = upstream(2, 4);
    let gateway = Pingora::start(&upstream, &daemon.socket());
    cool(upstream.address, "acct-01", 60);
    for _ in 0..2 {
        assert_eq!(answered(post(gateway.address, "/v1/messages", "sk-one", r#"{"max_tokens":1}"#)), "word1 ");
    }
    assert_eq!(daemon.get("/v1/pools")[0]["members"][0]["state"], "cooling");
    assert_eq!(stats(upstream.address)["refused_cooling_total"], 1, "asked once, and then left alone");
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}
