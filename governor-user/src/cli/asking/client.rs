//! The smallest HTTP client that can talk to the control socket: one connection a request, bounded in time and size.

use crate::cli::answer::Error;
use crate::cli::text::render::printable;
use governor_api::Failure;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// A whole request takes at most this long. The daemon answers from memory; ten seconds mean it is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer in bytes: a million leases fit, a runaway peer does not fill the memory.
const LONGEST: usize = 512 << 20;

/// Talks to one control socket.
#[derive(Debug)]
pub(in crate::cli) struct Client {
    socket: PathBuf,
    runtime: Runtime,
    patience: Duration,
}

impl Client {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When the process cannot get an event queue.
    pub(in crate::cli) fn new(socket: PathBuf) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::Local { doing: "start", source })?;
        Ok(Self { socket, runtime, patience: PATIENCE })
    }

    /// Waits at most this long for an answer.
    pub(in crate::cli) fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Reads `path`, which starts with `/v1/` and may carry a query.
    ///
    /// # Errors
    /// No daemon, or it says no.
    pub(in crate::cli) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.exchange(Method::GET, path, Bytes::new())
    }

    /// Writes `body` to `path`.
    ///
    /// # Errors
    /// No daemon, or it says no.
    pub(in crate::cli) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body).expect("API types have string keys and serialize");
        self.exchange(method, path, body.into())
    }

    /// Deletes `path`.
    ///
    /// # Errors
    /// No daemon, or it says no.
    pub(in crate::cli) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.exchange(Method::DELETE, path, Bytes::new())
    }

    fn exchange<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Error> {
        let whole = async {
            tokio::time::timeout(self.patience, self.request(method, path, body)).await.unwrap_or_else(|_| {
                Err(Error::Silent { socket: self.socket.clone(), seconds: self.patience.as_secs() })
            })
        };
        let (status, body) = self.runtime.block_on(whole)?;
        if status.is_success() {
            warn(&body);
            return serde_json::from_slice(&body).map_err(|error| self.foreign(error));
        }
        match serde_json::from_slice::<Failure>(&body) {
            Ok(failure) => Err(Error::Refused { status, failure }),
            Err(_) => Err(self.foreign(format_args!("status {status} without a reason"))),
        }
    }

    async fn request(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), Error> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|cause| Error::Unreachable { socket: self.socket.clone(), cause })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.foreign(error))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "governor")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| self.foreign(error))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| self.foreign(error))?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| self.foreign(error))?;
            Ok((status, body.to_bytes()))
        };
        // The connection only has to be driven while the exchange needs it; its own end is no news.
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            _ = &mut connection => exchange.await,
        }
    }

    fn foreign(&self, what: impl std::fmt::Display) -> Error {
        Error::Foreign { socket: self.socket.clone(), what: what.to_string() }
    }
}

/// Writes the warning of an answer to standard error, where the answer has one.
fn warn(body: &[u8]) {
    #[derive(serde::Deserialize)]
    struct Warned {
        warning: Option<String>,
    }
    if let Ok(Warned { warning: Some(warning) }) = serde_json::from_slice(body) {
        // A reader that has gone is no error.
        drop(writeln!(std::io::stderr(), "warning: {}", printable(&warning)));
    }
}

/// `text` as one segment of a path or one value of a query.
pub(in crate::cli) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `path`, then the parameters that have a value.
pub(in crate::cli) fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut out = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            out.push(if out.contains('?') { '&' } else { '?' });
            out.push_str(&format!("{name}={}", escaped(value)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(escaped("pools.chat.fair_share"), "pools.chat.fair_share");
        assert_eq!(escaped("../a b?c=d&é"), "..%2Fa%20b%3Fc%3Dd%26%C3%A9");
    }

    #[test]
    fn only_parameters_with_a_value_are_sent() {
        assert_eq!(with_query("/v1/keys", &[("pool", None)]), "/v1/keys");
        assert_eq!(
            with_query("/v1/leases", &[("pool", Some("a&b".into())), ("idle_seconds", Some("60".into()))]),
            "/v1/leases?pool=a%26b&idle_seconds=60"
        );
    }
}
