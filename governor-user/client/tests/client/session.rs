//! Leases and requests across drops, crossings and broken connections.

use super::peer::{Peer, Talk, eventually};
use governor_client::{AcquireRequest, Governor, Kind, Level, MemberNews, Overload, RevokeReason};
use governor_common::wire::reply::{Origin, Reply, Shed};
use governor_common::wire::request::{MemberReport, Request};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;
use tokio::net::UnixSocket;
use tokio::time::timeout;

const LEASE: u64 = 0x0001_0000_0000_0001;

pub(super) async fn held(governor: &Governor, talk: &mut Talk, lease: u64) -> governor_client::Lease {
    let (got, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat")), async {
        let request = talk.acquire().await;
        talk.grant(request, lease, "m1").await;
    });
    got.unwrap()
}

#[tokio::test]
async fn a_lease_dropped_on_a_foreign_thread_is_released() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    assert_eq!((lease.id(), lease.member().as_deref()), (LEASE, Some("m1")));

    thread::spawn(move || drop(lease)).join().unwrap();

    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_lease_dropped_in_a_panic_is_released() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;

    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _lease = lease;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));

    assert!(panicked.is_err());
    assert_eq!(talk.release().await, [LEASE]);
}

#[test]
fn a_lease_dropped_after_its_runtime_is_gone_harms_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lease = runtime.block_on(async {
        let (governor, mut talk) = Peer::listening().meet().await;
        held(&governor, &mut talk, LEASE).await
    });
    drop(runtime);
    drop(lease);
}

#[tokio::test]
async fn leases_dropped_together_are_released_in_one_frame() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let mut leases = Vec::new();
    for n in 0..5 {
        leases.push(held(&governor, &mut talk, LEASE + n).await);
    }
    drop(leases);
    assert_eq!(talk.release().await, (LEASE..LEASE + 5).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_last_handle_to_go_says_the_last_releases_and_hangs_up() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    drop(governor);
    drop(lease);
    assert_eq!(talk.release().await, [LEASE]);
    assert_eq!(talk.next_or_end().await, None);
}

#[tokio::test]
async fn a_dropped_future_withdraws_its_request_and_a_grant_that_crosses_is_given_back() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let asking = tokio::spawn({
        let governor = governor.clone();
        async move { governor.acquire(AcquireRequest::new("chat")).await }
    });
    let request = talk.acquire().await;
    talk.say(&Reply::Parked, request).await;

    asking.abort();
    assert_eq!(talk.next().await.0, Request::Cancel { request });
    talk.grant(request, LEASE, "m1").await;

    assert_eq!(talk.release().await, [LEASE]);
    assert_eq!(governor.stats().leases, 0);
}

#[tokio::test]
async fn a_refusal_carries_what_the_daemon_said() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let shed = Shed {
        status: 429,
        origin: Origin::Key,
        reason: "fair_share".into(),
        retry_after_ms: 1500,
        decision: 77,
        detail: "the key holds 9 of 9".into(),
        quota: Some(9),
    };
    let (refused, ()) = tokio::join!(governor.acquire(AcquireRequest::new("chat")), async {
        let request = talk.acquire().await;
        talk.say(&Reply::Shed(shed), request).await;
    });
    let refused = refused.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (429, Some(Origin::Key), "fair_share"));
    assert_eq!((refused.retry_after(), refused.decision()), (Some(Duration::from_millis(1500)), Some(77)));
    assert_eq!(refused.quota(), Some(9));

    let (rejected, ()) = tokio::join!(governor.acquire(AcquireRequest::new("nowhere")), async {
        let request = talk.acquire().await;
        talk.say(&Reply::Reject { reason: "no such pool".into() }, request).await;
    });
    let rejected = rejected.unwrap_err();
    assert!(rejected.is_rejected());
    assert_eq!((rejected.status(), rejected.origin(), rejected.retry_after()), (400, None, None));
}

#[tokio::test]
async fn after_a_restart_leases_are_registered_and_go_by_their_new_ids() {
    let mut peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let kept = held(&governor, &mut talk, LEASE).await;
    let ended = held(&governor, &mut talk, LEASE + 1).await;
    let late = held(&governor, &mut talk, LEASE + 2).await;

    drop(talk);
    peer.vanish();
    let mut connected = governor.connected();
    timeout(Duration::from_secs(10), connected.wait_for(|up| !up)).await.unwrap().unwrap();
    drop(ended);
    eventually("the release is taken up", || governor.stats().leases == 2).await;
    peer.listen();
    let mut talk = peer.greet().await;

    assert_eq!(talk.resume, Some(5));
    let (Request::Register { leases }, request) = talk.next().await else { panic!("a register comes first") };
    let told: Vec<_> = leases.iter().map(|held| (held.lease, held.pool.as_str(), held.member.as_deref())).collect();
    assert_eq!(told, [(LEASE, "chat", Some("m1")), (LEASE + 2, "chat", Some("m1"))]);
    assert!(leases.iter().all(|held| held.kind == Kind::Ordinary));

    // A release that falls into the gap waits for the new id.
    drop(late);
    eventually("the release is taken up", || governor.stats().queued == 0).await;
    let (old, new) = (LEASE + 2, LEASE + (2 << 48));
    talk.say(&Reply::Registered { leases: vec![(LEASE, new + 1), (old, new)] }, request).await;
    assert_eq!(talk.release().await, [new]);
    eventually("the guard learns its new id", || kept.id() == new + 1).await;
    drop(kept);
    assert_eq!(talk.release().await, [new + 1]);
    assert_eq!(governor.stats().reconnects_total, 1);
}

