//! The tower layer: when the lease begins and ends, and what a refusal looks like.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use governor_client::tower::GovernorLayer;
use governor_client::{Governor, LeaseHandle};
use governor_common::wire::reply::{Origin, Reply, Shed};
use governor_common::wire::request::{Acquire, Request as Frame};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::peer::{Peer, Talk, eventually};

const LEASE: u64 = 0x0001_0000_0000_0001;

/// A body that gives two frames and then ends, or fails.
struct Stream {
    frames: u32,
    fails: bool,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        if self.frames > 0 {
            self.frames -= 1;
            return Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b"data")))));
        }
        Poll::Ready(self.fails.then(|| Err(std::io::Error::other("the upstream hung up"))))
    }
}

fn post(path: &str) -> Request<Empty<Bytes>> {
    Request::post(path).header("authorization", "Bearer sk-one").body(Empty::new()).unwrap()
}

/// Sends one request through the layer while the daemon grants it.
async fn granted(governor: &Governor, talk: &mut Talk, stream: Stream) -> Response<impl Body<Data = Bytes> + use<>> {
    let mut stream = Some(stream);
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let lease = request.extensions().get::<LeaseHandle>().expect("the handler sees its lease");
        assert_eq!(lease.member().as_deref(), Some("m1"));
        let response = Response::new(stream.take().expect("one request comes"));
        async move { Ok::<_, Infallible>(response) }
    });
    let service = GovernorLayer::new(governor.clone(), "chat").layer(CloneOnce::new(inner));
    let (response, ()) = tokio::join!(service.oneshot(post("/v1/chat/completions")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    response.unwrap()
}

/// Makes a one-shot service cloneable: clones share it.
struct CloneOnce<S>(Arc<Mutex<S>>);

impl<S> CloneOnce<S> {
    fn new(inner: S) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }
}

impl<S> Clone for CloneOnce<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R, S: Service<R>> Service<R> for CloneOnce<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.lock().unwrap().poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.lock().unwrap().call(request)
    }
}

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

