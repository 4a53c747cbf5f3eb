//! What the governor has to do with each step of a request. A slot is asked for before the request's body is read, held in
//! the request's context, and given back when Pingora drops that: after the last byte, or when either side is gone. An
//! account that refuses before the first byte of its answer is reported, and the request moves to another one once.

use async_trait::async_trait;
use bytes::Bytes;
use governor_client::http::reset::reset_after;
use governor_client::http::routes::{self, Route};
use governor_client::http::{Dialect, ORIGIN, refusal};
use governor_client::tower::{CREDENTIAL_HEADERS, key_from_credential};
use governor_client::{AcquireRequest, ClientSocket, Governor, Lease, MemberNews};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{ProxyHttp, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

/// The gateway: one provider, whose accounts are the members of one pool.
pub struct Gateway {
    governor: Governor,
    pool: Arc<str>,
    upstream: SocketAddr,
}

/// What one request holds.
#[derive(Default)]
pub struct Context {
    lease: Option<Lease>,
    moved: bool,
}

impl Gateway {
    /// Forwards to `upstream` what gets a slot of `pool`.
    pub fn new(governor: Governor, pool: &str, upstream: SocketAddr) -> Self {
        Self { governor, pool: pool.into(), upstream }
    }

    /// A slot for what counts; `Ok(None)`: it needs none.
    async fn admit(&self, session: &Session) -> std::result::Result<Option<Lease>, http::Response<Bytes>> {
        let head: &RequestHeader = session.req_header();
        let Route::Counted(endpoint) = routes::of(head) else { return Ok(None) };
        let ask = AcquireRequest::new(self.pool.clone()).endpoint(endpoint);
        let mut ask = key_from_credential(&self.governor, head, ask);
        if let Some(client) = client(session) {
            ask = ask.client(client);
        }
        let dialect = Dialect::of(head);
        self.governor.acquire(ask).await.map(Some).map_err(|refused| refusal(&refused, dialect, None))
    }

    /// Tells what the account answered, if it refused.
    fn report(&self, lease: &Lease, answer: &ResponseHeader) -> bool {
        let reset = || u32::try_from(reset_after(&answer.headers, SystemTime::now())?.as_millis()).ok();
        let news = match answer.status.as_u16() {
            429 => MemberNews::RateLimited { reset_ms: reset() },
            503 | 529 => MemberNews::Overloaded,
            _ => return false,
        };
        let Some(member) = lease.member() else { return false };
        self.governor.member_report(lease.pool(), &member, news);
        true
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::default()
    }

    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        match self.admit(session).await {
            Ok(lease) => {
                context.lease = lease;
                Ok(false)
            }
            Err(refusal) => {
                let (head, body) = refusal.into_parts();
                let mut header = ResponseHeader::build(head.status, Some(head.headers.len() + 1))?;
                for (name, value) in &head.headers {
                    header.append_header(name, value)?;
                }
                header.set_content_length(body.len())?;
                session.write_response_header(Box::new(header), false).await?;
                session.write_response_body(Some(body), true).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Context) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        context: &mut Context,
    ) -> Result<()> {
        // The client's key ends here; the account's own key takes its place at a real provider.
        for name in &CREDENTIAL_HEADERS {
            request.remove_header(name);
        }
        request.remove_header("x-account");
        if let Some(member) = context.lease.as_ref().and_then(|lease| lease.member()) {
            request.insert_header("x-account", &*member)?;
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        let Some(lease) = &context.lease else { return Ok(()) };
        if !self.report(lease, answer) {
            return Ok(());
        }
        if !context.moved && !session.as_ref().retry_buffer_truncated() && lease.move_away().await.is_ok() {
            context.moved = true;
            let mut error = Error::explain(ErrorType::HTTPStatus(502), "the account refused: on to another one");
            error.set_retry(true);
            return Err(error);
        }
        answer.insert_header(ORIGIN, "upstream")
    }

    /// Pingora's own rule never sends a POST twice. This one was refused and has done nothing: it may go again.
    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        _: &mut Session,
        error: Box<Error>,
        _: &mut Context,
        _: bool,
    ) -> Box<Error> {
        let again = error.retry() && matches!(error.etype(), ErrorType::HTTPStatus(502));
        let mut error = error.more_context(format!("Peer: {peer}"));
        error.set_retry(again);
        error
    }

    async fn logging(&self, _: &mut Session, _: Option<&Error>, context: &mut Context) {
        context.lease = None;
    }
}

/// The client's connection as the kernel knows it, so that the governor hears from the kernel when it is gone.
fn client(session: &Session) -> Option<ClientSocket> {
    let socket = session.digest()?.socket_digest.as_ref()?;
    Some(ClientSocket {
        local: *socket.local_addr()?.as_inet()?,
        peer: *socket.peer_addr()?.as_inet()?,
        cookie: socket.socket_cookie().ok(),
    })
}
