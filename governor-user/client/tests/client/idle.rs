//! Suspended leases, clients that are gone, and the questions for tiers.

use super::peer::{Peer, Talk, eventually};
use super::session::held;
use governor_client::{AcquireRequest, Lease};
use governor_common::wire::KeyHash;
use governor_common::wire::reply::{Origin, Reply, Shed, Welcome};
use governor_common::wire::request::{Request, TierIs};
use std::time::Duration;

const LEASE: u64 = 0x0001_0000_0000_0001;

async fn suspended(talk: &mut Talk, lease: Lease) -> governor_client::Suspended {
    let suspended = lease.suspend();
    assert_eq!(talk.next().await.0, Request::Suspend { lease: LEASE });
    suspended
}

#[tokio::test]
async fn a_suspended_lease_is_resumed_under_its_id_on_another_member() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let suspended = suspended(&mut talk, lease).await;
    assert!(suspended.handle().is_suspended());
    let (resumed, ()) = tokio::join!(suspended.resume(Some(Duration::from_secs(2))), async {
        let (asked, request) = talk.next().await;
        assert_eq!(asked, Request::Resume { lease: LEASE, max_wait_ms: Some(2000) });
        talk.say(&Reply::Parked, request).await;
        talk.grant(request, LEASE, "m2").await;
    });
    let lease = resumed.unwrap();
    assert_eq!((lease.id(), lease.member().as_deref(), lease.is_suspended()), (LEASE, Some("m2"), false));
    drop(lease);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_lease_that_is_not_resumed_is_held_all_the_same() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let suspended = suspended(&mut talk, lease).await;
    let (answer, ()) = tokio::join!(suspended.resume(None), async {
        let (asked, request) = talk.next().await;
        assert_eq!(asked, Request::Resume { lease: LEASE, max_wait_ms: None });
        let shed = Shed {
            status: 429,
            origin: Origin::Pool,
            reason: "pool_exhausted".into(),
            retry_after_ms: 1000,
            decision: 1,
            detail: "full".into(),
            quota: Some(98),
        };
        talk.say(&Reply::Shed(shed), request).await;
    });
    let refused = answer.unwrap_err();
    assert_eq!(refused.refused().reason(), "pool_exhausted");
    let suspended = refused.into_suspended();
    assert!(suspended.handle().is_suspended() && !suspended.handle().is_over());
    drop(suspended);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_suspended_lease_is_registered_as_one_and_resumed_after_that() {
    let mut peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let suspended = suspended(&mut talk, lease).await;
    peer.vanish();
    drop(talk);
    let resumed = tokio::spawn(suspended.resume(None));
    peer.listen();
    let mut talk = peer.greet().await;
    let (Request::Register { leases }, request) = talk.next().await else { panic!("leases are registered") };
    assert_eq!(leases.iter().map(|held| (held.lease, held.suspended)).collect::<Vec<_>>(), [(LEASE, true)]);
    let registered = Reply::Registered { leases: vec![(LEASE, LEASE + 9)] };
    talk.say(&registered, request).await;
    let request = loop {
        match talk.next().await {
            (Request::Resume { lease, .. }, request) => {
                assert_eq!(lease, LEASE + 9);
                break request;
            }
            // Saying it once more does no harm.
            (Request::Suspend { lease }, _) => assert_eq!(lease, LEASE + 9),
            (other, _) => panic!("{other:?}"),
        }
    };
    talk.grant(request, LEASE + 9, "m1").await;
    assert_eq!(resumed.await.unwrap().unwrap().id(), LEASE + 9);
}

#[tokio::test]
async fn while_the_daemon_is_away_the_fallback_resumes() {
    let mut peer = Peer::listening();
    let config = governor_client::Config { patience: Duration::ZERO, ..peer.config() };
    let governor = governor_client::Governor::start(config);
    let mut talk = peer.greet().await;
    let mut connected = governor.connected();
    connected.wait_for(|connected| *connected).await.unwrap();
    let lease = held(&governor, &mut talk, LEASE).await;
    let suspended = suspended(&mut talk, lease).await;
    peer.vanish();
    drop(talk);
    let lease = suspended.resume(None).await.unwrap();
    peer.listen();
    let mut talk = peer.greet().await;
    let (Request::Register { leases }, _) = talk.next().await else { panic!("leases are registered") };
    assert!(!leases[0].suspended, "it runs");
    drop(lease);
}

#[tokio::test]
async fn a_daemon_of_version_1_is_told_nothing_it_does_not_know() {
    let peer = Peer::listening();
    let governor = governor_client::Governor::start(peer.config());
    let welcome = Welcome { version: 1, session: 5, epoch: 1, lease_ttl_ms: 30_000 };
    let mut talk = peer.greet_with(welcome).await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let hop = governor.acquire(AcquireRequest::new("chat").hop_of(&lease)).await.unwrap();
    assert_eq!((hop.id(), hop.member()), (0, lease.member()));
    governor.tier_is(KeyHash([1; 16]), Some("tier3"), Duration::from_secs(1));
    let lease = lease.suspend().resume(None).await.unwrap();
    drop((hop, lease));
    assert_eq!(talk.release().await, [LEASE], "and nothing came before it");
}

#[tokio::test]
async fn whoever_holds_a_lease_learns_that_its_client_is_gone() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let handle = lease.handle();
    let told = tokio::spawn(async move { handle.client_gone().await });
    talk.say(&Reply::ClientGone { lease: LEASE + 1 }, 0).await;
    talk.say(&Reply::ClientGone { lease: LEASE }, 0).await;
    told.await.unwrap();
    lease.client_gone().await;
}

#[tokio::test]
async fn a_question_for_a_tier_reaches_whoever_listens_and_the_answer_goes_back() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let mut asks = governor.tier_asks();
    let org = governor.key(b"acme");
    talk.say(&Reply::TierAsk { org }, 0).await;
    assert_eq!(asks.next().await, Some(org));
    governor.tier_is(org, Some("tier3"), Duration::from_secs(60));
    assert_eq!(talk.next().await.0, Request::TierIs(TierIs { org, class: Some("tier3".into()), ttl_ms: 60_000 }));
    drop(governor);
    drop(talk);
    assert_eq!(asks.next().await, None, "the task has ended with the last handle");
}

#[tokio::test]
async fn a_lease_dropped_while_it_waits_to_resume_is_released() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let suspended = suspended(&mut talk, lease).await;
    let waiting = tokio::spawn(suspended.resume(None));
    let (Request::Resume { .. }, request) = talk.next().await else { panic!("a resume comes") };
    waiting.abort();
    assert_eq!(talk.release().await, [LEASE]);
    let reason = "this session holds no such lease".to_owned();
    talk.say(&Reply::Reject { reason }, request).await;
    eventually("the lease is forgotten", || governor.stats().leases == 0).await;
}