/// What the client sees of a refusal: status, headers and body.
async fn refused(
    path: &str,
    header: Option<(&'static str, &'static str)>,
    status: u16,
) -> (StatusCode, String, String) {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner =
        service_fn(|_: Request<Empty<Bytes>>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let layer = GovernorLayer::new(governor, "chat").allow_origin(HeaderValue::from_static("*"));
    let mut request = post(path);
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let (response, ()) = tokio::join!(layer.layer(inner).oneshot(request), async {
        let request = talk.acquire().await;
        let (origin, reason) = if status == 429 { (Origin::Key, "fair_share") } else { (Origin::Node, "node_cap") };
        let (reason, detail) = (reason.to_owned(), "no slot".to_owned());
        let shed = Shed { status, origin, reason, retry_after_ms: 1001, decision: 77, detail };
        talk.say(&Reply::Shed(shed), request).await;
    });
    let (head, body) = response.unwrap().into_parts();
    let mut headers: Vec<String> =
        head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (head.status, headers.join("\n"), body)
}

#[tokio::test]
async fn a_refusal_speaks_the_language_of_the_route() {
    let (status, headers, body) = refused("/v1/chat/completions", None, 429).await;
    assert_eq!(status, 429);
    assert_eq!(
        headers,
        "access-control-allow-origin: *\n\
         access-control-expose-headers: retry-after, retry-after-ms, x-governor-origin, x-governor-decision\n\
         cache-control: no-store\n\
         content-type: application/json\n\
         retry-after-ms: 1001\n\
         retry-after: 2\n\
         x-governor-decision: 000000000000004d\n\
         x-governor-origin: key"
    );
    assert_eq!(
        body,
        r#"{"error":{"code":"fair_share","message":"no slot","param":null,"reason":"fair_share","type":"rate_limit_error"}}"#
    );

    let (status, headers, body) = refused("/v1/responses", None, 529).await;
    assert_eq!(status.as_u16(), 529);
    assert!(headers.ends_with("x-governor-origin: node"));
    assert_eq!(
        body,
        r#"{"error":{"code":"overloaded","message":"no slot","param":null,"reason":"node_cap","type":"overloaded_error"}}"#
    );

    let rows = [("/v1/messages", None), ("/v1/chat/completions", Some(("anthropic-version", "2023-06-01")))];
    for (path, header) in rows {
        let (_, _, body) = refused(path, header, 529).await;
        let golden = r#"{"error":{"message":"no slot","reason":"node_cap","type":"overloaded_error"},"type":"error"}"#;
        assert_eq!(body, golden, "{path}");
        let (_, _, body) = refused(path, header, 429).await;
        let golden =
            r#"{"error":{"message":"no slot","reason":"fair_share","type":"rate_limit_error"},"type":"error"}"#;
        assert_eq!(body, golden, "{path}");
    }
}

#[tokio::test]
async fn the_extractor_fills_in_the_ask() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner =
        service_fn(|_: Request<Empty<Bytes>>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let own = GovernorLayer::new(governor.clone(), "chat")
        .extract(|governor, head, ask| ask.key(governor.key(head.uri.path().as_bytes())).label("path").sticky("m2"));
    let rows: [(GovernorLayer, &str, Acquire); 2] = [
        (
            GovernorLayer::new(governor.clone(), "chat"),
            "/v1/embeddings",
            Acquire {
                pool: "chat".into(),
                key: Some(governor.key(b"sk-one")),
                endpoint: Some("embeddings".into()),
                ..Acquire::default()
            },
        ),
        (
            own,
            "/v1/rerank",
            Acquire {
                pool: "chat".into(),
                key: Some(governor.key(b"/v1/rerank")),
                label: Some("path".into()),
                endpoint: Some("rerank".into()),
                sticky: Some("m2".into()),
                ..Acquire::default()
            },
        ),
    ];
    for (layer, path, expected) in rows {
        let (response, ()) = tokio::join!(layer.layer(inner).oneshot(post(path)), async {
            let (message, request) = talk.next().await;
            assert_eq!(message, Frame::Acquire(expected));
            talk.grant(request, LEASE, "m2").await;
        });
        drop(response.unwrap());
        assert_eq!(talk.release().await, [LEASE]);
    }
}

#[tokio::test]
async fn exempt_and_unlisted_work_passes_without_a_daemon_and_hops_share_their_lease() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner =
        service_fn(|_: Request<Empty<Bytes>>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let service = GovernorLayer::new(governor.clone(), "chat").layer(inner);
    for path in ["/health", "/metrics", "/v1/models", "/v1/anything", "/mcp"] {
        let response = service.clone().oneshot(post(path)).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
    }
    let outer = service.clone();
    let (lease, ()) = tokio::join!(governor.acquire(governor_client::AcquireRequest::new("chat")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    let lease = lease.unwrap();
    let mut hop = post("/v1/chat/completions");
    hop.extensions_mut().insert(lease.handle());
    assert_eq!(outer.oneshot(hop).await.unwrap().status(), 200);
    drop(lease);
    assert_eq!(talk.release().await, [LEASE], "the hop asked for nothing and released nothing");
}

#[tokio::test]
async fn long_lived_exempt_streams_have_a_cap_of_their_own() {
    let peer = Peer::absent();
    let governor = Governor::start(peer.config());
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Stream { frames: 1, fails: false }))
    });
    let service = GovernorLayer::new(governor, "chat").exempt_stream_cap(1).layer(inner);
    let first = service.clone().oneshot(post("/mcp")).await.unwrap();
    let second = service.clone().oneshot(post("/mcp")).await.unwrap();
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 529));
    drop(first);
    assert_eq!(service.oneshot(post("/mcp")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_upstreams_own_refusal_passes_with_its_origin_and_else_untouched() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        let response = Response::builder().status(429).header("retry-after", "7").body(Empty::<Bytes>::new()).unwrap();
        Ok::<_, Infallible>(response)
    });
    let service = GovernorLayer::new(governor, "chat").layer(inner);
    let (response, ()) = tokio::join!(service.oneshot(post("/v1/messages")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    let response = response.unwrap();
    assert_eq!(response.status(), 429);
    let headers: Vec<_> = response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("retry-after", &b"7"[..]), ("x-governor-origin", b"upstream")]);
}
