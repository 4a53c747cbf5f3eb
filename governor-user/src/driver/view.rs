//! What the driver shows: one consistent moment, owned, for the control API and the metrics.

use crate::driver::operator::drain::DrainOrder;
use crate::driver::operator::members::MemberNote;
use crate::driver::sessions::clients;
use crate::records::ring::RingHealth;
use crate::transport::peer::Peer;
use governor_common::wire::reply::Overload;
use governor_engine::id::{ClassId, KeyId, MemberId, PoolId, SessionId, SiteId};
use governor_engine::policy::NodePolicy;
use governor_engine::snapshot::Snapshot;
use governor_engine::time::Instant;
use std::collections::BTreeMap;

/// One moment.
#[derive(Clone, Debug)]
pub struct View {
    /// When.
    pub now: Instant,
    /// Changes with every start.
    pub epoch: u16,
    /// The engine.
    pub snapshot: Snapshot,
    /// Labels of the keys in the snapshot and of the leases asked for with it.
    pub labels: BTreeMap<KeyId, String>,
    /// Names of the classes in the snapshot.
    pub classes: BTreeMap<ClassId, String>,
    /// Proxies, also those whose connection is lost while they hold leases.
    pub sessions: Vec<SessionView>,
    /// Level, pressure, causes.
    pub overload: Overload,
    /// Seconds until the bypass ends by itself.
    pub bypass_remaining: Option<u64>,
    /// A stop was ordered.
    pub draining: bool,
    /// An operator drains the node, for so many seconds.
    pub drain: Option<(DrainOrder, u64)>,
    /// Leases, and how many of them are suspended.
    pub held: (u32, u32),
    /// What is known of members beside the snapshot.
    pub members: BTreeMap<(PoolId, MemberId), MemberNote>,
    /// Limits of the node.
    pub node: NodePolicy,
    /// Leases of the previous run that count until their holders are back.
    pub awaited: u32,
    /// Connections of clients, and how their ends were learnt of.
    pub clients: clients::Counts,
    /// Names of the places that leases are counted by.
    pub sites: BTreeMap<SiteId, String>,
    /// How the disk fares, by what is kept on it.
    pub records: Vec<(&'static str, RingHealth)>,
}

/// One proxy.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its session.
    pub id: SessionId,
    /// The name it gave itself.
    pub name: String,
    /// Who it is.
    pub peer: Peer,
    /// Leases it holds.
    pub leases: u32,
}
