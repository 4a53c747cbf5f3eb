//! The one answer a caller gets instead of a lease. Opaque, with accessors: what it says is stable, how it is kept is
//! not. Knows nothing of HTTP rendering; `http` does that.

use governor_common::wire::reply::{Origin, Shed};
use std::fmt;
use std::time::Duration;

/// A request that gets no slot. Carries what an API client may see and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    cause: Cause,
    status: u16,
    origin: Option<Origin>,
    reason: String,
    retry_after: Option<Duration>,
    decision: Option<u64>,
    detail: String,
    quota: Option<u32>,
}

/// Who said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The daemon, by a limit.
    Shed,
    /// The daemon: the request can never be valid.
    Rejected,
    /// This library, without the daemon: the fallback, or a cap of its own.
    Local,
    /// This library: the lease to act on is over.
    Over,
}

impl Refused {
    /// HTTP status for the API client: 429 (the caller's own limit, or the pool is full), 529 (the node is overloaded
    /// or the governor is away), 403 (an operator suspended the key: waiting does not help), or 400 for a request that
    /// can never be valid.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Which level refused; `None` for a request that can never be valid.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Machine-readable reason, e.g. `fair_share`, `pool_exhausted`, `node_cap`, `governor_away`.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// When to try again; `None` when trying again cannot help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Id that `governorctl explain` answers; `None` when the daemon did not decide.
    #[must_use]
    pub fn decision(&self) -> Option<u64> {
        self.decision
    }

    /// Concurrent requests that the limit which refused allows, e.g. the key's share; `None` where no such number
    /// refused.
    #[must_use]
    pub fn quota(&self) -> Option<u32> {
        self.quota
    }

    /// One sentence, safe to show to the API client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The request can never be valid, e.g. its pool does not exist.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.cause == Cause::Rejected
    }

    /// This library decided without the daemon: by the fallback, or by a cap of its own.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.cause == Cause::Local
    }

    /// The lease to move was already over or revoked.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cause == Cause::Over
    }

    pub(crate) fn shed(shed: Shed) -> Self {
        // Any other status is a daemon's fault; the client must not see it as a success or a redirect.
        let status = if matches!(shed.status, 403 | 529) { shed.status } else { 429 };
        let retry_after = (status != 403).then(|| Duration::from_millis(shed.retry_after_ms.into()));
        Self {
            cause: Cause::Shed,
            status,
            origin: Some(shed.origin),
            reason: shed.reason,
            retry_after,
            decision: Some(shed.decision),
            detail: shed.detail,
            quota: shed.quota,
        }
    }

    pub(crate) fn rejected(detail: String) -> Self {
        Self {
            cause: Cause::Rejected,
            status: 400,
            origin: None,
            reason: "rejected".to_owned(),
            retry_after: None,
            decision: None,
            detail,
            quota: None,
        }
    }

    pub(crate) fn local(status: u16, origin: Origin, reason: &str, retry_after: Duration, detail: String) -> Self {
        Self {
            cause: Cause::Local,
            status,
            origin: Some(origin),
            reason: reason.to_owned(),
            retry_after: Some(retry_after),
            decision: None,
            detail,
            quota: None,
        }
    }

    /// Names the number that refused.
    pub(crate) fn with_quota(self, quota: u32) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// Spreads a crowd that is refused in one instant over a second: the `nth` of them waits for up to 990 ms more.
    pub(crate) fn spread(self, nth: u64) -> Self {
        let more = Duration::from_millis(10 * (nth % 100));
        Self { retry_after: self.retry_after.map(|after| after + more), ..self }
    }

    pub(crate) fn over() -> Self {
        Self {
            cause: Cause::Over,
            status: 529,
            origin: Some(Origin::Node),
            reason: "lease_over".to_owned(),
            retry_after: Some(Duration::from_secs(1)),
            decision: None,
            detail: "the lease is over and cannot be moved".to_owned(),
            quota: None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused with {} ({}): {}", self.status, self.reason, self.detail)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_the_fallback_refuses_is_spread() {
        let refused = || Refused::local(429, Origin::Pool, "fallback_share", Duration::from_secs(1), String::new());
        let crowd = (0..300).filter_map(|nth| refused().spread(nth).retry_after());
        let values: std::collections::BTreeSet<_> = crowd.collect();
        assert_eq!((values.len(), values.first()), (100, Some(&Duration::from_secs(1))));
        assert!(Refused::rejected(String::new()).spread(7).retry_after().is_none(), "waiting does not help");
    }
}
