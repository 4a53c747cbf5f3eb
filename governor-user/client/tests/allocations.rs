//! What a request costs a proxy in memory when it goes through the layer: so many allocations, whatever came before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[expect(dead_code, reason = "the tests of the engine count bytes too")]
#[path = "../../engine/benches/counting.rs"]
mod counting;

use bytes::{Bytes, BytesMut};
use counting::{Counting, calls};
use governor_client::tower::{Connection, GovernorLayer};
use governor_client::{Config, Governor};
use governor_common::wire::VERSION;
use governor_common::wire::codec::{encode_reply, parse_request};
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::{Grant, Reply, Welcome};
use governor_common::wire::request::{ClientSocket, Request as Frame};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use tower::{Layer, Service, ServiceExt, service_fn};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests until everything has the room it needs.
const WARM_UP: usize = 500;
const REQUESTS: usize = 500;

/// A daemon that grants whatever is asked for.
fn grants(mut proxy: UnixStream) {
    let (mut heard, mut said, mut chunk, mut lease) = (BytesMut::new(), BytesMut::new(), [0; 4096], 1 << 48);
    while let Ok(count @ 1..) = proxy.read(&mut chunk) {
        heard.extend_from_slice(&chunk[..count]);
        while let Some(frame) = decode_frame(&mut heard).unwrap() {
            let request = parse_request(&frame).unwrap();
            let welcome = Welcome { version: VERSION, session: 1, epoch: 1, lease_ttl_ms: 3_600_000 };
            let reply = if matches!(request, Frame::Hello(_)) {
                Reply::Welcome(welcome)
            } else if matches!(request, Frame::Acquire(_)) {
                lease += 1;
                Reply::Grant(Grant { lease, member: Some("m1".to_owned()), waited_ms: 0 })
            } else {
                continue;
            };
            encode_reply(&reply, frame.request, &mut said).unwrap();
        }
        if proxy.write_all(&said.split()).is_err() {
            return;
        }
    }
}

fn answer(_: Request<Empty<Bytes>>) -> Ready<Result<Response<http_body_util::Full<Bytes>>, Infallible>> {
    ready(Ok(Response::new(Bytes::from_static(b"an answer").into())))
}

/// Allocations of each request through this service, once it is warm.
async fn cost<S, B>(mut service: S) -> Vec<u64>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin,
{
    let client = ClientSocket {
        local: "127.0.0.1:80".parse().unwrap(),
        peer: "127.0.0.1:4000".parse().unwrap(),
        cookie: Some(7),
    };
    let connection = Connection::known(Some(client));
    let mut costs = Vec::new();
    for _ in 0..WARM_UP + REQUESTS {
        let mut request = Request::post("/v1/chat/completions").header("authorization", "Bearer sk-one");
        request.extensions_mut().unwrap().insert(connection.clone());
        let request = request.body(Empty::new()).unwrap();
        let before = calls();
        let mut body = service.ready().await.unwrap().call(request).await.unwrap().into_body();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
        drop(body);
        costs.push(calls() - before);
    }
    costs.split_off(WARM_UP)
}

#[tokio::test]
async fn a_request_through_the_layer_costs_few_allocations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || grants(listener.accept().unwrap().0));
    let governor = Governor::start(Config::new(&path));
    let layer = GovernorLayer::new(governor.clone(), "chat").ends_with_client();
    let alone = cost(service_fn(answer)).await;
    let asking = cost(layer.layer(service_fn(answer))).await;
    assert_eq!(governor.stats().fallback_grants_total, 0, "the daemon answered");
    let median = |mut costs: Vec<u64>| {
        costs.sort_unstable();
        costs[costs.len() / 2]
    };
    assert_eq!(median(alone), 0);
    // The service's future, the ask, the way back of its answer, the lease and its member, its custody, and two of these
    // among the request's extensions.
    assert_eq!(median(asking), 8);
}
