//! Clients as the kernel sees them: who leaves is noticed, and a slot that nobody gives back returns by itself.

use crate::signals::metrics::scrape;
use crate::site::{Answer, accounts, stats, upstream};
use crate::world::{ask, client, lease, pool, soon};
use governor_client::{ClientSocket, RevokeReason};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::programs::daemon::{Setup, free_port};

/// A connection, and the proxy's end of it as a request names it.
fn connection() -> (TcpStream, TcpStream, ClientSocket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    let socket = ClientSocket { local: server.local_addr().unwrap(), peer, cookie: None };
    (client, server, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaked_lease_returns_after_the_grace_and_one_that_is_not_flagged_stays() {
    let daemon = Setup::new(&format!("[node]\nreclaim_grace = \"200ms\"\n{}", pool(1, 4, ""))).start();
    let governor = client(&daemon.socket()).await;
    let (client_end, server_end, socket) = connection();
    let leaked = soon(governor.acquire(ask(&governor, "a").client(socket).ends_with_client())).await.unwrap();
    let kept = soon(governor.acquire(ask(&governor, "b").client(socket))).await.unwrap();
    let unknown = lease(&governor, "c").await;
    drop((client_end, server_end));
    soon(leaked.client_gone()).await;
    soon(kept.client_gone()).await;
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 2);
    crate::world::until("the holder is told", {
        let leaked = leaked.handle();
        move || leaked.revoked()
    })
    .await;
    assert_eq!((leaked.revoked(), kept.revoked()), (Some(RevokeReason::Reclaimed), None));
    let leases = daemon.get("/v1/leases");
    let gone: Vec<_> = leases.as_array().unwrap().iter().filter(|lease| lease["client_gone"] == true).collect();
    assert_eq!((gone.len(), &gone[0]["label"]), (1, &"b".into()), "{leases}");
    assert!(
        leases.as_array().unwrap().iter().all(|lease| lease["site"].as_str().unwrap().starts_with("e2e/world.rs:"))
    );
    let lost = &daemon.get("/v1/status")["lost"];
    assert_eq!((&lost[0]["reclaimed"], &lost[0]["expired"], lost.as_array().unwrap().len()), (&1.into(), &0.into(), 1));
    drop((leaked, kept, unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_the_kernel_saw_leave_is_not_granted() {
    let daemon = crate::world::daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let first = lease(&governor, "a").await;
    let (client_end, server_end, socket) = connection();
    let waiting = tokio::spawn({
        let (governor, request) = (governor.clone(), ask(&governor, "b").client(socket));
        async move { governor.acquire(request).await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    drop((client_end, server_end));
    let refused = soon(waiting).await.unwrap().unwrap_err();
    assert!(refused.is_rejected() && refused.detail().contains("client is gone"), "{refused}");
    drop(first);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert_eq!(daemon.get("/v1/pools")[0]["granted_total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stays_costs_nobody_his_lease() {
    let daemon = Setup::new(&format!("[node]\nreclaim_grace = \"0s\"\n{}", pool(1, 4, ""))).start();
    let governor = client(&daemon.socket()).await;
    let (_client_end, server_end, socket) = connection();
    // What ends by the kernel's word about another client has been asked for after this one: it was seen to live.
    let stays = soon(governor.acquire(ask(&governor, "a").client(socket).ends_with_client())).await.unwrap();
    let (other_client, other_server, other) = connection();
    let leaves = soon(governor.acquire(ask(&governor, "b").client(other).ends_with_client())).await.unwrap();
    drop((other_client, other_server));
    soon(leaves.client_gone()).await;
    assert_eq!((stays.revoked(), daemon.get("/v1/leases").as_array().unwrap().len()), (None, 1));
    drop(server_end);
    tokio::time::timeout(Duration::from_secs(20), stays.client_gone()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_leases_on_one_connection_are_as_many_leases_and_end_with_it() {
    for tier in ["auto", "netlink"] {
        let metrics = free_port();
        let setup = Setup::new(&format!("[node]\nreclaim_grace = \"100ms\"\n{}", pool(1, 8, ""))).tier(tier);
        let daemon = setup.metrics(metrics).start();
        let governor = client(&daemon.socket()).await;
        let (client_end, server_end, socket) = connection();
        let cookie = Some(rustix::net::sockopt::socket_cookie(&server_end).unwrap());
        let ask =
            |key: &str| ask(&governor, key).client(ClientSocket { cookie, ..socket }).ends_with_client().site("chat");
        let mut leases = Vec::new();
        for key in ["a", "b", "c", "c"] {
            leases.push(soon(governor.acquire(ask(key))).await.unwrap());
        }
        // One stream of it is reset: the connection and the others go on.
        leases.pop();
        daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 3);
        let how = if daemon.get("/v1/status")["tier"] == "netlink" { "asked" } else { "told" };
        let connections = format!("governor_client_connections{{end=\"{how}\"}}");
        crate::world::until("one connection is known", move || {
            (scrape(metrics).get(&connections) == Some(&1.0)).then_some(())
        })
        .await;
        drop((client_end, server_end));
        for lease in &leases {
            soon(lease.client_gone()).await;
        }
        daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
        let series = scrape(metrics);
        assert_eq!(series[&format!("governor_clients_gone_total{{end=\"{how}\"}}")], 3.0, "{tier}");
        assert_eq!(series["governor_leases_lost_total{site=\"chat\",cause=\"reclaimed\"}"], 3.0);
        assert_eq!(
            series["governor_client_connections{end=\"told\"}"] + series["governor_client_connections{end=\"asked\"}"],
            0.0
        );
    }
}

/// A call of an account that lasts for some hundred milliseconds, to its end; its status.
fn call(upstream: SocketAddr) -> u16 {
    let body = r#"{"stream":true,"max_tokens":10,"simulate":{"word_ms":20}}"#;
    let mut stream = TcpStream::connect(upstream).unwrap();
    stream.set_read_timeout(Some(crate::world::SOON)).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-account: acct-01\r\n";
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let answer = Answer::read(stream);
    let status = answer.status;
    answer.body();
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlives_its_client_keeps_its_slot_and_nobody_is_refused_upstream_for_it() {
    // No grace at all: a lease that is not flagged must not need one.
    let daemon = Setup::new(&format!("[node]\nreclaim_grace = \"0s\"\n{}", accounts(1, 1, ""))).tier("auto").start();
    let upstream = Arc::new(upstream(1, 1));
    let governor = client(&daemon.socket()).await;
    for round in 0..5 {
        let (client_end, server_end, socket) = connection();
        let first = soon(governor.acquire(ask(&governor, "a").client(socket))).await.unwrap();
        let other = tokio::spawn({
            let (governor, request) = (governor.clone(), ask(&governor, "b"));
            async move { governor.acquire(request).await }
        });
        daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
        let over = Arc::new(AtomicBool::new(false));
        let running = tokio::task::spawn_blocking({
            let (upstream, over) = (upstream.clone(), over.clone());
            move || {
                let status = call(upstream.address);
                over.store(true, Ordering::Release);
                status
            }
        });
        drop((client_end, server_end));
        soon(first.client_gone()).await;
        assert!(!other.is_finished() || over.load(Ordering::Acquire), "{round}: its slot was given away");
        assert_eq!(soon(running).await.unwrap(), 200);
        drop(first);
        let second = soon(other).await.unwrap().unwrap();
        let address = upstream.address;
        let status = soon(tokio::task::spawn_blocking(move || call(address))).await.unwrap();
        assert_eq!(status, 200, "{round}: the account was still busy");
        drop(second);
    }
    assert_eq!(stats(upstream.address)["refused_full_total"], 0);
    assert_eq!(daemon.get("/v1/status")["lost"], serde_json::json!([]));
}
