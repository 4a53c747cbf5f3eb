//! The example gateway in front of the example upstream, governed by a real daemon: what survives which death.

mod browser;
mod callers;
mod drain;
mod members;
mod nested;
mod pools;
pub(crate) mod websocket;
mod workers;

use crate::site::{Answer, accounts, chat, cool, gateway, request, send_chat, stats, status_of, upstream};
use crate::world::SOON;
use serde_json::json;
use std::time::Instant;
use support::programs::daemon::Setup;

#[test]
fn a_slot_is_held_until_the_stream_ends_or_its_client_leaves() {
    let daemon = Setup::new(&accounts(2, 2, "")).start();
    let upstream = upstream(2, 2);
    let gateway = gateway(&upstream, &daemon.socket());
    let mut streams: Vec<_> = (0..3).map(|n| chat(gateway.address, &format!("sk-{n}"))).collect();
    assert!(streams.iter_mut().all(|stream| stream.status == 200 && stream.first_bytes() > 0));
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 3);
    streams.pop();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 2);
    drop(streams);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_refusal_reads_as_the_providers_clients_expect() {
    let daemon = Setup::new(&accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
    let upstream = upstream(1, 1);
    let gateway = gateway(&upstream, &daemon.socket());
    let _held = chat(gateway.address, "sk-first");
    let refused = chat(gateway.address, "sk-second");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-governor-origin"), Some("pool"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    let millis: u64 = refused.header("retry-after-ms").unwrap().parse().unwrap();
    assert!(seconds >= 1 && seconds == millis.div_ceil(1000), "{}", refused.head);
    let id = refused.header("x-governor-decision").unwrap().to_owned();
    assert_eq!(daemon.get(&format!("/v1/explain/{id}"))["reason"], "pool_exhausted");
    let explained = daemon.ctl(&["explain", &id]);
    assert!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr));
    let body: serde_json::Value = serde_json::from_str(&refused.body()).unwrap();
    assert_eq!(body["error"]["type"], "rate_limit_error");
}

#[test]
fn who_leaves_while_parked_gets_no_slot_and_costs_the_provider_nothing() {
    let daemon = Setup::new(&accounts(1, 1, "")).start();
    let upstream = upstream(1, 1);
    let gateway = gateway(&upstream, &daemon.socket());
    let mut held = chat(gateway.address, "sk-first");
    assert!(held.first_bytes() > 0);
    let leaving: Vec<_> = (0..4).map(|n| send_chat(gateway.address, &format!("sk-{n}"))).collect();
    let stays = send_chat(gateway.address, "sk-last");
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 5);
    drop(leaving);
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    drop(held);
    let mut answer = Answer::read(stays);
    assert!(answer.status == 200 && answer.first_bytes() > 0, "{}", answer.head);
    assert_eq!(daemon.get("/v1/pools")[0]["granted_total"], 2);
    assert_eq!(stats(upstream.address)["streams_total"], 2, "nothing was asked for those who had left");
}

#[test]
fn killing_the_gateway_in_the_middle_of_streams_frees_every_slot() {
    // Long before the grace of a broken connection: the daemon sees the process end.
    let daemon = Setup::new(&format!("[node]\nsession_grace = \"1h\"\n{}", accounts(2, 4, ""))).start();
    let upstream = upstream(2, 4);
    let mut gateway = gateway(&upstream, &daemon.socket());
    let mut streams: Vec<_> = (0..6).map(|n| chat(gateway.address, &format!("sk-{n}"))).collect();
    assert!(streams.iter_mut().all(|stream| stream.first_bytes() > 0));
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 6);
    gateway.kill();
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    let status = daemon.wait_for("/v1/status", |status| status["sessions"] == json!([]));
    assert_eq!(status["node"]["counted"], 0);
}

