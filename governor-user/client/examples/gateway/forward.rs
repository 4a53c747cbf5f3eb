//! Sends a request on to the provider and streams the answer back. A refusal before the first byte of the answer is
//! reported and tried once more on another account, unseen by the client. Knows which account to use, never why.

use crate::seat::{Admission, Seat, Setback};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use governor_client::LeaseHandle;
use governor_client::http::routes::{Route, classify};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request is kept in memory until its answer begins, because it may have to be sent twice.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

/// How the provider is told whose slot to use, in place of the client's key.
const ACCOUNT: HeaderName = HeaderName::from_static("x-account");

/// Meant for one connection only (RFC 9110, 7.6.1), so never forwarded.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    HeaderName::from_static("transfer-encoding"),
    HeaderName::from_static("upgrade"),
];

/// The provider, and who decides which of its accounts a request uses.
#[derive(Debug)]
pub(crate) struct Proxy {
    upstream: Authority,
    client: Client<HttpConnector, Full<Bytes>>,
    admission: Admission,
}

impl Proxy {
    /// Forwards to `upstream`.
    pub(crate) fn new(upstream: Authority, admission: Admission) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        Self { upstream, client: Client::builder(TokioExecutor::new()).build(connector), admission }
    }
}

/// One request's way through the gateway.
pub(crate) async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Some(seat) = proxy.seat(&head) else { return refusal() };
    let body = match Limited::new(body, LONGEST_REQUEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    };
    proxy.answer(&head, &body, seat).await
}

impl Proxy {
    /// What the request runs on. `None`: refused, and only without the governor, whose layer refuses before this.
    fn seat(&self, head: &Parts) -> Option<Seat> {
        match &self.admission {
            Admission::Governor(governor) => Some(match head.extensions.get::<LeaseHandle>() {
                Some(lease) => Seat::Lease(lease.clone(), governor.clone()),
                None => Seat::Exempt,
            }),
            Admission::FirstCome(pool) => match classify(&head.method, head.uri.path()) {
                Route::Counted(_) => pool.take(Instant::now()).map(Seat::Slot),
                Route::Exempt | Route::ExemptStream | Route::Unlisted => Some(Seat::Exempt),
            },
        }
    }

    /// Tries one account, and one more when the first refuses.
    async fn answer(&self, head: &Parts, body: &Bytes, mut seat: Seat) -> Response {
        let mut tried = self.attempt(head, body, &seat).await;
        if let Some(setback) = setback(tried.as_ref().ok()) {
            seat.report(setback);
            if seat.move_away().await {
                tried = self.attempt(head, body, &seat).await;
                if let Some(setback) = self::setback(tried.as_ref().ok()) {
                    seat.report(setback);
                }
            }
        }
        match tried {
            Ok(response) => pass_on(response, seat),
            Err(error) => {
                tracing::warn!(error = %error, "upstream does not answer");
                (StatusCode::BAD_GATEWAY, "upstream does not answer\n").into_response()
            }
        }
    }

    async fn attempt(
        &self,
        head: &Parts,
        body: &Bytes,
        seat: &Seat,
    ) -> Result<hyper::Response<Incoming>, hyper_util::client::legacy::Error> {
        let mut request = hyper::Request::new(Full::from(body.clone()));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = self.uri(&head.uri);
        let headers = request.headers_mut();
        *headers = end_to_end(&head.headers);
        // The client's key ends here; the account's own key takes its place at a real provider.
        for name in [AUTHORIZATION, HeaderName::from_static("x-api-key"), ACCOUNT, HOST, CONTENT_LENGTH] {
            headers.remove(name);
        }
        if let Some(member) = seat.member().and_then(|member| HeaderValue::from_str(&member).ok()) {
            headers.insert(ACCOUNT, member);
        }
        self.client.request(request).await
    }

    fn uri(&self, asked: &Uri) -> Uri {
        let mut parts = asked.clone().into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.upstream.clone());
        // `OPTIONS *` and `CONNECT host` have no path to forward.
        let path = parts.path_and_query.filter(|path| path.as_str().starts_with('/'));
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).expect("a URI with scheme, authority and path is complete")
    }
}

/// Whether the account itself refused or failed, as opposed to answering with an error about the request.
fn setback(response: Option<&hyper::Response<Incoming>>) -> Option<Setback> {
    let Some(response) = response else { return Some(Setback::Overloaded) };
    match response.status().as_u16() {
        429 => Some(Setback::RateLimited(reset(response.headers()))),
        529 => Some(Setback::Overloaded),
        _ => None,
    }
}

fn reset(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The provider's answer, byte by byte as it comes.
fn pass_on(response: hyper::Response<Incoming>, seat: Seat) -> Response {
    let (mut head, body) = response.into_parts();
    head.headers = end_to_end(&head.headers);
    // The body owns the seat: a slot is in use until the last byte is out or the client is gone.
    let body = body.map_frame(move |frame| {
        let _held = &seat;
        frame
    });
    Response::from_parts(head, Body::new(body))
}

/// What of a message's headers is meant for its final reader.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|names| names.split(',')) {
        kept.remove(name.trim());
    }
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// No slot and no governor. Without knowing whose turn it is there is nothing to say about when to come back.
fn refusal() -> Response {
    let body = json!({"error": {
        "message": "all upstream accounts are busy",
        "type": "rate_limit_error",
        "param": null,
        "code": "pool_exhausted",
    }});
    (StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_come::FirstCome;

    #[test]
    fn headers_of_one_connection_are_not_forwarded() {
        let rows = [
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("content-type", "text/plain"),
            ("x-public", "2"),
        ];
        let headers: HeaderMap = rows
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let kept = end_to_end(&headers);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "x-public"]);
    }

    #[test]
    fn path_and_query_are_kept_and_the_authority_is_the_upstreams() {
        let authority = Authority::from_static("127.0.0.1:9");
        let proxy = Proxy::new(authority, Admission::FirstCome(Arc::new(FirstCome::new(1, 1))));
        for (asked, sent) in [
            ("/v1/messages?beta=true", "http://127.0.0.1:9/v1/messages?beta=true"),
            ("http://elsewhere/x", "http://127.0.0.1:9/x"),
            ("*", "http://127.0.0.1:9/"),
            ("host:1", "http://127.0.0.1:9/"),
        ] {
            assert_eq!(proxy.uri(&asked.parse().unwrap()).to_string(), sent);
        }
    }

    #[test]
    fn a_reset_is_read_in_whole_seconds() {
        for (value, reset_seconds) in [("30", Some(30)), ("0", Some(0)), ("soon", None), ("-1", None)] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(reset(&headers), reset_seconds.map(Duration::from_secs), "{value}");
        }
    }
}
