//! A governor that is asked from everywhere: from other runtimes, by many threads at once, and when its own is gone.

use super::peer::{PATIENCE, Peer};
use governor_client::{AcquireRequest, Governor};
use std::future::Future;
use std::sync::mpsc;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

const LEASE: u64 = 0x0001_0000_0000_0001;

fn run<F: Future>(of: F) -> F::Output {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(of)
}

async fn ask(governor: &Governor) -> Result<governor_client::Lease, governor_client::Refused> {
    let asked = governor.acquire(AcquireRequest::new("chat"));
    timeout(PATIENCE, asked).await.expect("there is an answer")
}

#[tokio::test]
async fn many_threads_ask_at_once_and_each_gets_its_own_answer() {
    const THREADS: u64 = 8;
    const EACH: u64 = 50;
    let (governor, mut talk) = Peer::listening().meet().await;
    let askers: Vec<_> = (0..THREADS)
        .map(|_| {
            let governor = governor.clone();
            let work = async move {
                for _ in 0..EACH {
                    drop(ask(&governor).await.unwrap());
                }
            };
            thread::spawn(move || run(work))
        })
        .collect();
    drop(governor);
    let (mut granted, mut released) = (0, Vec::new());
    // The last handle is gone with the last thread, and then the line is hung up.
    while let Some((frame, request)) = timeout(PATIENCE, talk.next_or_end()).await.expect("somebody asks, or ends") {
        if let governor_common::wire::request::Request::Release { leases } = frame {
            released.extend(leases);
        } else {
            talk.grant(request, LEASE + granted, "m1").await;
            granted += 1;
        }
    }
    askers.into_iter().for_each(|asker| asker.join().unwrap());
    released.sort_unstable();
    assert_eq!(released, (LEASE..LEASE + THREADS * EACH).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_asks_when_the_governors_runtime_ends_is_told_and_so_is_who_asks_later() {
    let peer = Peer::listening();
    let (config, (give, given), (end, ended)) = (peer.config(), mpsc::channel(), oneshot::channel::<()>());
    let owner = thread::spawn(move || {
        run(async move {
            give.send(Governor::start(config)).unwrap();
            ended.await.unwrap();
        });
    });
    let governor = given.recv().unwrap();
    let mut talk = peer.greet().await;
    let asking = tokio::spawn({
        let governor = governor.clone();
        async move { ask(&governor).await }
    });
    talk.acquire().await;
    end.send(()).unwrap();
    owner.join().unwrap();
    assert_eq!(asking.await.unwrap().unwrap_err().status(), 529);
    assert_eq!(ask(&governor).await.unwrap_err().status(), 529);
}
