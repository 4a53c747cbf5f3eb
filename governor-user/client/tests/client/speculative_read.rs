//! Answers that are there as soon as they are asked for: who asks takes them, and what is not whole yet is left to the task.

use super::peer::{PATIENCE, Peer};
use bytes::BytesMut;
use futures_util::FutureExt;
use governor_client::AcquireRequest;
use governor_common::wire::codec::encode_grant;
use std::pin::pin;
use tokio::time::timeout;

const LEASE: u64 = 0x0001_0000_0000_0001;

/// The frame of a grant.
fn grant(request: u32, lease: u64) -> BytesMut {
    let mut bytes = BytesMut::new();
    encode_grant((lease, 0, Some("m1")), request, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn who_asks_takes_the_answer_that_is_there_already_and_those_of_others_with_it() {
    let peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let mut other = pin!(governor.acquire(AcquireRequest::new("chat")));
    assert!(other.as_mut().now_or_never().is_none());
    let request = talk.acquire().await;
    // Request ids are counted up, so that the answer can be on its way before the question.
    let mut answers = grant(request, LEASE);
    answers.unsplit(grant(request + 1, LEASE + 1));
    talk.send(&answers).await;
    let lease = governor.acquire(AcquireRequest::new("chat")).now_or_never().expect("nobody had to wait").unwrap();
    assert_eq!(lease.id(), LEASE + 1);
    assert_eq!(other.now_or_never().expect("it was answered too").unwrap().id(), LEASE);
}

#[tokio::test]
async fn an_answer_that_is_half_there_is_whole_with_the_rest() {
    let peer = Peer::listening();
    let (governor, mut talk) = peer.meet().await;
    let first = governor.acquire(AcquireRequest::new("chat"));
    let (first, request) = tokio::join!(first, async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
        request
    });
    let answer = grant(request + 1, LEASE + 1);
    let (front, rest) = answer.split_at(answer.len() / 2);
    talk.send(front).await;
    let mut second = pin!(governor.acquire(AcquireRequest::new("chat")));
    assert!(second.as_mut().now_or_never().is_none());
    talk.send(rest).await;
    let second = timeout(PATIENCE, second).await.expect("the rest comes").unwrap();
    assert_eq!((first.unwrap().id(), second.id()), (LEASE, LEASE + 1));
}

#[tokio::test]
async fn a_daemon_that_is_gone_when_it_is_asked_is_asked_again_when_it_is_back() {
    let peer = Peer::listening();
    let (governor, talk) = peer.meet().await;
    drop(talk);
    let mut asking = pin!(governor.acquire(AcquireRequest::new("chat")));
    assert!(asking.as_mut().now_or_never().is_none(), "the end of the session is no answer");
    let answered = async {
        let mut talk = peer.greet().await;
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
        talk
    };
    let (lease, _talk) = timeout(PATIENCE, async { tokio::join!(asking, answered) }).await.expect("it is back");
    assert_eq!(lease.unwrap().id(), LEASE);
}
