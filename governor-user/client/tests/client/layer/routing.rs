//! Which requests ask, and which share a slot or need none.

use super::{LEASE, Stream, nothing, post};
use crate::peer::{Peer, Talk};
use crate::session::held;
use bytes::Bytes;
use governor_client::tower::{ChildOf, GovernorLayer};
use governor_client::{AcquireRequest, Governor, Lease};
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{Parent, Request as Frame};
use http::{Method, Request, Response};
use http_body_util::Empty;
use std::convert::Infallible;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test]
async fn exempt_and_unlisted_work_passes_without_a_daemon() {
    let peer = Peer::absent();
    let service = GovernorLayer::new(Governor::start(peer.config()), "chat").layer(service_fn(nothing));
    for path in ["/health", "/metrics", "/v1/models", "/.well-known/oauth-authorization-server", "/v1/anything", "/mcp"]
    {
        let response = service.clone().oneshot(post(path)).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn unlisted_posts_are_counted_once_and_shown() {
    let peer = Peer::absent();
    let governor = Governor::start(peer.config());
    let inner = GovernorLayer::new(governor.clone(), "chat").layer(service_fn(nothing));
    let service = GovernorLayer::new(governor.clone(), "other").layer(inner.map_response(|answer| answer));
    for path in ["/v1/anything", "/v1/anything?x=1", "/v1/batches", "/healthz", "/v1/models", "/mcp"] {
        assert_eq!(service.clone().oneshot(post(path)).await.unwrap().status(), 200, "{path}");
    }
    let mut get = post("/v1/anything");
    *get.method_mut() = Method::GET;
    assert_eq!(service.oneshot(get).await.unwrap().status(), 200);
    assert_eq!(governor.stats().unlisted_total, 3);
}

#[tokio::test]
async fn unlisted_posts_take_slots_where_that_is_wanted() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor.clone(), "chat").count_unlisted();
    let (response, ()) = tokio::join!(layer.layer(service_fn(nothing)).oneshot(post("/v1/anything")), async {
        let (Frame::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
        assert_eq!(acquire.endpoint.as_deref(), Some("unlisted"));
        talk.grant(request, LEASE, "m1").await;
    });
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(governor.stats().unlisted_total, 0, "the daemon counts it");
}

/// B6: a browser asks before it posts, and must have its answer at any load.
#[tokio::test]
async fn a_preflight_never_counts_whatever_the_table_says() {
    let peer = Peer::absent();
    let layer = GovernorLayer::new(Governor::start(peer.config()), "chat")
        .routes(|_| governor_client::http::routes::Route::Counted("all"));
    let mut preflight = post("/v1/messages");
    *preflight.method_mut() = Method::OPTIONS;
    preflight.headers_mut().insert("access-control-request-method", http::HeaderValue::from_static("POST"));
    let response = layer.layer(service_fn(nothing)).oneshot(preflight).await.unwrap();
    assert_eq!(response.status(), 200);
}

/// B5: the extension can only be planted by code of this process.
#[tokio::test]
async fn a_hop_shares_its_lease_and_asks_for_nothing() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let service = GovernorLayer::new(governor.clone(), "chat").layer(service_fn(nothing));
    let lease = held(&governor, &mut talk, LEASE).await;
    let mut hop = post("/v1/chat/completions");
    hop.extensions_mut().insert(lease.handle());
    assert_eq!(service.oneshot(hop).await.unwrap().status(), 200);
    drop(lease);
    assert_eq!(talk.release().await, [LEASE], "the hop asked for nothing and released nothing");
}

/// Sends a request that names `lease` as the work it belongs to, and expects that it takes a slot of its own.
async fn takes_a_slot(governor: &Governor, talk: &mut Talk, lease: governor_client::LeaseHandle) {
    let service = GovernorLayer::new(governor.clone(), "chat").layer(service_fn(nothing));
    let mut request = post("/v1/chat/completions");
    request.extensions_mut().insert(lease);
    let (response, ()) = tokio::join!(service.oneshot(request), async {
        let (Frame::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
        assert_eq!(acquire.parent, None);
        talk.grant(request, LEASE + 9, "m1").await;
    });
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(talk.release().await, [LEASE + 9]);
}

#[tokio::test]
async fn a_lease_that_is_over_or_idle_or_revoked_or_of_another_daemon_is_no_way_around_admission() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let over = held(&governor, &mut talk, LEASE).await;
    let handle = over.handle();
    drop(over);
    assert_eq!(talk.release().await, [LEASE]);
    takes_a_slot(&governor, &mut talk, handle).await;

    let idle = held(&governor, &mut talk, LEASE + 1).await.suspend();
    assert_eq!(talk.next().await.0, Frame::Suspend { lease: LEASE + 1 });
    takes_a_slot(&governor, &mut talk, idle.handle()).await;
    drop(idle);
    assert_eq!(talk.release().await, [LEASE + 1]);

    let revoked = held(&governor, &mut talk, LEASE + 2).await;
    talk.say(&Reply::Revoke { lease: LEASE + 2, reason: governor_client::RevokeReason::Operator }, 0).await;
    crate::peer::eventually("the guard learns", || revoked.revoked().is_some()).await;
    takes_a_slot(&governor, &mut talk, revoked.handle()).await;

    let (elsewhere, mut other) = Peer::listening().meet().await;
    let foreign = held(&elsewhere, &mut other, LEASE).await;
    takes_a_slot(&governor, &mut talk, foreign.handle()).await;
}

