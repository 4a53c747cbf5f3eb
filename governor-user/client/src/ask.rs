//! What a caller asks for. The raw API key is nowhere in it: [`Governor::key`](crate::Governor::key) turns it into a
//! keyed hash first.

use std::time::Duration;

use governor_common::wire::KeyHash;
use governor_common::wire::request::{Acquire, Kind};

/// Asks for one slot of a pool. Built by chaining; everything but the pool is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    pub(crate) wire: Acquire,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
}

impl AcquireRequest {
    /// One ordinary slot of `pool`, without a key: it bypasses fair share and counts in the pool.
    #[must_use]
    pub fn new(pool: impl Into<String>) -> Self {
        Self { wire: Acquire { pool: pool.into(), ..Acquire::default() }, max_wait: None, deadline: None }
    }

    /// Fairness identity, from [`Governor::key`](crate::Governor::key).
    #[must_use]
    pub fn key(mut self, key: KeyHash) -> Self {
        self.wire.key = Some(key);
        self
    }

    /// Human label of the key for the operator's screen; never the key itself.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.wire.label = Some(label.into());
        self
    }

    /// Parent level of the key, hashed like a key.
    #[must_use]
    pub fn org(mut self, org: KeyHash) -> Self {
        self.wire.org = Some(org);
        self
    }

    /// Endpoint class for records, e.g. `chat`.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.wire.endpoint = Some(endpoint.into());
        self
    }

    /// Members this request may use; none named means all of the pool.
    #[must_use]
    pub fn candidates(mut self, members: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.wire.candidates = members.into_iter().map(Into::into).collect();
        self
    }

    /// Preferred member.
    #[must_use]
    pub fn sticky(mut self, member: impl Into<String>) -> Self {
        self.wire.sticky = Some(member.into());
        self
    }

    /// Longest park; unset means the pool's own.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// The client's own deadline, from now.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What kind of work this is; ordinary unless said.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.wire.kind = kind;
        self
    }

    /// The pool asked for.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.wire.pool
    }
}
