//! Clients as the kernel sees them: who leaves is noticed, and a slot that nobody gives back returns by itself.

use crate::world::{ask, client, lease, pool, soon};
use governor_client::{ClientSocket, RevokeReason};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use support::daemon::Setup;

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
