//! When the lease begins and ends.

use super::{LEASE, Stream, granted, post};
use crate::peer::{Peer, eventually};
use bytes::Bytes;
use governor_client::tower::{Custody, GovernorLayer};
use governor_common::wire::reply::Reply;
use governor_common::wire::request::Request as Frame;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use std::convert::Infallible;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test]
async fn the_lease_ends_with_the_body_and_not_with_the_head() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let response = granted(&governor, &mut talk, Stream { frames: 2, fails: false }).await;
    let mut body = Box::pin(response.into_body());
    for _ in 0..2 {
        assert!(body.frame().await.is_some());
        assert_eq!(governor.stats().leases, 1, "the body has not ended");
    }
    assert!(body.frame().await.is_none());
    assert_eq!(talk.release().await, [LEASE], "released while the body is still in hand");
    drop(body);
    eventually("nothing is left", || governor.stats().leases == 0 && governor.stats().queued == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_stream_gives_the_lease_back() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let response = granted(&governor, &mut talk, Stream { frames: 2, fails: false }).await;
    let mut body = Box::pin(response.into_body());
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn a_body_that_fails_gives_the_lease_back() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let response = granted(&governor, &mut talk, Stream { frames: 0, fails: true }).await;
    let mut body = Box::pin(response.into_body());
    assert!(body.frame().await.is_some_and(|frame| frame.is_err()));
    assert_eq!(talk.release().await, [LEASE]);
    drop(body);
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_gives_the_lease_back() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let failing = service_fn(|_: Request<Empty<Bytes>>| async { Err::<Response<Empty<Bytes>>, _>("failed") });
    let layer = GovernorLayer::new(governor.clone(), "chat");
    let (response, ()) = tokio::join!(layer.layer(failing).oneshot(post("/v1/messages")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    assert!(response.is_err());
    assert_eq!(talk.release().await, [LEASE]);

    let panicking = service_fn(|_: Request<Empty<Bytes>>| async {
        std::panic::resume_unwind(Box::new("on purpose"));
        #[expect(unreachable_code, reason = "gives the future its type")]
        Ok::<Response<Empty<Bytes>>, Infallible>(Response::new(Empty::new()))
    });
    let running = tokio::spawn(layer.layer(panicking).oneshot(post("/v1/messages")));
    let request = talk.acquire().await;
    talk.grant(request, LEASE + 1, "m1").await;
    assert!(running.await.unwrap_err().is_panic());
    assert_eq!(talk.release().await, [LEASE + 1]);
}

#[tokio::test]
async fn a_client_that_leaves_while_parked_costs_no_upstream_call() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        panic!("upstream is called");
        #[expect(unreachable_code, reason = "gives the future its type")]
        Ok::<Response<Empty<Bytes>>, Infallible>(Response::new(Empty::new()))
    });
    let service = GovernorLayer::new(governor.clone(), "chat").layer(inner);
    let running = tokio::spawn(service.oneshot(post("/v1/messages")));
    let request = talk.acquire().await;
    talk.say(&Reply::Parked, request).await;
    running.abort();
    assert_eq!(talk.next().await.0, Frame::Cancel { request });
    talk.grant(request, LEASE, "m1").await;
    assert_eq!(talk.release().await, [LEASE]);
    assert!(running.await.unwrap_err().is_cancelled());
}

/// A14: work that is idle for long gives its slot back and keeps its lease.
#[tokio::test]
async fn a_handler_may_take_the_lease_over_and_suspend_it() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let (sender, taken) = tokio::sync::oneshot::channel();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(Some(sender)));
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let lease = request.extensions().get::<Custody>().and_then(Custody::take).expect("the layer has it");
        sender.lock().unwrap().take().expect("one request comes").send(lease).unwrap();
        async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let service = GovernorLayer::new(governor, "chat").layer(inner);
    let (response, ()) = tokio::join!(service.oneshot(post("/v1/responses")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    drop(response.unwrap());
    let suspended = taken.await.unwrap().suspend();
    assert_eq!(talk.next().await.0, Frame::Suspend { lease: LEASE }, "and no release came with the response");
    drop(suspended);
    assert_eq!(talk.release().await, [LEASE]);
}
