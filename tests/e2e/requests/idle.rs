//! Leases of idle work, and requests that belong to running work.

use crate::world::{ask, back, client, daemon, lease, refusal, soon};
use governor_client::{AcquireRequest, Governor, Lease, Refused};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

async fn acquired(governor: &Governor, asked: AcquireRequest) -> Result<Lease, Refused> {
    soon(governor.acquire(asked)).await
}

fn in_flight(daemon: &Daemon) -> u64 {
    daemon.get("/v1/pools")[0]["in_flight"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_lease_gives_its_slot_to_others_and_waits_to_be_resumed() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let idle = lease(&governor, "a").await;
    let id = idle.id();
    let suspended = idle.suspend();
    let other = lease(&governor, "b").await;
    let rows = daemon.get("/v1/leases");
    let row = rows.as_array().unwrap().iter().find(|row| row["label"] == "a").unwrap().clone();
    assert_eq!((&row["suspended"], in_flight(&daemon)), (&true.into(), 1), "{row}");

    let refused = soon(suspended.resume(Some(Duration::ZERO))).await.unwrap_err();
    assert_eq!((refused.refused().status(), refused.refused().reason()), (429, "pool_exhausted"));
    let waiting = tokio::spawn(refused.into_suspended().resume(None));
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    drop(other);
    let resumed = soon(waiting).await.unwrap().unwrap();
    assert_eq!((resumed.id(), resumed.is_suspended()), (id, false));
    drop(resumed);
    daemon.wait_for("/v1/leases", |leases| leases == &serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_lease_is_suspended_still_after_the_daemon_was_killed() {
    let mut daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let suspended = lease(&governor, "a").await.suspend();
    let running = lease(&governor, "b").await;
    daemon.kill();
    let mut connected = governor.connected();
    soon(connected.wait_for(|connected| !connected)).await.unwrap();
    daemon.restart().unwrap();
    back(&governor, &daemon).await;
    let leases = daemon.wait_for("/v1/leases", |leases| leases.as_array().is_some_and(|all| all.len() == 2));
    let idle: Vec<_> = leases.as_array().unwrap().iter().filter(|row| row["suspended"] == true).collect();
    assert_eq!((idle.len(), &idle[0]["label"], in_flight(&daemon)), (1, &"a".into(), 1), "{leases}");
    drop(running);
    soon(suspended.resume(None)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_takes_the_reserve_or_is_refused_at_once_and_never_waits_behind_its_parent() {
    let daemon = Setup::new("[pools.chat.members.m1]\nslots = 2\nreserve = 1\n").start();
    let governor = client(&daemon.socket()).await;
    let parent = lease(&governor, "a").await;
    assert_eq!(refusal(&governor, "a", Duration::ZERO).await.reason(), "pool_exhausted");
    let child = acquired(&governor, ask(&governor, "a").child_of(&parent)).await.expect("the reserve is for it");
    assert_eq!(in_flight(&daemon), 2);
    let rows = daemon.get("/v1/leases");
    assert!(rows.as_array().unwrap().iter().any(|row| row["kind"] == "child"), "{rows}");
    // It would be parked for 30 s if it were anybody else's.
    let refused = acquired(&governor, ask(&governor, "a").child_of(&parent)).await.unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (429, "pool_exhausted"));
    assert_eq!(daemon.get("/v1/pools")[0]["parked"], 0);
    drop(child);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hop_shares_the_lease_of_its_work_and_costs_nothing() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let work = lease(&governor, "a").await;
    let hop = acquired(&governor, ask(&governor, "a").hop_of(&work)).await.unwrap();
    let further = acquired(&governor, ask(&governor, "a").hop_of(&hop)).await.unwrap();
    assert_eq!((hop.id(), hop.member(), further.member()), (0, work.member(), work.member()));
    assert_eq!(in_flight(&daemon), 1);
    drop((hop, further));
    assert_eq!(in_flight(&daemon), 1, "the work goes on");
    drop(work);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_hops_on_a_lease_of_another_session_or_org() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let work = acquired(&governor, ask(&governor, "a").org(governor.key(b"acme"))).await.unwrap();
    let stranger = ask(&governor, "a").org(governor.key(b"other")).hop_of(&work).max_wait(Duration::ZERO);
    assert_eq!(acquired(&governor, stranger).await.unwrap_err().reason(), "pool_exhausted");
    let mut other = crate::raw::Raw::greeted(&daemon.socket());
    let hop = governor_common::wire::request::Parent::Hop { lease: work.id() };
    let reply = other.acquire(2, |acquire| {
        acquire.parent = Some(hop);
        acquire.max_wait_ms = Some(0);
    });
    assert!(matches!(reply, governor_common::wire::reply::Reply::Shed(_)), "{reply:?}");
}
