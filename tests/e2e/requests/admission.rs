//! Grants, parking and refusals through the real socket.

use crate::world::{ask, client, daemon, lease, refusal, soon};
use governor_client::{AcquireRequest, Kind, Origin};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_held_until_its_guard_is_dropped() {
    let daemon = daemon(1, 2, "");
    let governor = client(&daemon.socket()).await;
    let first = lease(&governor, "a").await;
    assert_eq!(first.member().as_deref(), Some("m1"));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 1);
    drop(first);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freed_slot_wakes_the_parked_request() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let first = lease(&governor, "a").await;
    let waiting = tokio::spawn({
        let governor = governor.clone();
        async move { lease(&governor, "b").await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    drop(first);
    let second = soon(waiting).await.unwrap();
    assert!(second.waited() > Duration::ZERO);
    assert_eq!(daemon.get("/v1/pools")[0]["parked"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_left_is_never_granted() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let first = lease(&governor, "a").await;
    let left = tokio::spawn({
        let governor = governor.clone();
        async move { governor.acquire(ask(&governor, "b")).await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    left.abort();
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 0);
    drop(first);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    assert_eq!(daemon.get("/v1/pools")[0]["granted_total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_over_its_share_is_refused_in_numbers_that_explain_answers() {
    let daemon = daemon(1, 10, "fair_share = 80\nfair_share_mode = \"enforce\"");
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(lease(&governor, "heavy").await);
    }
    held.push(lease(&governor, "light").await);
    // 9 of 10 are in use by two keys: each may hold 5.
    let refused = refusal(&governor, "heavy", Duration::ZERO).await;
    assert_eq!((refused.status(), refused.origin()), (429, Some(Origin::Key)));
    assert_eq!(refused.reason(), "fair_share");
    assert!(refused.retry_after().is_some_and(|after| after >= Duration::from_secs(1)));
    let detail = refused.detail();
    assert!(detail.contains("holds 8 of its share of 5") && !detail.contains("light"), "{detail}");
    let id = refused.decision().expect("a refusal has an id");
    let explained = daemon.get(&format!("/v1/explain/{id:x}"));
    assert_eq!(explained["numbers"]["key_in_flight"], 8);
    assert_eq!(explained["numbers"]["share"], 5);
    assert_eq!(explained["numbers"]["in_flight"], 9);
    assert_eq!(explained["numbers"]["capacity"], 10);
    assert_eq!(explained["label"], "heavy");
    held.push(lease(&governor, "light").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_explained_alike_after_a_restart() {
    let mut daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let held = lease(&governor, "a").await;
    let refused = refusal(&governor, "b", Duration::ZERO).await;
    let path = format!("/v1/explain/{:x}", refused.decision().expect("a refusal has an id"));
    let before = daemon.get(&path);
    drop((held, governor));
    daemon.restart().unwrap();
    let after = daemon.get(&path);
    assert_eq!(after["explanation"], before["explanation"]);
    assert_eq!((&after["numbers"], &after["label"]), (&before["numbers"], &serde_json::json!("b")));
}

#[tokio::test(flavor = "multi_thread")]
async fn observe_refuses_nothing_and_records_what_enforce_would_have_done() {
    let daemon = daemon(1, 10, "fair_share = 80\nfair_share_mode = \"observe\"");
    let governor = client(&daemon.socket()).await;
    let mut held = vec![lease(&governor, "light").await];
    for _ in 0..9 {
        held.push(lease(&governor, "heavy").await);
    }
    let pool = &daemon.get("/v1/pools")[0];
    assert_eq!((pool["in_flight"].as_u64(), pool["granted_total"].as_u64()), (Some(10), Some(10)));
    assert_eq!(pool["shed_total"], serde_json::json!({}));
    // From 8 in use on, heavy holds 7 and more with a share of 5: the last two would have waited.
    let would = &pool["would_have"]["fair_share"];
    assert_eq!(would["park"].as_u64().unwrap_or(0) + would["refuse"].as_u64().unwrap_or(0), 2, "{would}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_cap_answers_529_at_once() {
    let daemon =
        support::programs::daemon::Setup::new(&format!("[node]\ncap = 2\n{}", crate::world::pool(1, 8, ""))).start();
    let governor = client(&daemon.socket()).await;
    let _held = (lease(&governor, "a").await, lease(&governor, "b").await);
    let refused = refusal(&governor, "c", Duration::from_secs(30)).await;
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (529, Some(Origin::Node), "node_cap"));
    let health = AcquireRequest::new("chat").kind(Kind::Exempt);
    soon(governor.acquire(health)).await.expect("exempt work is never shed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_answers_429_is_left_for_another_with_the_same_lease() {
    let daemon = daemon(2, 4, "");
    let governor = client(&daemon.socket()).await;
    let lease = soon(governor.acquire(ask(&governor, "a").sticky("m2"))).await.unwrap();
    assert_eq!(lease.member().as_deref(), Some("m2"));
    let id = lease.id();
    governor.member_report("chat", "m2", governor_client::MemberNews::RateLimited { reset_ms: Some(60_000) });
    assert_eq!(soon(lease.move_away()).await.unwrap().as_ref(), "m1");
    assert_eq!(lease.id(), id);
    let pool = &daemon.get("/v1/pools")[0];
    assert_eq!((pool["in_flight"].as_u64(), pool["capacity"].as_u64()), (Some(1), Some(4)));
    assert_eq!(pool["members"][1]["state"], "cooling");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_pool_or_member_is_named() {
    let daemon = daemon(1, 1, "");
    let governor = client(&daemon.socket()).await;
    let refused = soon(governor.acquire(AcquireRequest::new("nope"))).await.unwrap_err();
    assert!(refused.is_rejected() && refused.detail().contains("no pool named \"nope\""), "{refused}");
    let refused = soon(governor.acquire(ask(&governor, "a").sticky("m9"))).await.unwrap_err();
    assert!(refused.is_rejected() && refused.detail().contains("m9"), "{refused}");
}
