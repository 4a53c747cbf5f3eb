//! The simulated provider's admin endpoints, over the smallest HTTP there is. Its counts are the provider's own and owe
//! nothing to the gateway or the governor.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The provider at an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Provider(pub(super) SocketAddr);

/// What the demo reads of the provider's statistics; times are in seconds since the last reset.
#[derive(Debug, Deserialize)]
pub(super) struct Stats {
    serving_used_slot_seconds: f64,
    serving_account_seconds: f64,
    accounts: Vec<Account>,
}

#[derive(Debug, Deserialize)]
struct Account {
    in_flight: u64,
    cooling_seconds_left: Option<f64>,
}

impl Provider {
    /// Its statistics now.
    pub(super) fn stats(&self) -> Result<Stats> {
        Ok(serde_json::from_slice(&self.call("GET /admin/stats")?)?)
    }

    /// Starts its counts anew.
    pub(super) fn reset(&self) -> Result<()> {
        self.call("POST /admin/reset").map(drop)
    }

    /// From now on an account answers 429 to new requests, for so many seconds.
    pub(super) fn cool(&self, account: &str, seconds: u64) -> Result<()> {
        self.call(&format!("POST /admin/cool?account={account}&seconds={seconds}")).map(drop)
    }

    /// One request; the body of its answer. HTTP/1.0, so that the answer ends with the connection.
    fn call(&self, request: &str) -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.0, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{request} HTTP/1.0\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", self.0)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).with_context(|| format!("the provider does not answer {request}"))?;
        body(&answer).map(<[u8]>::to_vec).with_context(|| format!("the provider refused {request}"))
    }
}

impl Stats {
    /// Slots in use now and ordinary slots there are now, of accounts that serve.
    pub(super) fn slots(&self, ordinary: u64) -> (u64, u64) {
        let serving = self.accounts.iter().filter(|account| account.cooling_seconds_left.is_none());
        serving.fold((0, 0), |(used, slots), account| (used + account.in_flight, slots + ordinary))
    }

    /// Average use of the ordinary slots since the reset, 0–1; an account counts only while it served.
    pub(super) fn utilisation(&self, ordinary: u32) -> Option<f64> {
        let slot_seconds = self.serving_account_seconds * f64::from(ordinary);
        (slot_seconds > 0.0).then(|| (self.serving_used_slot_seconds / slot_seconds).clamp(0.0, 1.0))
    }
}

/// The body of a successful answer.
fn body(answer: &[u8]) -> Result<&[u8]> {
    let split = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("the answer has no end of headers")?;
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if !status.starts_with(b"2") {
        bail!("the answer has status {}", String::from_utf8_lossy(status));
    }
    Ok(&answer[split + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_body_of_a_success_is_returned() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\na: b\r\n\r\n{}").unwrap(), b"{}");
        assert_eq!(body(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), b"");
        for wrong in [&b"HTTP/1.0 404 Not Found\r\n\r\nno"[..], b"HTTP/1.0 200 OK\r\n", b""] {
            assert!(body(wrong).is_err());
        }
    }

    #[test]
    fn utilisation_counts_an_account_only_while_it_serves() {
        let account = |in_flight, cooling_seconds_left| Account { in_flight, cooling_seconds_left };
        let stats = Stats {
            serving_used_slot_seconds: 700.0,
            serving_account_seconds: 200.0,
            accounts: vec![account(7, None), account(5, None), account(3, Some(12.5))],
        };
        assert_eq!(stats.utilisation(7), Some(0.5));
        assert_eq!(stats.slots(7), (12, 14));
        assert_eq!(Stats { serving_account_seconds: 0.0, ..stats }.utilisation(7), None);
    }
}
