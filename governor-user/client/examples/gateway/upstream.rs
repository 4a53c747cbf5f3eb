//! The way to the providers: one HTTP client, an address for each pool, and a bound on how long a provider may be silent
//! before its answer begins. Knows nothing of slots.

use crate::forward::headers::for_provider;
use crate::pools::PoolUpstream;
use crate::upgrade;
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use std::fmt;
use std::time::Duration;

/// The providers.
#[derive(Debug)]
pub(crate) struct Upstream {
    addresses: Vec<PoolUpstream>,
    patience: Duration,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A provider that did not answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No address is given for the request's pool.
    NoAddress,
    /// It could not be reached, or broke the connection before its answer.
    Broken(Error),
    /// It was silent for too long. What it was asked to do may still be going on.
    Silent,
}

impl Upstream {
    /// Providers that may be silent for `patience` before the first byte of an answer.
    pub(crate) fn new(addresses: &[PoolUpstream], patience: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        Self { addresses: addresses.to_vec(), patience, client: Client::builder(TokioExecutor::new()).build(connector) }
    }

    /// Asks the provider of a pool on one of its accounts, up to the head of its answer.
    pub(crate) async fn ask(
        &self,
        head: &Parts,
        body: &Bytes,
        pool: Option<&str>,
        account: Option<&str>,
    ) -> Result<Response<Incoming>, Failure> {
        let authority = self.address(pool).ok_or(Failure::NoAddress)?;
        let mut request = hyper::Request::new(Full::from(body.clone()));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri(authority, &head.uri);
        *request.headers_mut() = for_provider(&head.headers, account);
        if upgrade::is_asked(head) {
            upgrade::ask(request.headers_mut());
        }
        match tokio::time::timeout(self.patience, self.client.request(request)).await {
            Ok(answered) => answered.map_err(Failure::Broken),
            Err(_) => Err(Failure::Silent),
        }
    }

    fn address(&self, pool: Option<&str>) -> Option<&Authority> {
        let own = self.addresses.iter().find(|address| address.pool.is_some() && address.pool.as_deref() == pool);
        own.or_else(|| self.addresses.iter().find(|address| address.pool.is_none())).map(|found| &found.authority)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no upstream is configured for this pool"),
            Self::Broken(error) => write!(f, "upstream does not answer: {error}"),
            Self::Silent => f.write_str("upstream was silent for too long"),
        }
    }
}

fn uri(authority: &Authority, asked: &Uri) -> Uri {
    let mut parts = asked.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority.clone());
    // `OPTIONS *` and `CONNECT host` have no path to forward.
    let path = parts.path_and_query.filter(|path| path.as_str().starts_with('/')).map(without_key);
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).expect("a URI with scheme, authority and path is complete")
}

/// The client's key ends here, also where Google's clients put it: into the query.
fn without_key(asked: PathAndQuery) -> PathAndQuery {
    let Some(query) = asked.query().filter(|query| query.split('&').any(|pair| pair.starts_with("key="))) else {
        return asked;
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    let path = format!("{}{mark}{}", asked.path(), kept.join("&"));
    path.parse().expect("a part of a valid query is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_query_are_kept_and_the_authority_is_the_upstreams() {
        for (asked, sent) in [
            ("/v1/messages?beta=true", "http://127.0.0.1:9/v1/messages?beta=true"),
            ("http://elsewhere/v1/models", "http://127.0.0.1:9/v1/models"),
            (
                "/v1beta/models/m:generateContent?alt=sse&key=sk-1",
                "http://127.0.0.1:9/v1beta/models/m:generateContent?alt=sse",
            ),
            ("/v1beta/models?key=sk-1", "http://127.0.0.1:9/v1beta/models"),
            ("*", "http://127.0.0.1:9/"),
            ("elsewhere:443", "http://127.0.0.1:9/"),
        ] {
            assert_eq!(uri(&Authority::from_static("127.0.0.1:9"), &asked.parse().unwrap()).to_string(), sent);
        }
    }

    #[test]
    fn a_pool_with_an_upstream_of_its_own_uses_that_and_the_others_the_common_one() {
        let addresses: Vec<PoolUpstream> = ["a:1", "embed=b:2"].iter().map(|text| text.parse().unwrap()).collect();
        let upstream = Upstream::new(&addresses, Duration::from_secs(1));
        for (pool, address) in [(None, "a:1"), (Some("chat"), "a:1"), (Some("embed"), "b:2")] {
            assert_eq!(upstream.address(pool).map(Authority::as_str), Some(address));
        }
        let one = Upstream::new(&addresses[1..], Duration::from_secs(1));
        assert!(one.address(Some("chat")).is_none());
    }
}
