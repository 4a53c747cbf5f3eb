//! One API client: sends a request, retries by its rules, reads the stream to its end. It keeps one connection for the
//! tries of one logical request and shares it with nobody, as separate processes would.

use crate::retry::RetryPolicy;
use crate::tally::{Outcome, Pending};
use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How a client names itself to the gateway's operator; the key itself is a secret.
const CLIENT_NAME: HeaderName = HeaderName::from_static("x-client-name");

/// What all clients of a run have in common.
#[derive(Debug)]
pub(crate) struct Target {
    /// The gateway.
    pub(crate) address: SocketAddr,
    /// The path to post to.
    pub(crate) path: String,
    /// How a refused client tries again.
    pub(crate) policy: RetryPolicy,
    /// A try without an answer after this long failed.
    pub(crate) patience: Duration,
}

/// A client with its own key and its own randomness.
#[derive(Debug)]
pub(crate) struct Client {
    target: Arc<Target>,
    key: String,
    rng: StdRng,
}

/// One try's answer.
enum Answer {
    /// A success whose body is the stream.
    Stream(Response<Incoming>),
    /// Read to its end.
    Refusal(StatusCode, HeaderMap),
}

impl Client {
    /// A client with an API key made from the name `key`. The same seed gives the same jitter.
    pub(crate) fn new(target: Arc<Target>, key: &str, seed: u64) -> Self {
        Self { target, key: key.to_owned(), rng: StdRng::seed_from_u64(seed) }
    }

    /// The client's randomness, for what its user does between two requests.
    pub(crate) fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// Carries one logical request to its end.
    pub(crate) async fn ask(&mut self, mut pending: Pending) {
        let began = Instant::now();
        let mut connection = None;
        for retry in 0.. {
            pending.attempt();
            let tried = timeout(self.target.patience, self.attempt(&mut connection)).await;
            let answer = tried.context("no answer").and_then(|tried| tried);
            let (outcome, headers, again) = match answer {
                Ok(Answer::Stream(response)) => {
                    pending.answered(began.elapsed());
                    let outcome = if read_through(response).await.is_ok() { Outcome::Ok } else { Outcome::Error };
                    return pending.end(outcome);
                }
                Ok(Answer::Refusal(status, headers)) => {
                    (outcome_of(status), Some(headers), RetryPolicy::retries_status(status))
                }
                Err(_) => {
                    // Whatever state the connection is in, the next try must not meet it.
                    connection = None;
                    (Outcome::Error, None, true)
                }
            };
            pending.failed(outcome);
            if !again || retry >= self.target.policy.retries {
                return;
            }
            sleep(self.target.policy.delay(retry, headers.as_ref(), self.rng.random())).await;
        }
    }

    /// One try on the connection at hand, or on a new one.
    async fn attempt(&self, connection: &mut Option<SendRequest<Full<Bytes>>>) -> Result<Answer> {
        let kept = match connection.take() {
            Some(mut sender) => sender.ready().await.ok().map(|()| sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => connect(self.target.address).await?,
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.target.path.as_str())
            .header(HOST, self.target.address.to_string())
            .header(AUTHORIZATION, format!("Bearer sk-demo-{}", self.key))
            .header(CLIENT_NAME, self.key.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(Bytes::from_static(
                br#"{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}]}"#,
            )))?;
        let response = sender.send_request(request).await?;
        *connection = Some(sender);
        if response.status().is_success() {
            return Ok(Answer::Stream(response));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        read_through(response).await?;
        Ok(Answer::Refusal(status, headers))
    }
}

fn outcome_of(refusal: StatusCode) -> Outcome {
    match refusal.as_u16() {
        429 => Outcome::Refused429,
        529 => Outcome::Refused529,
        _ => Outcome::Error,
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends when the sender is dropped; its error reaches the sender too.
    tokio::spawn(connection);
    Ok(sender)
}

/// Reads a body to its end without keeping it.
async fn read_through(response: Response<Incoming>) -> hyper::Result<()> {
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
