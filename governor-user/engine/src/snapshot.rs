//! Read-only views for display and metrics. Built on demand, sorted, owned; never on the decision path.

use crate::id::{KeyId, LeaseId, MemberId, PoolId, SessionId};
use crate::io::{Kind, Reason};
use crate::policy::{FairShare, Mode};
use crate::time::Instant;

/// The whole engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counted requests, granted or parked.
    pub node_counted: u32,
    /// Exempt work in progress is not tracked: number of exempt grants so far.
    pub exempt_total: u64,
    /// Bypass is on.
    pub bypass: bool,
    /// Pools in policy order.
    pub pools: Vec<PoolView>,
    /// Counters since the engine was made.
    pub totals: Totals,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Index.
    pub pool: PoolId,
    /// Name.
    pub name: String,
    /// C over all members that count now.
    pub capacity: u32,
    /// Leases in flight, on all members, cooling ones too.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// When the oldest parked request arrived.
    pub oldest_parked: Option<Instant>,
    /// The rule.
    pub fair_share: FairShare,
    /// Its mode.
    pub mode: Mode,
    /// Congested now, over all members.
    pub congested: bool,
    /// Keys with at least one in flight, over all members that count.
    pub active_keys: u32,
    /// Members in policy order.
    pub members: Vec<MemberView>,
    /// Keys with anything in flight or parked, by key.
    pub keys: Vec<KeyView>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Index.
    pub member: MemberId,
    /// Name.
    pub name: String,
    /// Slots.
    pub slots: u32,
    /// Reserve.
    pub reserve: u32,
    /// In flight.
    pub in_flight: u32,
    /// `up`, `cooling` or `draining`. A member that fails but is kept selectable, because all others fail too, is `up`.
    pub state: MemberState,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Takes requests.
    Up,
    /// Takes none until then.
    Cooling {
        /// End of the cool-down.
        until: Instant,
    },
    /// Takes none.
    Draining,
}

/// One key in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: KeyId,
    /// In flight.
    pub in_flight: u32,
    /// Parked.
    pub parked: u32,
    /// What it may hold while the pool is congested; `None` where no rule is set.
    pub share: Option<u32>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Id.
    pub lease: LeaseId,
    /// Holder.
    pub session: SessionId,
    /// Pool.
    pub pool: PoolId,
    /// Key.
    pub key: Option<KeyId>,
    /// Member.
    pub member: Option<MemberId>,
    /// Kind.
    pub kind: Kind,
    /// When it was granted.
    pub granted: Instant,
    /// When it ends unless renewed.
    pub expires: Instant,
    /// When it last moved bytes, as far as its holder told.
    pub moved: Option<Instant>,
}

/// Counters since the engine was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Grants, per pool in policy order.
    pub granted: Vec<u64>,
    /// Requests parked at least once, per pool in policy order.
    pub parked: Vec<u64>,
    /// Refusals per pool and reason, sorted; observe-mode records not among them.
    pub shed: Vec<(PoolId, Reason, u64)>,
    /// What enforce would have done: (pool, reason, would park, would refuse).
    pub would_have: Vec<(PoolId, Reason, u64, u64)>,
    /// Leases ended, by cause: released, expired, session gone, revoked.
    pub released: u64,
    /// See `released`.
    pub expired: u64,
    /// See `released`.
    pub session_gone: u64,
    /// See `released`.
    pub revoked: u64,
    /// Releases and renewals of leases that were not there.
    pub unknown: u64,
    /// Grants made while bypass was on.
    pub bypassed: u64,
    /// Rejected requests.
    pub rejected: u64,
    /// Policies that were not taken because something in them is wrong.
    pub policies_refused: u64,
}
