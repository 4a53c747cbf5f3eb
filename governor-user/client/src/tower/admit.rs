//! Decides whether a request may go on, and with what in hand. Asks; the daemon decides.

use super::connection::Connection;
use super::custody::{Custody, Keep};
use super::hold::{ExemptStream, Hold};
use super::layer::Settings;
use crate::http::routes::Route;
use crate::lease::LeaseHandle;
use crate::lease::refused::Refused;
use crate::lease::request::AcquireRequest;
use governor_common::wire::request::ClientSocket;
use http::request::Parts;
use http::{Extensions, Method};
use tracing::warn;

/// Endpoint of POSTs that the table of routes does not list.
const UNLISTED: &str = "unlisted";

/// Characters of a client's path in a line of the log.
const LOGGED_PATH: usize = 128;

/// Put into a request's extensions by code of this process: the request is new upstream work that the holder of this
/// lease needs. It is granted, the reserve included, or refused at once, and never parked behind its own parent. No
/// header a client sends can stand for it.
#[derive(Clone, Debug)]
pub struct ChildOf(pub LeaseHandle);

/// Among a request's extensions: it is in [`Stats::unlisted_total`](crate::Stats::unlisted_total).
#[derive(Clone)]
struct CountedUnlisted;

/// Leave to go on.
pub(super) struct Admitted {
    pub(super) hold: Hold,
    /// The lease, when there is one.
    pub(super) lease: Option<LeaseHandle>,
}

impl Admitted {
    fn free() -> Self {
        Self { hold: Hold::Nothing, lease: None }
    }
}

impl Settings {
    /// Asks for what the request needs. On a grant the request's extensions have the lease's [`LeaseHandle`] and its
    /// [`Custody`].
    pub(super) async fn admit(&self, head: &mut Parts) -> Result<Admitted, Refused> {
        // A browser's preflight asks for permission and does nothing, whatever the table says.
        if head.method == Method::OPTIONS {
            return Ok(Admitted::free());
        }
        let parent = head.extensions.remove::<ChildOf>();
        // A hop of work that already holds a slot shares its lease.
        if parent.is_none() && head.extensions.get::<LeaseHandle>().is_some_and(|lease| self.is_ours(lease)) {
            return Ok(Admitted::free());
        }
        let mut route = (self.classify)(head);
        if route == Route::Unlisted && head.method == Method::POST {
            route = self.unlisted(head);
        }
        if matches!(route, Route::Counted(_) | Route::ExemptStream)
            && let Some(connection) = connection(&head.extensions)
        {
            connection.serves();
        }
        match route {
            Route::Counted(endpoint) => {
                let lease = self.governor.acquire_boxed(self.ask(head, endpoint, parent)).await?;
                let handle = lease.handle();
                let custody = Custody::of(lease);
                head.extensions.insert(handle.clone());
                head.extensions.insert(custody.clone());
                Ok(Admitted { hold: Hold::Lease(Keep::new(custody)), lease: Some(handle) })
            }
            Route::ExemptStream => {
                let stream = ExemptStream::enter(&self.exempt_streams, self.exempt_stream_cap)?;
                Ok(Admitted { hold: Hold::ExemptStream(stream), lease: None })
            }
            Route::Exempt | Route::Unlisted => Ok(Admitted::free()),
        }
    }

    /// A POST that no row of the table names: counted as endpoint `unlisted`, or let pass and shown.
    fn unlisted(&self, head: &mut Parts) -> Route {
        if self.count_unlisted {
            return Route::Counted(UNLISTED);
        }
        // A layer further out has counted it already.
        if head.extensions.insert(CountedUnlisted).is_some() {
            return Route::Unlisted;
        }
        let total = self.governor.count_unlisted();
        // At most 64 lines in a process, however many such requests come.
        if total.is_power_of_two() {
            let path: String = head.uri.path().chars().take(LOGGED_PATH).collect();
            warn!(path, total, "POST takes no slot: no route lists it; see GovernorLayer::routes and count_unlisted");
        }
        Route::Unlisted
    }

    /// What to ask for. The gateway's own authentication has the last word on who asks.
    fn ask(&self, head: &Parts, endpoint: &'static str, parent: Option<ChildOf>) -> Box<AcquireRequest> {
        let place = self.places.of(endpoint);
        let ask = AcquireRequest::at(self.pool.clone(), place.site).endpoint(place.endpoint.clone());
        let ask = (self.extract)(&self.governor, head, ask);
        let mut ask = self.trusted.fill(&self.governor, head, ask);
        if let Some(caller) = head.extensions.get::<super::Caller>() {
            ask = caller.fill(&self.governor, ask);
        }
        // An extractor that began anew knows nothing of these.
        ask.wire.endpoint.get_or_insert(place.endpoint);
        if ask.wire.client.is_none() {
            ask.wire.client = client(&head.extensions);
        }
        ask.wire.ends_with_client |= self.ends_with_client;
        if let Some(ChildOf(parent)) = parent.filter(|ChildOf(parent)| self.is_ours(parent)) {
            ask = ask.child_of(&parent);
        }
        Box::new(ask)
    }

    /// Live, and of the same session: a lease of another daemon's pool is none of this one's work.
    fn is_ours(&self, lease: &LeaseHandle) -> bool {
        self.governor.gave(lease) && !lease.is_over() && !lease.is_suspended() && lease.revoked().is_none()
    }
}

/// The connection a request came by, if the accept loop attached it.
pub(super) fn connection(extensions: &Extensions) -> Option<&Connection> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(connection)) = extensions.get::<axum::extract::ConnectInfo<Connection>>() {
        return Some(connection);
    }
    extensions.get::<Connection>()
}

fn client(extensions: &Extensions) -> Option<ClientSocket> {
    connection(extensions).map_or_else(|| extensions.get::<ClientSocket>().copied(), Connection::client)
}
