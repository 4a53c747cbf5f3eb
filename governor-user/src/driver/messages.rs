//! Messages to the driver: what proxies do, what the kernel found, and what the control API asks.

use super::view::View;
use crate::driver::operator::key_orders::KeyRefused;
use crate::driver::operator::members::MemberRefused;
use crate::driver::operator::members::levers::Place;
use crate::driver::sessions::clients::Subject;
use crate::records::journal::Entry;
use crate::state::Stored;
use crate::transport::outbox::Outbox;
use crate::transport::peer::Peer;
use bytes::Bytes;
use governor_api as api;
use governor_common::wire::request::Hello;
use governor_engine::id::SessionId;
use governor_engine::policy::Policy;
use governor_engine::snapshot::LeaseView;
use governor_engine::time::{Duration, Instant};
use governor_health::Report;
use governor_kernel::clients::News;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A message to the driver.
#[derive(Debug)]
pub enum Message {
    /// A proxy connected and said `Hello` in a version that is served.
    Opened {
        /// Its session.
        session: SessionId,
        /// What it begins with.
        greeting: Box<Greeting>,
    },
    /// More of its stream.
    Bytes {
        /// Its session.
        session: SessionId,
        /// As they came: they may begin or end within a frame.
        bytes: Bytes,
    },
    /// Its connection is gone, its process may live.
    Lost {
        /// Its session.
        session: SessionId,
        /// Why, for people.
        why: String,
        /// Receives how long its leases outlive the connection, by the policy of this moment.
        grace: oneshot::Sender<Duration>,
    },
    /// Its process is gone.
    Gone {
        /// Its session.
        session: SessionId,
    },
    /// What the last observation came to.
    Report(Arc<Report>),
    /// What the kernel says of clients.
    Clients(News<Subject>),
    /// The control API asks.
    Ask(Ask),
    /// Stop: announce it, then end when no lease is left or the time is up.
    Stop {
        /// How long to wait for leases.
        within: Duration,
    },
}

/// What a session begins with.
#[derive(Debug)]
pub struct Greeting {
    /// Process and user of the proxy.
    pub peer: Peer,
    /// Where replies go.
    pub outbox: Outbox,
    /// What its first frame says.
    pub hello: Hello,
    /// Request id of that frame.
    pub request: u32,
}

/// Questions and orders of the control API.
#[derive(Debug)]
pub enum Ask {
    /// Everything at a glance.
    View(oneshot::Sender<View>),
    /// All leases, with a view of the same moment.
    Leases(oneshot::Sender<(View, Vec<LeaseView>)>),
    /// One decision.
    Explain(u64, oneshot::Sender<Option<(Entry, Instant)>>),
    /// Decisions that may not be on disk yet, the newest first, and the time now.
    Recent(oneshot::Sender<(Vec<Entry>, Instant)>),
    /// Obey this policy from now on.
    Policy(Box<Policy>, oneshot::Sender<()>),
    /// Switch the bypass.
    Bypass {
        /// On or off.
        on: bool,
        /// Ends by itself after this.
        for_seconds: Option<u64>,
        /// The operator, for the record.
        by: String,
        /// Whether the switch is stored.
        answer: oneshot::Sender<Stored>,
    },
    /// Every override of a key.
    KeyOverrides(oneshot::Sender<Vec<api::KeyOverride>>),
    /// Set or take away the override of a key.
    Key {
        /// Its keyed hash or label.
        name: String,
        /// What to set; `None`: take it away.
        order: Option<api::KeyOverrideRequest>,
        /// Who orders it.
        by: String,
        /// What came of it.
        answer: oneshot::Sender<Result<(api::KeyOverrideChange, Stored), KeyRefused>>,
    },
    /// An order for a member.
    Member {
        /// Its pool and name.
        place: Place,
        /// What is ordered.
        request: api::MemberRequest,
        /// Who orders it.
        by: String,
        /// What came of it.
        answer: oneshot::Sender<Result<(api::MemberChange, Stored), MemberRefused>>,
    },
    /// Begin or end the drain of the node.
    Drain {
        /// Begin or end.
        on: bool,
        /// Why.
        reason: Option<String>,
        /// Who orders it.
        by: String,
        /// Whether the order is stored.
        answer: oneshot::Sender<Stored>,
    },
    /// A change that was made outside the driver.
    Record(Box<api::Event>),
}
