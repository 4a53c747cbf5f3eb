//! Policy as data: what the operator asked for, already validated in form. Knows no file, no default of a file.

use crate::time::Duration;

/// Everything the engine obeys. Replaced as a whole by [`crate::io::Input::PolicyChanged`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Limits of the node.
    pub node: NodePolicy,
    /// The pools, names unique.
    pub pools: Vec<PoolPolicy>,
}

/// Limits of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePolicy {
    /// Counted requests, granted or parked, at most (B1). 0 disables the cap.
    pub cap: u32,
    /// Parked requests at most over all pools (A24).
    pub max_parked: u32,
    /// A lease not renewed for this long expires.
    pub lease_ttl: Duration,
    /// How long leases outlive a broken connection whose process may be alive.
    pub session_grace: Duration,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            cap: 1000,
            max_parked: 500,
            lease_ttl: Duration::from_secs(30),
            session_grace: Duration::from_secs(5),
        }
    }
}

/// One pool of shared upstream capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPolicy {
    /// Name, unique.
    pub name: String,
    /// The members, names unique within the pool.
    pub members: Vec<MemberPolicy>,
    /// The fair-share rule.
    pub fair_share: FairShare,
    /// Whether the fair-share rule acts or only records (A6).
    pub mode: Mode,
    /// A key below this many is never refused by fair share (A4).
    pub min_guarantee: u32,
    /// Longest park (A7).
    pub max_wait: Duration,
    /// Parked requests of one key at most (A24).
    pub max_parked_per_key: u32,
    /// Status of a refusal for want of member slots: 429 or 529.
    pub exhausted_status: u16,
    /// Cool-down of a member that answered 429 without a reset.
    pub rate_limited_cooldown: Duration,
    /// Cool-down of a member that answered 529 or failed in transport (A12).
    pub overloaded_cooldown: Duration,
}

/// One upstream account or backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPolicy {
    /// Name, unique within its pool.
    pub name: String,
    /// Slots it has; 0 makes the pool's gate inactive (A2).
    pub slots: u32,
    /// Slots kept for re-attach.
    pub reserve: u32,
    /// Drained by the operator: running leases go on, nothing new.
    pub draining: bool,
}

/// The fair-share rule of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairShare {
    /// No rule: member slots only.
    #[default]
    Off,
    /// A3: congested from this many percent of capacity (1–100), then C / active keys.
    EqualSplit {
        /// Percent of capacity.
        threshold: u8,
    },
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
