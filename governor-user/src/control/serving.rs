//! Serves HTTP/1.1 to peers that may mean harm: how many connections there are and whose, how long each may take, and
//! how many answers are in memory. The control API and the metrics are served by this; it knows neither.

mod slots;

pub use self::slots::MOST_CONNECTIONS;
use self::slots::{Busy, Slot, Slots};
use super::server::Caller;
use crate::transport::peer::Peer;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tower::ServiceExt;

/// A request's head arrives within this, counted from the connection's begin or the answer before; an idle connection
/// ends by the same.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// Longest lifetime of a connection: bounds slow bodies and answers that are not read.
const CONNECTION_WITHIN: Duration = Duration::from_secs(120);

/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 16 * 1024;

/// Bytes of a request's body at most; an override takes some hundred.
const BODY_BYTES: usize = 64 * 1024;

/// Pause after the system had no descriptor or no memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves these routes on a Unix socket until the daemon ends; each request names its caller.
pub async fn unix(listener: UnixListener, routes: Router) {
    serve(listener, routes).await;
}

/// Serves these routes over TCP until the daemon ends.
pub async fn tcp(listener: TcpListener, routes: Router) {
    serve(listener, routes).await;
}

trait Listener {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and the process at its other end where the kernel knows it.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<Peer>)>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<Peer>)> {
        let (stream, _) = self.accept().await?;
        let peer = Peer::of(&stream).ok();
        Ok((stream, peer))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<Peer>)> {
        let (stream, _) = self.accept().await?;
        Ok((stream, None))
    }
}

async fn serve(listener: impl Listener, routes: Router) {
    let routes = routes.layer(DefaultBodyLimit::max(BODY_BYTES));
    let slots = Slots::default();
    loop {
        match listener.next().await {
            Ok((stream, peer)) => {
                // Over its bounds a connection is closed without a word: an answer would cost what the bound saves.
                if let Some(slot) = slots.take(peer.map(|peer| peer.uid)) {
                    tokio::spawn(connection(stream, peer, slot, routes.clone()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection cannot be accepted now");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection<S>(stream: S, peer: Option<Peer>, slot: Slot, routes: Router)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let slot = &slot;
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let routes = routes.clone();
        async move {
            let Some(busy) = slot.begin() else { return Ok(too_many()) };
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(Caller::from(peer)));
            let answer = routes.oneshot(request).await;
            Ok::<Response, Infallible>(
                answer.unwrap_or_else(|never| match never {}).map(|body| Body::new(Held { body, _busy: busy })),
            )
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES);
    let served = http.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = served => {
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
        }
        () = slot.evicted() => tracing::debug!("an idle HTTP connection made room for another"),
        () = tokio::time::sleep(CONNECTION_WITHIN) => tracing::debug!("an HTTP connection took too long"),
    }
}

fn too_many() -> Response {
    (StatusCode::TOO_MANY_REQUESTS, "too many requests at once by this user: wait for an answer before you ask again\n")
        .into_response()
}

/// A body that counts as an answer in memory until it is sent.
struct Held {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
