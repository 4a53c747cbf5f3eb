//! The time the daemon is away.

use super::peer::{Peer, eventually};
use governor_client::{AcquireRequest, Config, Fallback, Governor, KeyHash, Kind, Lease, Origin};
use governor_common::wire::reply::{Level, Limits, Overload, PoolLimits, Reply};
use governor_common::wire::request::Request;
use std::time::Duration;
use tokio::time::timeout;

fn ask(governor: &Governor, key: &str) -> AcquireRequest {
    AcquireRequest::new("chat").key(governor.key(key.as_bytes()))
}

fn impatient(peer: &Peer) -> Config {
    Config { patience: Duration::from_millis(20), ..peer.config() }
}

/// A governor that was told its limits and then lost its daemon.
async fn orphaned(peer: &mut Peer, limits: Limits) -> Governor {
    let governor = Governor::start(impatient(peer));
    let mut talk = peer.greet().await;
    talk.say(&Reply::Limits(limits), 0).await;
    talk.say(&Reply::Overload(Overload { level: Level::High, ..Overload::default() }), 0).await;
    let mut overload = governor.overload();
    let told = timeout(Duration::from_secs(10), overload.wait_for(|now| now.level == Level::High)).await;
    drop(told.unwrap().unwrap());
    peer.vanish();
    drop(talk);
    let mut connected = governor.connected();
    timeout(Duration::from_secs(10), connected.wait_for(|up| !up)).await.unwrap().unwrap();
    governor
}

fn limits(sessions: u32, capacity: u32, members: &[(&str, u32)]) -> Limits {
    let members = members.iter().map(|(name, slots)| ((*name).to_owned(), *slots)).collect();
    Limits { sessions, node_cap: 1000, pools: vec![PoolLimits { name: "chat".into(), capacity, members }] }
}

#[tokio::test]
async fn an_open_fallback_keeps_to_its_share_and_gives_every_key_one() {
    let mut peer = Peer::listening();
    // ⌈5 / 2⌉ = 3 for this session.
    let governor = orphaned(&mut peer, limits(2, 5, &[("m1", 3), ("m2", 2)])).await;

    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(governor.acquire(ask(&governor, "heavy")).await.unwrap());
    }
    let refused = governor.acquire(ask(&governor, "heavy")).await.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (429, Some(Origin::Pool), "fallback_share"));
    assert!(refused.is_local());
    let light = governor.acquire(ask(&governor, "light")).await.unwrap();
    assert!(light.is_fallback());
    assert_eq!(governor.acquire(ask(&governor, "light")).await.unwrap_err().status(), 429);

    // Least loaded for its slots: three leases spread over 3 and 2 slots.
    let on = |member: &str| leases.iter().filter(|lease| lease.member().as_deref() == Some(member)).count();
    assert!(on("m1") >= 1 && on("m2") >= 1, "m1 {} m2 {}", on("m1"), on("m2"));

    drop(leases);
    eventually("the slots come back", || governor.stats().leases == 1).await;
    governor.acquire(ask(&governor, "heavy")).await.unwrap();
    assert_eq!(governor.overload().borrow().level, Level::Normal, "an old level does not outlive its daemon");
}

#[tokio::test]
async fn a_member_that_is_off_gets_nothing_from_the_fallback() {
    let mut peer = Peer::listening();
    let governor = orphaned(&mut peer, limits(1, 4, &[("off", 0), ("on", 4)])).await;
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(governor.acquire(ask(&governor, "k")).await.unwrap());
    }
    assert!(leases.iter().all(|lease| lease.member().as_deref() == Some("on")));
    let only = AcquireRequest::new("chat").key(governor.key(b"other")).candidates(["off"]);
    let refused = governor.acquire(only).await.unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (429, "fallback_share"), "{refused}");

    let mut peer = Peer::listening();
    let governor = orphaned(&mut peer, limits(1, 0, &[("off", 0)])).await;
    assert_eq!(governor.acquire(ask(&governor, "k")).await.unwrap_err().status(), 429);
}

#[tokio::test]
async fn leases_of_the_fallback_are_registered_when_the_daemon_is_back() {
    let mut peer = Peer::listening();
    let governor = orphaned(&mut peer, limits(1, 5, &[("m1", 5)])).await;
    let lease = governor.acquire(ask(&governor, "k")).await.unwrap();
    assert_eq!((lease.id(), lease.is_fallback()), (0, true));

    peer.listen();
    let mut talk = peer.greet().await;
    let (Request::Register { leases }, request) = talk.next().await else { panic!("a register comes first") };
    let [held] = &leases[..] else { panic!("one lease is held") };
    assert_eq!((held.key, held.member.as_deref()), (Some(governor.key(b"k")), Some("m1")));
    assert_eq!(held.lease >> 48, 0, "ids of no epoch are the client's own");

    let new = 0x0002_0000_0000_0009;
    talk.say(&Reply::Registered { leases: vec![(held.lease, new)] }, request).await;
    eventually("the guard learns its id", || lease.id() == new).await;
    drop(lease);
    assert_eq!(talk.release().await, [new]);
}

