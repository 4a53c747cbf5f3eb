//! The layer and its settings: which pool, whose request it is, which routes count.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use http::request::Parts;
use http::{HeaderValue, Method, header};
use tower::Layer;

use super::service::GovernorService;
use crate::ask::AcquireRequest;
use crate::client::Governor;
use crate::http::routes::{self, Route};

/// Long-lived exempt streams (MCP event streams) one process serves at a time unless told otherwise.
const EXEMPT_STREAM_CAP: u32 = 1000;

type Extract = dyn Fn(&Governor, &Parts, AcquireRequest) -> AcquireRequest + Send + Sync;
type Classify = dyn Fn(&Method, &str) -> Route + Send + Sync;

/// Puts admission in front of a service. One layer, cloned, shares its counters.
#[derive(Clone)]
pub struct GovernorLayer {
    pub(super) settings: Settings,
}

/// What a service needs for each request.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) governor: Governor,
    pub(super) pool: Arc<str>,
    pub(super) extract: Arc<Extract>,
    pub(super) classify: Arc<Classify>,
    pub(super) allow_origin: Option<HeaderValue>,
    pub(super) exempt_stream_cap: u32,
    pub(super) exempt_streams: Arc<AtomicU32>,
}

impl GovernorLayer {
    /// Counted requests take a slot of `pool`; the key is what [`bearer_or_api_key`] finds; routes are classed by
    /// [`routes::classify`].
    #[must_use]
    pub fn new(governor: Governor, pool: &str) -> Self {
        Self {
            settings: Settings {
                governor,
                pool: pool.into(),
                extract: Arc::new(bearer_or_api_key),
                classify: Arc::new(routes::classify),
                allow_origin: None,
                exempt_stream_cap: EXEMPT_STREAM_CAP,
                exempt_streams: Arc::default(),
            },
        }
    }

    /// Replaces the extractor. It is given the request's head and an ask that names pool and endpoint, and returns the
    /// ask with key, label, org, candidates, sticky member or deadline filled in. Raw keys go through
    /// [`Governor::key`], and never into the label.
    #[must_use]
    pub fn extract(
        mut self,
        extract: impl Fn(&Governor, &Parts, AcquireRequest) -> AcquireRequest + Send + Sync + 'static,
    ) -> Self {
        self.settings.extract = Arc::new(extract);
        self
    }

    /// Replaces the table of routes; `routes::classify` is there to fall back on.
    #[must_use]
    pub fn routes(mut self, classify: impl Fn(&Method, &str) -> Route + Send + Sync + 'static) -> Self {
        self.settings.classify = Arc::new(classify);
        self
    }

    /// Puts `Access-Control-Allow-Origin` on refusals, for a gateway that has no CORS layer outside this one.
    #[must_use]
    pub fn allow_origin(mut self, origin: HeaderValue) -> Self {
        self.settings.allow_origin = Some(origin);
        self
    }

    /// Long-lived exempt streams served at a time (default 1000); one more is refused with 529, so that naming an
    /// exempt path is no way around every limit.
    #[must_use]
    pub fn exempt_stream_cap(mut self, cap: u32) -> Self {
        self.settings.exempt_stream_cap = cap;
        self
    }
}

impl<S> Layer<S> for GovernorLayer {
    type Service = GovernorService<S>;

    fn layer(&self, inner: S) -> GovernorService<S> {
        GovernorService::new(inner, self.settings.clone())
    }
}

impl fmt::Debug for GovernorLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GovernorLayer").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// The default extractor: the token of `Authorization: Bearer`, else `x-api-key`, as a keyed hash. A request with
/// neither has no key: it bypasses fair share and counts in the pool.
#[must_use]
pub fn bearer_or_api_key(governor: &Governor, head: &Parts, ask: AcquireRequest) -> AcquireRequest {
    let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let raw = bearer.or_else(|| head.headers.get("x-api-key").map(HeaderValue::as_bytes)).map(<[u8]>::trim_ascii);
    match raw {
        Some(raw) if !raw.is_empty() => ask.key(governor.key(raw)),
        Some(_) | None => ask,
    }
}

/// The token of a bearer credential; the scheme's name knows no case (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}