#[test]
fn killing_the_daemon_stops_no_stream_and_its_next_life_counts_what_runs() {
    let mut daemon = Setup::new(&accounts(2, 4, "")).start();
    let upstream = upstream(2, 4);
    let gateway = gateway(&upstream, &daemon.socket());
    let mut streams: Vec<_> = (0..4).map(|n| chat(gateway.address, &format!("sk-{n}"))).collect();
    assert!(streams.iter_mut().all(|stream| stream.first_bytes() > 0));
    daemon.kill();
    let mut meanwhile = chat(gateway.address, "sk-meanwhile");
    assert_eq!(meanwhile.status, 200, "the gateway serves on by its fallback: {}", meanwhile.head);
    assert!(meanwhile.first_bytes() > 0);
    daemon.restart().unwrap();
    let leases = daemon.wait_for("/v1/leases", |leases| leases.as_array().is_some_and(|all| all.len() == 5));
    assert!(leases.as_array().unwrap().iter().all(|lease| lease["member"].is_string()), "{leases}");
    streams.push(meanwhile);
    for stream in &mut streams {
        assert!(stream.first_bytes() > 0, "no stream was cut");
    }
    drop(streams);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn an_account_that_answers_429_is_cooled_and_its_request_moved_unseen_by_the_client() {
    let daemon = Setup::new(&accounts(2, 4, "")).start();
    let upstream = upstream(2, 4);
    let gateway = gateway(&upstream, &daemon.socket());
    cool(upstream.address, "acct-01", 60);
    let mut streams: Vec<_> = (0..4).map(|n| chat(gateway.address, &format!("sk-{n}"))).collect();
    for stream in &mut streams {
        assert_eq!(stream.status, 200, "{}", stream.head);
        assert!(stream.first_bytes() > 0);
    }
    let pool = &daemon.get("/v1/pools")[0];
    assert_eq!((&pool["in_flight"], &pool["capacity"]), (&json!(4), &json!(4)));
    assert_eq!(pool["members"][0]["state"], "cooling");
}

#[test]
fn health_checks_pass_while_everything_else_is_refused() {
    let daemon = Setup::new(&format!("[node]\ncap = 1\n{}", accounts(1, 4, ""))).start();
    let upstream = upstream(1, 4);
    let gateway = gateway(&upstream, &daemon.socket());
    let _held = chat(gateway.address, "sk-first");
    let refused = chat(gateway.address, "sk-second");
    assert_eq!((refused.status, refused.header("x-governor-origin")), (529, Some("node")));
    assert!(refused.head.starts_with("HTTP/1.1 529 Overloaded\r\n"), "{}", refused.head);
    let body: serde_json::Value = serde_json::from_str(&refused.body()).unwrap();
    assert_eq!(body["error"]["code"], "overloaded");
    for probe in ["GET /healthz", "GET /readyz", "GET /metrics", "GET /v1/models"] {
        assert_eq!(status_of(gateway.address, probe), 200, "{probe}");
    }
}

#[test]
fn the_gateways_figures_show_what_the_daemons_page_tells_and_nothing_when_it_tells_nothing() {
    let mut daemon = Setup::new(&accounts(2, 2, "")).start();
    let upstream = upstream(2, 2);
    let gateway = gateway(&upstream, &daemon.socket());
    let figures = |fits: &dyn Fn(&str) -> bool| {
        let bound = Instant::now() + SOON;
        loop {
            let text = request(gateway.address, "GET /metrics", "Connection: close", "").body();
            if fits(&text) {
                return;
            }
            assert!(Instant::now() < bound, "{text}");
        }
    };
    let mut stream = chat(gateway.address, "sk-one");
    assert!(stream.first_bytes() > 0);
    let rows = ["gateway_leases 1", "gateway_pool_in_flight 1", "gateway_pool_capacity 4", "gateway_node_requests 1"];
    figures(&|text| rows.iter().all(|row| text.lines().any(|line| line == *row)));
    daemon.kill();
    figures(&|text| !text.contains("gateway_pool_") && text.contains("gateway_governor_connected 0"));
}
