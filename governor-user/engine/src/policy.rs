//! Policy as data: what the operator asked for, already validated in form. Knows no file, no default of a file.

mod check;
mod entitlement;
mod pool;

pub use check::PolicyError;
pub use entitlement::{ClassPolicy, Entitlement, KeyPolicy, OrgPolicy, Override};
pub use pool::{Anonymous, FairShare, Headroom, MemberPolicy, PoolPolicy, TrafficPolicy};

use crate::time::Duration;

/// How long an unanswered question for an org's tier is not asked again.
pub const TIER_PATIENCE: Duration = Duration::from_secs(10);

/// Longest time an answer about a tier holds.
pub const TIER_TTL_MAX: Duration = Duration::from_secs(3600);

/// Live leases of an unlimited pool that proxies may have registered without proof, where `node.cap` is 0 too.
pub const CLAIMS_WITHOUT_LIMIT: u32 = 10_000;

/// Live leases of one pool that proxies may have registered as suspended without proof, where the pool has fewer slots. They
/// hold no slot, and a resume is judged like a request: this bounds memory only.
pub const SUSPENDED_CLAIMS: u32 = 1024;

/// Leases whose revocation is remembered, so that they are not registered again.
pub const REVOKED_REMEMBERED: usize = 4096;

/// Everything the engine obeys. Replaced as a whole by [`crate::io::Input::PolicyChanged`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Limits of the node.
    pub node: NodePolicy,
    /// The pools, names unique.
    pub pools: Vec<PoolPolicy>,
    /// The classes (plans), names unique. [`ClassPolicy::table`] is the usual start.
    pub classes: Vec<ClassPolicy>,
    /// Settings of single orgs, each org at most once. They win over the org's class.
    pub orgs: Vec<OrgPolicy>,
    /// Settings of single keys, each key at most once. They win over the key's class; an [`Override`] wins over them.
    pub keys: Vec<KeyPolicy>,
}

/// Limits of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// Counted requests, granted or parked, at most (B1). 0 disables the cap. Exempt work, hops and suspended leases do
    /// not count; a request that moves or is a child counts once.
    pub cap: u32,
    /// Parked requests at most over all pools (A24).
    pub max_parked: u32,
    /// A lease not renewed for this long expires.
    pub lease_ttl: Duration,
    /// How long leases outlive a broken connection whose process may be alive.
    pub session_grace: Duration,
    /// How long a lease flagged `ends_with_client` outlives its client.
    pub reclaim_grace: Duration,
    /// Whether caps of keys, orgs and classes act or only record (C8).
    pub caps_mode: Mode,
    /// Whether the overload level acts or only records (C8).
    pub shed_mode: Mode,
    /// Class of those whose requests name none, by name.
    pub default_class: Option<String>,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            cap: 1000,
            max_parked: 500,
            lease_ttl: Duration::from_secs(30),
            session_grace: Duration::from_secs(5),
            reclaim_grace: Duration::from_secs(10),
            caps_mode: Mode::Observe,
            shed_mode: Mode::Observe,
            default_class: None,
        }
    }
}

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Decide and record, change nothing.
    #[default]
    Observe,
    /// Decide and act.
    Enforce,
}
