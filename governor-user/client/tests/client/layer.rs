//! The tower layer, without a server around it.

mod callers;
mod endings;
mod refusals;
mod routing;

use super::peer::Talk;
use bytes::Bytes;
use governor_client::tower::GovernorLayer;
use governor_client::{Governor, LeaseHandle};
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use std::convert::Infallible;
use std::future::Ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tower::{Layer, Service, ServiceExt, service_fn};

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

/// A handler that answers with an empty body.
fn nothing(_: Request<Empty<Bytes>>) -> Ready<Result<Response<Empty<Bytes>>, Infallible>> {
    std::future::ready(Ok(Response::new(Empty::new())))
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
