//! The layer and its settings: which pool, whose request it is, which routes count.

use super::caller::TrustedHeaders;
use super::credential::key_from_credential;
use super::places::Places;
use super::service::GovernorService;
use crate::governor::Governor;
use crate::http::routes::{self, Route};
use crate::lease::request::{AcquireRequest, place};
use http::HeaderValue;
use http::request::Parts;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tower::Layer;

/// Long-lived exempt streams (MCP event streams) one process serves at a time unless configured otherwise.
const EXEMPT_STREAM_CAP: u32 = 1000;

type Extract = dyn Fn(&Governor, &Parts, AcquireRequest) -> AcquireRequest + Send + Sync;
type Classify = dyn Fn(&Parts) -> Route + Send + Sync;

/// Puts admission in front of a service. One layer, cloned, shares its counters.
#[derive(Clone)]
pub struct GovernorLayer {
    settings: Arc<Settings>,
}

/// What a service needs for each request.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) governor: Governor,
    pub(super) pool: Arc<str>,
    pub(super) places: Arc<Places>,
    pub(super) extract: Arc<Extract>,
    pub(super) trusted: TrustedHeaders,
    pub(super) classify: Arc<Classify>,
    pub(super) count_unlisted: bool,
    pub(super) ends_with_client: bool,
    pub(super) allow_origin: Option<HeaderValue>,
    pub(super) exempt_stream_cap: u32,
    pub(super) exempt_streams: Arc<AtomicU32>,
}

impl GovernorLayer {
    /// Counted requests take a slot of `pool`; the key is what [`key_from_credential`] finds; routes are classed by
    /// [`routes::of`]. Leases are known by the line that calls this and by their endpoint, where the daemon counts
    /// those it had to take back.
    #[must_use]
    #[track_caller]
    pub fn new(governor: Governor, pool: &str) -> Self {
        Self {
            settings: Arc::new(Settings {
                governor,
                pool: pool.into(),
                places: Arc::new(Places::at(place(Location::caller()))),
                extract: Arc::new(key_from_credential),
                trusted: TrustedHeaders::none(),
                classify: Arc::new(routes::of),
                count_unlisted: false,
                ends_with_client: false,
                allow_origin: None,
                exempt_stream_cap: EXEMPT_STREAM_CAP,
                exempt_streams: Arc::default(),
            }),
        }
    }

    /// Replaces the extractor. It is given the request's head and an ask that names pool and endpoint, and returns the
    /// ask with key, label, org, candidates, sticky member or deadline filled in; the head's extensions have what the
    /// gateway's authentication put there. Raw keys go through [`Governor::key`], and never into the label. Believe no
    /// header that any client can send: [`Self::trusted_headers`] is for those that an edge sets.
    #[must_use]
    pub fn extract(
        mut self,
        extract: impl Fn(&Governor, &Parts, AcquireRequest) -> AcquireRequest + Send + Sync + 'static,
    ) -> Self {
        self.change().extract = Arc::new(extract);
        self
    }

    /// Takes the word of these headers, over the extractor's; a [`Caller`](super::Caller) among the request's
    /// extensions wins over both.
    #[must_use]
    pub fn trusted_headers(mut self, headers: TrustedHeaders) -> Self {
        self.change().trusted = headers;
        self
    }

    /// Replaces the table of routes; [`routes::of`] is there to fall back on. `OPTIONS` never counts.
    #[must_use]
    pub fn routes(mut self, classify: impl Fn(&Parts) -> Route + Send + Sync + 'static) -> Self {
        self.change().classify = Arc::new(classify);
        self
    }

    /// POSTs that the table of routes does not list take a slot like listed ones, as endpoint `unlisted`. Unless this
    /// is set they pass without a slot, counted in [`Stats::unlisted_total`](crate::Stats::unlisted_total) and logged.
    #[must_use]
    pub fn count_unlisted(mut self) -> Self {
        self.change().count_unlisted = true;
        self
    }

    /// No upstream call outlives its client. When the kernel reports that the client's connection is gone before the
    /// handler has answered, the handler is dropped, and with it its upstream call; and the daemon may take a lease
    /// back some time after its client is gone. Needs to know the client's connection, see
    /// [`Connection`](super::Connection).
    #[must_use]
    pub fn ends_with_client(mut self) -> Self {
        self.change().ends_with_client = true;
        self
    }

    /// Puts `Access-Control-Allow-Origin` on refusals, for a gateway that has no CORS layer outside this one.
    #[must_use]
    pub fn allow_origin(mut self, origin: HeaderValue) -> Self {
        self.change().allow_origin = Some(origin);
        self
    }

    /// Long-lived exempt streams served at a time (default 1000); one more is refused with 529, so that naming an
    /// exempt path is no way around every limit.
    #[must_use]
    pub fn exempt_stream_cap(mut self, cap: u32) -> Self {
        self.change().exempt_stream_cap = cap;
        self
    }

    /// Long-lived exempt streams served now, for the proxy's own metrics.
    #[must_use]
    pub fn exempt_streams(&self) -> u32 {
        self.settings.exempt_streams.load(Ordering::Relaxed)
    }

    fn change(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
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
