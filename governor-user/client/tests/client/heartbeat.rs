//! A daemon that holds its socket open and does nothing: the heartbeat of its page tells.

use super::peer::{Peer, eventually};
use governor_client::{AcquireRequest, Config, Governor};
use governor_common::signal::{PageWriter, Signals};
use governor_common::wire::request::Request;
use std::time::Duration;
use tokio::time::sleep;

const LEASE: u64 = 0x0001_0000_0000_0001;

fn asking(governor: &Governor) -> tokio::task::JoinHandle<Result<governor_client::Lease, governor_client::Refused>> {
    let governor = governor.clone();
    tokio::spawn(async move { governor.acquire(AcquireRequest::new("chat")).await })
}

#[tokio::test]
async fn a_daemon_whose_heartbeat_stands_still_counts_as_away_long_before_its_socket_tells() {
    let mut page = PageWriter::create(1).unwrap();
    page.write(&Signals::default());
    let peer = Peer::listening();
    let governor = Governor::start(Config { patience: Duration::from_millis(20), ..peer.config() });
    let mut talk = peer.greet_with_page(&page).await;
    let asking = asking(&governor);
    talk.acquire().await;
    // Nothing answers, and nobody writes the page.
    let lease = asking.await.unwrap().unwrap();
    assert!(lease.is_fallback());
    assert!(governor.signals().is_stale());

    // It begins anew, and the daemon hears of what was done without it.
    let mut talk = peer.greet().await;
    assert_eq!(talk.resume, Some(5));
    let (Request::Register { leases }, request) = talk.next().await else { panic!("leases are registered") };
    assert_eq!(leases.len(), 1);
    let registered = vec![(leases[0].lease, LEASE)];
    talk.say(&governor_common::wire::reply::Reply::Registered { leases: registered }, request).await;
    eventually("the guard learns its id", || lease.id() == LEASE).await;
    drop(lease);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_heartbeat_that_moves_again_in_time_changes_nothing() {
    let mut page = PageWriter::create(1).unwrap();
    page.write(&Signals::default());
    let peer = Peer::listening();
    let governor = Governor::start(peer.config());
    let mut talk = peer.greet_with_page(&page).await;
    let first = asking(&governor);
    let parked = talk.acquire().await;
    eventually("the page is stale", || governor.signals().is_stale()).await;
    // Some looks later the library knows as well, and keeps what comes.
    sleep(Duration::from_millis(600)).await;
    let second = asking(&governor);
    eventually("it waits", || governor.stats().waiting == 2).await;
    page.write(&Signals::default());
    let kept = talk.acquire().await;
    talk.grant(parked, LEASE, "m1").await;
    talk.grant(kept, LEASE + 1, "m1").await;
    let leases = [first.await.unwrap().unwrap(), second.await.unwrap().unwrap()];
    assert_eq!(leases.each_ref().map(|lease| lease.id()), [LEASE, LEASE + 1]);
    assert_eq!((governor.stats().reconnects_total, governor.stats().fallback_grants_total), (0, 0));
}
