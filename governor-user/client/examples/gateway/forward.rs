//! Sends a request on to the provider and streams the answer back. A refusal before the first byte of the answer is
//! reported and tried once more on another account, unseen by the client. Knows which account to use, never why.

pub(crate) mod headers;

use crate::answer::problem;
use crate::drain::Drain;
use crate::seat::{Admission, Seat, Setback};
use crate::upgrade;
use crate::upstream::{Failure, Upstream};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use governor_client::LeaseHandle;
use governor_client::http::reset::reset_after;
use governor_client::http::routes::{Route, of};
use headers::end_to_end;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A request is kept in memory until its answer begins, because it may have to be sent twice.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

/// The providers, and who decides which of their accounts a request uses.
#[derive(Debug)]
pub(crate) struct Proxy {
    upstream: Upstream,
    admission: Admission,
    drain: Drain,
}

impl Proxy {
    /// Forwards to `upstream`; what `admission` lets through.
    pub(crate) fn new(upstream: Upstream, admission: Admission, drain: Drain) -> Self {
        Self { upstream, admission, drain }
    }
}

/// One request's way through the gateway.
pub(crate) async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let Some(mut seat) = proxy.seat(&head) else {
        return problem(&head, StatusCode::TOO_MANY_REQUESTS, "all upstream accounts are busy");
    };
    let upgrade = upgrade::take(&mut head);
    // What a client sends after it asked for an upgrade is not part of the request any more.
    let body = if upgrade.is_some() { Body::empty() } else { body };
    let body = match read(body).await {
        Ok(body) => body,
        Err(status) => return problem(&head, status, "the request's body cannot be read"),
    };
    match proxy.answer(&head, &body, &mut seat).await {
        Ok(response) => match upgrade {
            Some(client) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                upgrade::join(client, response, seat, proxy.drain.stay())
            }
            Some(_) | None => pass_on(response, seat),
        },
        Err(failure) => {
            tracing::warn!(%failure, path = head.uri.path(), "no answer");
            let status = match failure {
                Failure::NoAddress | Failure::Broken(_) => StatusCode::BAD_GATEWAY,
                Failure::Silent => StatusCode::GATEWAY_TIMEOUT,
            };
            problem(&head, status, "the upstream did not answer")
        }
    }
}

/// A request's body in one piece.
pub(crate) async fn read(body: Body) -> Result<Bytes, StatusCode> {
    match Limited::new(body, LONGEST_REQUEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

impl Proxy {
    /// What the request runs on. `None`: refused, and only without the governor, whose layer refuses before this.
    fn seat(&self, head: &Parts) -> Option<Seat> {
        match &self.admission {
            Admission::Governor(governor) => Some(match head.extensions.get::<LeaseHandle>() {
                Some(lease) => Seat::leased(lease.clone(), head.extensions.get().cloned(), governor.clone()),
                None => Seat::Exempt,
            }),
            Admission::FirstCome(pool) => match of(head) {
                Route::Counted(_) => pool.take(Instant::now()).map(Seat::Slot),
                Route::Exempt | Route::ExemptStream | Route::Unlisted => Some(Seat::Exempt),
            },
        }
    }

    /// Tries one account, and one more when the first refuses.
    async fn answer(&self, head: &Parts, body: &Bytes, seat: &mut Seat) -> Result<Response<Incoming>, Failure> {
        let tried = self.attempt(head, body, seat).await;
        // Who was silent may still be at work on it: asking another would double that work.
        let silent = matches!(tried, Err(Failure::Silent));
        if setback(&tried).is_none_or(|setback| !seat.report(setback)) || silent || !seat.move_away().await {
            return tried;
        }
        let again = self.attempt(head, body, seat).await;
        if let Some(setback) = setback(&again) {
            seat.report(setback);
        }
        again
    }

    async fn attempt(&self, head: &Parts, body: &Bytes, seat: &Seat) -> Result<Response<Incoming>, Failure> {
        self.upstream.ask(head, body, seat.pool(), seat.member().as_deref()).await
    }
}

/// Whether the account itself refused or failed, as opposed to answering with an error about the request.
fn setback(tried: &Result<Response<Incoming>, Failure>) -> Option<Setback> {
    match tried {
        Ok(response) => refusal(response.status(), response.headers()),
        Err(Failure::Broken(_) | Failure::Silent) => Some(Setback::Overloaded),
        Err(Failure::NoAddress) => None,
    }
}

/// 429 is about the account; 529, and OpenAI's 503, are about the provider.
fn refusal(status: StatusCode, headers: &HeaderMap) -> Option<Setback> {
    match status.as_u16() {
        429 => Some(Setback::RateLimited(reset_after(headers, SystemTime::now()))),
        503 | 529 => Some(Setback::Overloaded),
        _ => None,
    }
}

/// The provider's answer, byte by byte as it comes.
fn pass_on(response: Response<Incoming>, seat: Seat) -> Response {
    let (mut head, body) = response.into_parts();
    head.headers = end_to_end(&head.headers);
    // The body owns the seat: a slot is in use until the last byte is out or the client is gone.
    let body = body.map_frame(move |frame| {
        let _held = &seat;
        frame
    });
    Response::from_parts(head, Body::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use std::time::Duration;

    #[test]
    fn only_what_is_about_the_account_or_its_provider_is_a_setback() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", HeaderValue::from_static("30"));
        for (status, expected) in [
            (200, None),
            (400, None),
            (401, None),
            (404, None),
            (500, None),
            (429, Some(Setback::RateLimited(Some(Duration::from_secs(30))))),
            (503, Some(Setback::Overloaded)),
            (529, Some(Setback::Overloaded)),
        ] {
            assert_eq!(refusal(StatusCode::from_u16(status).unwrap(), &headers), expected, "{status}");
        }
        assert_eq!(refusal(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()), Some(Setback::RateLimited(None)));
    }
}