async fn child(governor: &Governor, talk: &mut Talk, parent: &Lease) -> Response<impl http_body::Body + use<>> {
    let service = GovernorLayer::new(governor.clone(), "chat").layer(service_fn(nothing));
    let mut request = post("/v1/embeddings");
    // The handler that makes the request hands its own lease on as well: a child is new work all the same.
    request.extensions_mut().insert(parent.handle());
    request.extensions_mut().insert(ChildOf(parent.handle()));
    let (response, ()) = tokio::join!(service.oneshot(request), async {
        let (Frame::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
        assert_eq!(acquire.parent, Some(Parent::Child { lease: parent.id() }));
        talk.grant(request, LEASE + 5, "m2").await;
    });
    response.unwrap()
}

/// A25: new upstream work that the holder of a lease needs.
#[tokio::test]
async fn a_child_names_its_parent_and_has_a_lease_of_its_own() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let parent = held(&governor, &mut talk, LEASE).await;
    let response = child(&governor, &mut talk, &parent).await;
    assert_eq!(response.status(), 200);
    assert_eq!(talk.release().await, [LEASE + 5]);
    drop(parent);
    assert_eq!(talk.release().await, [LEASE]);
}

#[tokio::test]
async fn long_lived_exempt_streams_have_a_cap_of_their_own() {
    let peer = Peer::absent();
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Stream { frames: 1, fails: false }))
    });
    let layer = GovernorLayer::new(Governor::start(peer.config()), "chat").exempt_stream_cap(1);
    let service = layer.layer(inner);
    let first = service.clone().oneshot(post("/mcp")).await.unwrap();
    assert_eq!(layer.exempt_streams(), 1);
    let second = service.clone().oneshot(post("/mcp")).await.unwrap();
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 529));
    drop(first);
    assert_eq!(layer.exempt_streams(), 0);
    assert_eq!(service.oneshot(post("/mcp")).await.unwrap().status(), 200);
}

/// A body that may never be looked at: whoever polls it fails the test.
struct Untouchable;

impl http_body::Body for Untouchable {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        panic!("the body was read before admission");
    }
}

#[tokio::test]
async fn admission_reads_nothing_of_the_body() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner =
        service_fn(|_: Request<Untouchable>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let service = GovernorLayer::new(governor, "chat").layer(inner);
    let request = || Request::post("/v1/messages").body(Untouchable).unwrap();
    let (refused, ()) = tokio::join!(service.clone().oneshot(request()), async {
        let request = talk.acquire().await;
        talk.say(&Reply::Reject { reason: "no such pool".into() }, request).await;
    });
    assert_eq!(refused.unwrap().status(), 400);
    let (granted, ()) = tokio::join!(service.oneshot(request()), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    assert_eq!(granted.unwrap().status(), 200);
}

/// A10: who is not let in asks for nothing.
#[tokio::test]
async fn what_authentication_refuses_asks_for_nothing() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let governed = GovernorLayer::new(governor.clone(), "chat").layer(service_fn(nothing));
    let gate = service_fn(move |request: Request<Empty<Bytes>>| {
        let governed = governed.clone();
        async move {
            if request.headers().contains_key("authorization") {
                return governed.oneshot(request).await.map(|response| response.status());
            }
            Ok(http::StatusCode::UNAUTHORIZED)
        }
    });
    let stranger = Request::post("/v1/messages").body(Empty::new()).unwrap();
    assert_eq!(gate.clone().oneshot(stranger).await.unwrap(), 401);
    let (lease, ()) = tokio::join!(governor.acquire(AcquireRequest::new("next")), async {
        let (Frame::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
        assert_eq!(acquire.pool, "next", "the stranger's request asked for nothing");
        talk.grant(request, LEASE, "m1").await;
    });
    drop(lease);
}
