//! What a caller asks for. The raw API key is nowhere in it: [`Governor::key`](crate::Governor::key) turns it into a
//! keyed hash first.

use crate::lease::LeaseHandle;
use governor_common::wire::KeyHash;
use governor_common::wire::request::{self, ClientSocket, Kind, Priority};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// What goes over the wire, in strings that a request shares with what it was made of.
pub(crate) type Wire = request::Acquire<Arc<str>>;

/// Asks for one slot of a pool. Built by chaining; everything but the pool is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    pub(crate) wire: Wire,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) parent: Option<Parent>,
}

/// The running work a request belongs to, by the number this process gave it: its id may change with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    Child { slot: u64 },
    Hop { slot: u64 },
}

impl Parent {
    pub(crate) fn slot(self) -> u64 {
        match self {
            Self::Child { slot } | Self::Hop { slot } => slot,
        }
    }

    pub(crate) fn wire(self, lease: u64) -> request::Parent {
        match self {
            Self::Child { .. } => request::Parent::Child { lease },
            Self::Hop { .. } => request::Parent::Hop { lease },
        }
    }
}

impl AcquireRequest {
    /// One ordinary slot of `pool`, without a key: judged under the identity that all such requests share. The line that calls this
    /// is the request's [`site`](Self::site) until another is named.
    #[must_use]
    #[track_caller]
    pub fn new(pool: impl Into<Arc<str>>) -> Self {
        Self::at(pool.into(), place(Location::caller()).into())
    }

    pub(crate) fn at(pool: Arc<str>, site: Arc<str>) -> Self {
        let wire = Wire { pool, site: Some(site), ..Wire::default() };
        Self { wire, max_wait: None, deadline: None, parent: None }
    }

    /// Another pool than it was made with.
    #[must_use]
    pub fn in_pool(mut self, pool: impl Into<Arc<str>>) -> Self {
        self.wire.pool = pool.into();
        self
    }

    /// Fairness identity, from [`Governor::key`](crate::Governor::key).
    #[must_use]
    pub fn key(mut self, key: KeyHash) -> Self {
        self.wire.key = Some(key);
        self
    }

    /// Human label of the key for the operator's screen; never the key itself.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.wire.label = Some(label.into());
        self
    }

    /// Parent level of the key, hashed like a key.
    #[must_use]
    pub fn org(mut self, org: KeyHash) -> Self {
        self.wire.org = Some(org);
        self
    }

    /// Plan of the org (of the key, where there is no org) by its name in the daemon's configuration; a name unknown
    /// there counts as none.
    #[must_use]
    pub fn class(mut self, class: impl Into<Arc<str>>) -> Self {
        self.wire.class = Some(class.into());
        self
    }

    /// What goes first under overload; normal unless said.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.wire.priority = priority;
        self
    }

    /// Kind of traffic, e.g. `media`, by its name in the pool's configuration; one unknown there counts as none.
    #[must_use]
    pub fn traffic(mut self, traffic: impl Into<Arc<str>>) -> Self {
        self.wire.traffic = Some(traffic.into());
        self
    }

    /// New upstream work that the holder of `parent` needs: granted, the reserve included, or refused at once; never
    /// parked behind its own parent. A lease that is over is no parent.
    #[must_use]
    pub fn child_of(mut self, parent: &LeaseHandle) -> Self {
        self.parent = Some(Parent::Child { slot: parent.work() });
        self
    }

    /// The same work as `lease` on its next hop: shares that lease and costs nothing. A lease that is over is none.
    #[must_use]
    pub fn hop_of(mut self, lease: &LeaseHandle) -> Self {
        self.parent = Some(Parent::Hop { slot: lease.work() });
        self
    }

    /// The client's connection as this proxy holds it. When the kernel has closed it,
    /// [`LeaseHandle::client_gone`] says so.
    #[must_use]
    pub fn client(mut self, client: ClientSocket) -> Self {
        self.wire.client = Some(client);
        self
    }

    /// No upstream call of this request outlives its client: the daemon may take the lease back some time after the
    /// client's connection is gone. Means nothing without [`Self::client`].
    #[must_use]
    pub fn ends_with_client(mut self) -> Self {
        self.wire.ends_with_client = true;
        self
    }

    /// Where in this proxy the slot is asked for, e.g. a route: leases that the daemon had to take back are counted by it.
    #[must_use]
    pub fn site(mut self, site: impl Into<Arc<str>>) -> Self {
        self.wire.site = Some(site.into());
        self
    }

    /// Endpoint class for records, e.g. `chat`.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<Arc<str>>) -> Self {
        self.wire.endpoint = Some(endpoint.into());
        self
    }

    /// Members this request may use; none named means all of the pool.
    #[must_use]
    pub fn candidates(mut self, members: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.wire.candidates = members.into_iter().map(Into::into).collect();
        self
    }

    /// Preferred member.
    #[must_use]
    pub fn sticky(mut self, member: impl Into<Arc<str>>) -> Self {
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

/// The file in its folder, and the line: what is above the folder says nothing to a reader.
pub(crate) fn place(caller: &Location<'_>) -> String {
    let file = caller.file();
    let near = file.rmatch_indices(['/', '\\']).nth(1).map_or(file, |(at, _)| &file[at + 1..]);
    format!("{near}:{}", caller.line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_the_line_that_made_it_unless_it_is_named() {
        let line = line!() + 1;
        let request = AcquireRequest::new("chat");
        assert_eq!(request.wire.site, Some(format!("lease/request.rs:{line}").into()));
        assert_eq!(request.site("POST /v1/chat").wire.site.as_deref(), Some("POST /v1/chat"));
    }
}
