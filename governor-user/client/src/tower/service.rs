//! The service: one request's way from the route table to the lease in the response body. Awaits the grant before the
//! inner service is called, so that a request that is refused, or whose client leaves while it is parked, has cost
//! nothing upstream.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::body::{Hold, LeaseBody};
use super::layer::Settings;
use crate::ask::AcquireRequest;
use crate::error::Refused;
use crate::http::routes::Route;
use crate::http::{self as rendering, Dialect};
use crate::lease::LeaseHandle;
use governor_common::wire::reply::Origin;

/// Asks for a slot, then calls the inner service. Made by [`GovernorLayer`](super::GovernorLayer).
#[derive(Clone, Debug)]
pub struct GovernorService<S> {
    inner: S,
    settings: Settings,
}

impl<S> GovernorService<S> {
    pub(super) fn new(inner: S, settings: Settings) -> Self {
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
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let dialect = Dialect::of(&head);
            let hold = match settings.admit(&mut head).await {
                Ok(hold) => hold,
                Err(refused) => {
                    let refusal = rendering::refusal(&refused, dialect, settings.allow_origin.as_ref());
                    return Ok(refusal.map(LeaseBody::refusal));
                }
            };
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            rendering::mark_upstream_refusal(&mut response);
            Ok(response.map(|body| LeaseBody::holding(body, hold)))
        })
    }
}

impl Settings {
    /// Decides whether the request may go on, and with what in hand.
    async fn admit(&self, head: &mut http::request::Parts) -> Result<Hold, Refused> {
        // A hop of work that already holds a slot shares its lease. Only code of this process can plant the
        // extension; no header a client sends can.
        if head.extensions.get::<LeaseHandle>().is_some_and(|lease| !lease.is_over()) {
            return Ok(Hold::Nothing);
        }
        match (self.classify)(&head.method, head.uri.path()) {
            Route::Counted(endpoint) => {
                let ask = AcquireRequest::new(&*self.pool).endpoint(endpoint);
                let ask = (self.extract)(&self.governor, head, ask);
                let lease = self.governor.acquire(ask).await?;
                head.extensions.insert(lease.handle());
                Ok(Hold::Lease(lease))
            }
            Route::ExemptStream => {
                ExemptStream::enter(&self.exempt_streams, self.exempt_stream_cap).map(Hold::ExemptStream)
            }
            Route::Exempt | Route::Unlisted => Ok(Hold::Nothing),
        }
    }
}

/// One long-lived exempt stream, counted until it is dropped.
#[derive(Debug)]
pub(super) struct ExemptStream(Arc<AtomicU32>);

impl ExemptStream {
    fn enter(streams: &Arc<AtomicU32>, cap: u32) -> Result<Self, Refused> {
        let grow = |now: u32| (now < cap).then(|| now + 1);
        match streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow) {
            Ok(_) => Ok(Self(streams.clone())),
            Err(_) => {
                let detail = format!("this node serves its limit of {cap} exempt streams");
                Err(Refused::local(529, Origin::Node, "exempt_stream_cap", Duration::from_secs(1), detail))
            }
        }
    }
}

impl Drop for ExemptStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