#[tokio::test]
async fn a_request_in_flight_when_the_connection_breaks_is_sent_again() {
    let peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let ask = AcquireRequest::new("chat").max_wait(Duration::from_secs(20));
    let (lease, ()) = tokio::join!(governor.acquire(ask), async {
        talk.acquire().await;
        drop(talk);
        let mut talk = peer.greet().await;
        let (Request::Acquire(again), request) = talk.next().await else { panic!("the acquire comes again") };
        assert!(again.max_wait_ms.is_some_and(|ms| ms <= 20_000), "the wait shrinks by the time spent");
        talk.grant(request, LEASE, "m2").await;
        // Keeps the session open until the grant is read.
        eventually("the grant is taken up", || governor.stats().leases == 1).await;
    });
    assert_eq!(lease.unwrap().member().as_deref(), Some("m2"));
}

#[tokio::test]
async fn a_lease_moves_once_and_keeps_its_id() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;

    let (moved, ()) = tokio::join!(lease.move_away(), async {
        let (message, request) = talk.next().await;
        assert_eq!(message, Request::Move { lease: LEASE });
        talk.grant(request, LEASE, "m2").await;
    });

    assert_eq!(moved.as_deref(), Ok("m2"));
    assert_eq!((lease.id(), lease.member().as_deref()), (LEASE, Some("m2")));
    assert!(lease.move_away().await.unwrap_err().is_rejected());
    drop(lease);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_move_that_is_refused_ends_the_lease() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    let (moved, ()) = tokio::join!(lease.move_away(), async {
        let (_, request) = talk.next().await;
        let (origin, detail) = (Origin::Pool, String::new());
        let reason = "pool_exhausted".to_owned();
        let shed = Shed { status: 429, origin, reason, retry_after_ms: 1, decision: 1, detail, quota: None };
        talk.say(&Reply::Shed(shed), request).await;
    });
    assert_eq!(moved.unwrap_err().reason(), "pool_exhausted");
    assert!(lease.is_over());
    drop(lease);
    eventually("the guard is gone", || governor.stats().leases == 0).await;
    let second = held(&governor, &mut talk, LEASE + 1).await;
    drop(second);
    assert_eq!(talk.release().await, [LEASE + 1], "the lease that was over is not released");
}

#[tokio::test]
async fn a_revoked_lease_tells_its_guard_and_is_not_released() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let lease = held(&governor, &mut talk, LEASE).await;
    talk.say(&Reply::Revoke { lease: LEASE, reason: RevokeReason::Operator }, 0).await;
    eventually("the guard learns", || lease.revoked() == Some(RevokeReason::Operator)).await;
    drop(lease);
    let second = held(&governor, &mut talk, LEASE + 1).await;
    drop(second);
    assert_eq!(talk.release().await, [LEASE + 1]);
    assert_eq!(governor.stats().revoked_total, 1);
}

#[tokio::test]
async fn the_overload_level_reaches_every_watcher() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let mut watch = governor.overload();
    let overload = Overload { level: Level::High, pressure: 800, causes: 1, retry_after_ms: 2000 };
    talk.say(&Reply::Overload(overload), 0).await;
    let seen = timeout(Duration::from_secs(10), watch.wait_for(|now| now.level == Level::High)).await;
    assert_eq!(*seen.unwrap().unwrap(), overload);
}

#[tokio::test]
async fn news_of_a_member_reaches_the_daemon() {
    let (governor, mut talk) = Peer::listening().meet().await;
    eventually("the session opens", || governor.stats().connected).await;
    let state = MemberNews::RateLimited { reset_ms: Some(5000) };
    governor.member_report("chat", "m1", state);
    let report = MemberReport { pool: "chat".into(), member: "m1".into(), state };
    assert_eq!(talk.next().await.0, Request::MemberReport(report));
}

#[tokio::test]
async fn live_leases_are_renewed_together_and_tell_when_they_last_moved() {
    use governor_common::wire::VERSION;
    use governor_common::wire::reply::Welcome;
    let peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let touched = held(&governor, &mut talk, LEASE).await;
    let silent = held(&governor, &mut talk, LEASE + 1).await;
    touched.touch();
    drop(talk);

    // The ttl of the next session is short, so that its first renewal comes soon.
    let mut talk = peer.greet_with(Welcome { version: VERSION, session: 6, epoch: 1, lease_ttl_ms: 300 }).await;
    let (Request::Register { leases }, request) = talk.next().await else { panic!("a register comes first") };
    let same = leases.iter().map(|held| (held.lease, held.lease)).collect();
    talk.say(&Reply::Registered { leases: same }, request).await;

    let (Request::Renew { leases }, _) = talk.next().await else { panic!("a renewal comes") };
    let seen: Vec<_> = leases.iter().map(|renewal| (renewal.lease, renewal.idle_ms.is_some())).collect();
    assert_eq!(seen, [(LEASE, true), (LEASE + 1, false)]);
    drop((touched, silent));
}

#[tokio::test]
async fn a_socket_whose_queue_is_full_is_tried_again() {
    let peer = Peer::absent();
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(peer.path()).unwrap();
    let listener = socket.listen(1).unwrap();
    let crowd = [(); 2].map(|()| std::os::unix::net::UnixStream::connect(peer.path()).unwrap());

    let governor = Governor::start(peer.config());
    let asking = tokio::spawn(async move { governor.acquire(AcquireRequest::new("chat")).await });
    // The queue is full: only after it drains does the governor get in, and nothing was refused meanwhile.
    for _ in &crowd {
        listener.accept().await.unwrap();
    }
    let mut talk = Peer::greet_on(&listener).await;
    let request = talk.acquire().await;
    talk.grant(request, LEASE, "m1").await;
    assert_eq!(asking.await.unwrap().unwrap().id(), LEASE);
}