#[tokio::test]
async fn a_fallback_lease_moves_to_another_member_once() {
    let mut peer = Peer::listening();
    let governor = orphaned(&mut peer, limits(1, 5, &[("m1", 3), ("m2", 2)])).await;
    let lease = governor.acquire(ask(&governor, "k")).await.unwrap();
    let before = lease.member().unwrap();
    let after = lease.move_away().await.unwrap();
    assert_ne!(before, after);
    assert_eq!(lease.member(), Some(after));
    assert!(lease.move_away().await.is_err());
}

#[tokio::test]
async fn a_member_that_refused_is_avoided_by_the_fallback() {
    let mut peer = Peer::listening();
    let governor = orphaned(&mut peer, limits(1, 9, &[("m1", 6), ("m2", 3)])).await;
    governor.member_report("chat", "m1", governor_client::MemberNews::RateLimited { reset_ms: Some(60_000) });
    let mut leases: Vec<Lease> = Vec::new();
    for _ in 0..3 {
        leases.push(governor.acquire(ask(&governor, "k")).await.unwrap());
    }
    assert!(leases.iter().all(|lease| lease.member().as_deref() == Some("m2")));
}

#[tokio::test]
async fn before_any_contact_only_the_node_cap_holds() {
    let peer = Peer::absent();
    let governor = Governor::start(Config { node_cap: 2, ..impatient(&peer) });
    let first = governor.acquire(ask(&governor, "a")).await.unwrap();
    assert_eq!(first.member(), None);
    let named = AcquireRequest::new("chat").candidates(["m7"]);
    assert_eq!(governor.acquire(named).await.unwrap().member().as_deref(), Some("m7"));
    let _second = governor.acquire(ask(&governor, "b")).await.unwrap();
    let refused = governor.acquire(ask(&governor, "c")).await.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (529, Some(Origin::Node), "node_cap"));
    governor.acquire(AcquireRequest::new("chat").kind(Kind::Exempt)).await.unwrap();
    assert_eq!((governor.stats().fallback_grants_total, governor.stats().fallback_refusals_total), (4, 1));
}

#[tokio::test]
async fn a_closed_fallback_refuses_with_529_from_the_node() {
    let peer = Peer::absent();
    let governor = Governor::start(Config { fallback: Fallback::Closed, ..impatient(&peer) });
    let refused = governor.acquire(ask(&governor, "a")).await.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (529, Some(Origin::Node), "governor_away"));
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_request_in_flight_when_the_daemon_dies_is_decided_by_the_fallback() {
    let mut peer = Peer::listening();
    let governor = Governor::start(impatient(&peer));
    let mut talk = peer.greet().await;
    let (lease, ()) = tokio::join!(governor.acquire(ask(&governor, "a")), async {
        talk.acquire().await;
        peer.vanish();
        drop(talk);
    });
    assert!(lease.unwrap().is_fallback());
}

#[tokio::test]
async fn a_draining_daemon_is_asked_nothing_and_counts_as_away() {
    let peer = Peer::listening();
    let governor = Governor::start(impatient(&peer));
    let mut talk = peer.greet().await;
    let parked = tokio::spawn({
        let governor = governor.clone();
        async move { governor.acquire(AcquireRequest::new("chat").key(KeyHash([1; 16]))).await }
    });
    let request = talk.acquire().await;
    talk.say(&Reply::Drain, 0).await;
    assert!(parked.await.unwrap().unwrap().is_fallback());
    assert_eq!(talk.next().await.0, Request::Cancel { request });
}

/// S39: a proxy that may not use the socket is told so once, follows its own policy, and does not hammer at the door.
#[tokio::test]
async fn a_proxy_that_is_denied_goes_on_by_its_own_policy() {
    let peer = Peer::listening();
    let governor = Governor::start(Config { fallback: Fallback::Closed, ..impatient(&peer) });
    peer.deny().await;
    let refused = governor.acquire(ask(&governor, "a")).await.unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (529, "governor_away"));
    let again = timeout(Duration::from_millis(500), peer.greet()).await;
    assert!(again.is_err(), "the next attempt comes seconds later");
}
