//! Whose request it is. What a client says of itself is not believed, except for its credential: the rest comes from
//! the gateway's own code, or from headers that the gateway is configured to trust.

use crate::governor::Governor;
use crate::lease::request::AcquireRequest;
use governor_common::wire::MAX_NAME;
use governor_common::wire::request::{Kind, Priority};
use http::HeaderName;
use http::request::Parts;
use std::fmt;
use std::sync::Arc;

/// What the gateway's own authentication knows of a caller. Put it into the request's extensions before the layer: what
/// is set here wins over credentials and trusted headers. Raw identities are hashed before they leave the process, and
/// `Debug` does not show them.
#[derive(Clone, Default)]
pub struct Caller {
    key: Option<Arc<[u8]>>,
    org: Option<Arc<[u8]>>,
    label: Option<Arc<str>>,
    class: Option<Arc<str>>,
    priority: Option<Priority>,
    traffic: Option<Arc<str>>,
    pool: Option<Arc<str>>,
    candidates: Vec<Arc<str>>,
    sticky: Option<Arc<str>>,
    reattach: Option<Arc<str>>,
}

impl Caller {
    /// A caller of whom nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fairness identity: an API key, a user, a team; raw.
    #[must_use]
    pub fn key(mut self, raw: impl AsRef<[u8]>) -> Self {
        self.key = Some(raw.as_ref().into());
        self
    }

    /// Its organisation, raw.
    #[must_use]
    pub fn org(mut self, raw: impl AsRef<[u8]>) -> Self {
        self.org = Some(raw.as_ref().into());
        self
    }

    /// As in [`AcquireRequest::label`].
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// As in [`AcquireRequest::class`].
    #[must_use]
    pub fn class(mut self, class: impl Into<Arc<str>>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// As in [`AcquireRequest::priority`].
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// As in [`AcquireRequest::traffic`].
    #[must_use]
    pub fn traffic(mut self, traffic: impl Into<Arc<str>>) -> Self {
        self.traffic = Some(traffic.into());
        self
    }

    /// Another pool than the layer's.
    #[must_use]
    pub fn pool(mut self, pool: impl Into<Arc<str>>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// Members this caller may use, for a key that is scoped to some.
    #[must_use]
    pub fn candidates(mut self, members: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.candidates = members.into_iter().map(Into::into).collect();
        self
    }

    /// Preferred member.
    #[must_use]
    pub fn sticky(mut self, member: impl Into<Arc<str>>) -> Self {
        self.sticky = Some(member.into());
        self
    }

    /// The request re-attaches to an upstream session that runs on `member`: it bypasses fair share, may use that
    /// member's reserve, and uses no other.
    #[must_use]
    pub fn reattach(mut self, member: impl Into<Arc<str>>) -> Self {
        self.reattach = Some(member.into());
        self
    }

    pub(super) fn fill(&self, governor: &Governor, mut ask: AcquireRequest) -> AcquireRequest {
        let wire = &mut ask.wire;
        if let Some(pool) = &self.pool {
            wire.pool = pool.clone();
        }
        if let Some(key) = &self.key {
            wire.key = Some(governor.key(key));
        }
        if let Some(org) = &self.org {
            wire.org = Some(governor.key(org));
        }
        if let Some(priority) = self.priority {
            wire.priority = priority;
        }
        if !self.candidates.is_empty() {
            wire.candidates.clone_from(&self.candidates);
        }
        if self.reattach.is_some() {
            wire.kind = Kind::Reattach;
        }
        fill(&mut wire.label, &self.label);
        fill(&mut wire.class, &self.class);
        fill(&mut wire.traffic, &self.traffic);
        fill(&mut wire.sticky, &self.sticky);
        fill(&mut wire.sticky, &self.reattach);
        ask
    }
}

/// What is known wins.
fn fill(asked: &mut Option<Arc<str>>, known: &Option<Arc<str>>) {
    if known.is_some() {
        asked.clone_from(known);
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("key", &self.key.as_ref().map(|_| "redacted"))
            .field("org", &self.org.as_ref().map(|_| "redacted"))
            .field("label", &self.label)
            .field("class", &self.class)
            .field("priority", &self.priority)
            .field("traffic", &self.traffic)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Headers whose word about the caller is taken, for a gateway that sits behind an edge which authenticates and sets
/// them. None, unless listed: any client can send any header, so list only what the edge removes from outside requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedHeaders {
    key: Option<HeaderName>,
    org: Option<HeaderName>,
    label: Option<HeaderName>,
    class: Option<HeaderName>,
    priority: Option<HeaderName>,
    traffic: Option<HeaderName>,
}

impl TrustedHeaders {
    /// Trusts nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The caller's identity, in place of its credential; hashed.
    #[must_use]
    pub fn key(mut self, name: HeaderName) -> Self {
        self.key = Some(name);
        self
    }

    /// Its organisation; hashed.
    #[must_use]
    pub fn org(mut self, name: HeaderName) -> Self {
        self.org = Some(name);
        self
    }

    /// The label on the operator's screen.
    #[must_use]
    pub fn label(mut self, name: HeaderName) -> Self {
        self.label = Some(name);
        self
    }

    /// The plan.
    #[must_use]
    pub fn class(mut self, name: HeaderName) -> Self {
        self.class = Some(name);
        self
    }

    /// `critical`, `normal` or `sheddable`; anything else counts as not said.
    #[must_use]
    pub fn priority(mut self, name: HeaderName) -> Self {
        self.priority = Some(name);
        self
    }

    /// The kind of traffic.
    #[must_use]
    pub fn traffic(mut self, name: HeaderName) -> Self {
        self.traffic = Some(name);
        self
    }

    pub(super) fn fill(&self, governor: &Governor, head: &Parts, mut ask: AcquireRequest) -> AcquireRequest {
        let value = |name: &Option<HeaderName>| {
            let value = head.headers.get(name.as_ref()?)?.as_bytes().trim_ascii();
            (!value.is_empty()).then_some(value)
        };
        let name = |header| value(header).and_then(|value| str::from_utf8(value).ok()).filter(|v| v.len() <= MAX_NAME);
        if let Some(key) = value(&self.key) {
            ask = ask.key(governor.key(key));
        }
        if let Some(org) = value(&self.org) {
            ask = ask.org(governor.key(org));
        }
        if let Some(label) = name(&self.label) {
            ask = ask.label(label);
        }
        if let Some(class) = name(&self.class) {
            ask = ask.class(class);
        }
        if let Some(traffic) = name(&self.traffic) {
            ask = ask.traffic(traffic);
        }
        match name(&self.priority) {
            Some("critical") => ask.priority(Priority::Critical),
            Some("normal") => ask.priority(Priority::Normal),
            Some("sheddable") => ask.priority(Priority::Sheddable),
            Some(_) | None => ask,
        }
    }
}
