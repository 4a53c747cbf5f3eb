//! Children and hops: requests that belong to running work.

use super::peer::{Peer, Talk};
use super::session::held;
use governor_client::{AcquireRequest, ClientSocket, Priority};
use governor_common::wire::reply::{Grant, Reply};
use governor_common::wire::request::{Acquire, Parent, Request};

const LEASE: u64 = 0x0001_0000_0000_0001;

async fn asked(talk: &mut Talk) -> (Acquire, u32) {
    let (Request::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
    (acquire, request)
}

#[tokio::test]
async fn what_a_request_says_of_itself_is_what_the_daemon_hears() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let client = ClientSocket {
        local: "127.0.0.1:80".parse().unwrap(),
        peer: "127.0.0.1:5000".parse().unwrap(),
        cookie: Some(7),
    };
    let ask = AcquireRequest::new("chat")
        .org(governor.key(b"acme"))
        .class("tier2")
        .priority(Priority::Critical)
        .traffic("media");
    let (lease, ()) = tokio::join!(governor.acquire(ask.client(client).ends_with_client()), async {
        let (acquire, request) = asked(&mut talk).await;
        assert_eq!(acquire.org, Some(governor.key(b"acme")));
        assert_eq!((acquire.class.as_deref(), acquire.priority), (Some("tier2"), Priority::Critical));
        assert_eq!(acquire.traffic.as_deref(), Some("media"));
        assert_eq!((acquire.client, acquire.ends_with_client, acquire.parent), (Some(client), true, None));
        talk.grant(request, LEASE, "m1").await;
    });
    drop(lease);
}

#[tokio::test]
async fn a_child_names_its_parent_and_a_hop_releases_nothing() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let parent = held(&governor, &mut talk, LEASE).await;
    let (child, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat").child_of(&parent)), async {
        let (acquire, request) = asked(&mut talk).await;
        assert_eq!(acquire.parent, Some(Parent::Child { lease: LEASE }));
        talk.grant(request, LEASE + 1, "m1").await;
    });
    let (hop, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat").hop_of(&parent)), async {
        let (acquire, request) = asked(&mut talk).await;
        assert_eq!(acquire.parent, Some(Parent::Hop { lease: LEASE }));
        talk.say(&Reply::Grant(Grant { lease: 0, member: None, waited_ms: 0 }), request).await;
    });
    let hop = hop.unwrap();
    assert_eq!((hop.id(), hop.member()), (0, parent.member()));
    let (grandchild, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat").child_of(&hop)), async {
        let (acquire, request) = asked(&mut talk).await;
        assert_eq!(acquire.parent, Some(Parent::Child { lease: LEASE }), "a hop's work is its parent's");
        talk.grant(request, LEASE + 2, "m1").await;
    });
    drop(hop);
    drop(grandchild);
    assert_eq!(talk.release().await, [LEASE + 2]);
    drop((child, parent));
    assert_eq!(talk.release().await, [LEASE + 1, LEASE]);
}

#[tokio::test]
async fn a_lease_that_is_over_is_no_parent() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let parent = held(&governor, &mut talk, LEASE).await;
    let handle = parent.handle();
    drop(parent);
    assert_eq!(talk.release().await, [LEASE]);
    let (lease, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat").hop_of(&handle)), async {
        let (acquire, request) = asked(&mut talk).await;
        assert_eq!(acquire.parent, None);
        talk.grant(request, LEASE + 1, "m1").await;
    });
    drop(lease);
    assert_eq!(talk.release().await, [LEASE + 1], "it had a slot of its own");
}

#[tokio::test]
async fn a_child_waits_until_its_parent_has_an_id_again() {
    let mut peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let parent = held(&governor, &mut talk, LEASE).await;
    peer.vanish();
    drop(talk);
    let child = tokio::spawn({
        let (governor, ask) = (governor.clone(), AcquireRequest::new("chat").child_of(&parent));
        async move { governor.acquire(ask).await }
    });
    peer.listen();
    let mut talk = peer.greet().await;
    let (Request::Register { .. }, request) = talk.next().await else { panic!("leases are registered") };
    talk.say(&Reply::Registered { leases: vec![(LEASE, LEASE + 9)] }, request).await;
    let (acquire, request) = asked(&mut talk).await;
    assert_eq!(acquire.parent, Some(Parent::Child { lease: LEASE + 9 }));
    talk.grant(request, LEASE + 10, "m1").await;
    drop(child.await.unwrap());
}

#[tokio::test]
async fn the_fallback_gives_a_hop_what_its_work_holds_already() {
    let mut peer = Peer::listening();
    let config = governor_client::Config { patience: std::time::Duration::ZERO, ..peer.config() };
    let governor = governor_client::Governor::start(config);
    let mut talk = peer.greet().await;
    let mut connected = governor.connected();
    connected.wait_for(|connected| *connected).await.unwrap();
    let parent = held(&governor, &mut talk, LEASE).await;
    peer.vanish();
    drop(talk);
    connected.wait_for(|connected| !connected).await.unwrap();
    let hop = governor.acquire(AcquireRequest::new("chat").hop_of(&parent)).await.unwrap();
    assert_eq!((hop.member(), hop.is_fallback()), (parent.member(), false));
    assert_eq!(governor.stats().fallback_grants_total, 0);
}
