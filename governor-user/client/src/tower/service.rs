//! The service: one request's way from admission to the lease in the response body. Awaits the grant before the inner
//! service is called, so that a request that is refused, or whose client leaves while it is parked, has cost nothing
//! upstream.

use super::admit::{self, Admitted};
use super::body::LeaseBody;
use super::connection::Connection;
use super::hold::Hold;
use super::layer::Settings;
use crate::http::{self as rendering, Dialect};
use crate::lease::LeaseHandle;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;
use tracing::warn;

/// Asks for a slot, then calls the inner service. Made by [`GovernorLayer`](super::GovernorLayer).
#[derive(Clone, Debug)]
pub struct GovernorService<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> GovernorService<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, A, B> Service<Request<A>> for GovernorService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    A: Send + 'static,
    B: Body<Data = Bytes>,
{
    type Response = Response<LeaseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The clone has not been polled ready, the service in hand has: that one serves this request.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let settings = self.settings.clone();
        let (mut head, body) = request.into_parts();
        Box::pin(async move {
            let Admitted { hold, lease } = match settings.admit(&mut head).await {
                Ok(admitted) => admitted,
                Err(refused) => {
                    let refusal = rendering::refusal(&refused, Dialect::of(&head), settings.allow_origin.as_ref());
                    return Ok(refusal.map(LeaseBody::refusal));
                }
            };
            let connection = admit::connection(&head.extensions).cloned();
            let connects = head.method == Method::CONNECT;
            let mut answer = pin!(inner.call(Request::from_parts(head, body)));
            let mut response = match lease.filter(|_| settings.ends_with_client) {
                None => answer.await?,
                Some(lease) => match unless_gone(&lease, answer.as_mut()).await {
                    Some(answer) => answer?,
                    None => return Ok(nobody_there().map(LeaseBody::refusal)),
                },
            };
            rendering::mark_upstream_refusal(&mut response);
            let upgrades = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if upgrades || (connects && response.status().is_success()) {
                hand_over(hold, connection.as_ref());
                return Ok(response.map(|body| LeaseBody::holding(body, Hold::Nothing)));
            }
            Ok(response.map(|body| LeaseBody::holding(body, hold)))
        })
    }
}

/// The answer, or `None` as soon as the kernel reports that the client is gone.
async fn unless_gone<F: Future>(lease: &LeaseHandle, answer: Pin<&mut F>) -> Option<F::Output> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = lease.client_gone() => None,
    }
}

/// The status for a client that is gone; for access logs, which know this number.
fn nobody_there() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT);
    response
}

/// The work goes on after the response: its lease stays with the connection, or with its custody.
fn hand_over(hold: Hold, connection: Option<&Connection>) {
    let left = match connection {
        Some(connection) => connection.keep(hold),
        None => Err(hold),
    };
    if let Err(Hold::Lease(keep)) = left
        && !keep.leave()
    {
        warn!("a lease ends with the handshake of what it was for: attach the connection, or keep the lease's custody");
    }
}
