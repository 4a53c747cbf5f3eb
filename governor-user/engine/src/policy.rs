//! Policy as data: what the operator asked for, already validated in form. Knows no file, no default of a file.

use std::collections::BTreeSet;

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
        Self { cap: 1000, max_parked: 500, lease_ttl: Duration::from_secs(30), session_grace: Duration::from_secs(5) }
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
    /// Slots it has. A member of 0 slots takes nothing and adds nothing to capacity; a pool whose members have no slot
    /// between them (or that has no members) has no gate: everything passes, counted and on no member (A2).
    pub slots: u32,
    /// Slots kept for re-attach. Ordinary requests may use `max(1, slots − reserve)`.
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
    /// A20 with equal weights and without floors: when the keys that use least are served first and what they leave is
    /// shared, a key may hold what it then gets. Everybody passes while more than the headroom is free.
    MaxMin {
        /// Slots kept for newcomers.
        headroom: Headroom,
    },
}

/// Slots that `max-min` keeps for newcomers (A21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// This many thousandths of capacity, 0–1000, rounded down but at least one slot; 0 is none.
    PerMille(u16),
    /// This many slots.
    Slots(u32),
}

impl Default for Headroom {
    /// max(1, 4 % of C).
    fn default() -> Self {
        Self::PerMille(40)
    }
}

impl Headroom {
    /// In slots of a capacity, never more than that.
    #[must_use]
    pub fn slots(self, capacity: u32) -> u32 {
        let slots = match self {
            Self::PerMille(0) => 0,
            Self::PerMille(share) => {
                let part = u64::from(capacity) * u64::from(share) / 1000;
                u32::try_from(part).unwrap_or(u32::MAX).max(1)
            }
            Self::Slots(slots) => slots,
        };
        slots.min(capacity)
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

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Two pools of one name.
    #[error("pool {pool:?} is defined twice")]
    DuplicatePool {
        /// The name.
        pool: String,
    },
    /// Two members of one name in a pool.
    #[error("pool {pool:?} names member {member:?} twice")]
    DuplicateMember {
        /// The pool.
        pool: String,
        /// The member.
        member: String,
    },
    /// A pool or member without a name.
    #[error("pool {pool:?} or one of its members has an empty name")]
    EmptyName {
        /// The pool.
        pool: String,
    },
    /// A threshold that is no percentage.
    #[error("pool {pool:?} has fair_share threshold {threshold}, which is not within 1-100")]
    Threshold {
        /// The pool.
        pool: String,
        /// What it says.
        threshold: u8,
    },
    /// A headroom that is no share.
    #[error("pool {pool:?} has a headroom of {permille} thousandths, which is not within 0-1000")]
    Headroom {
        /// The pool.
        pool: String,
        /// What it says.
        permille: u16,
    },
    /// A refusal status that is neither 429 nor 529.
    #[error("pool {pool:?} has exhausted_status {status}, which is neither 429 nor 529")]
    ExhaustedStatus {
        /// The pool.
        pool: String,
        /// What it says.
        status: u16,
    },
    /// More slots than can be counted.
    #[error("pool {pool:?} has more than {limit} slots in all")]
    TooManySlots {
        /// The pool.
        pool: String,
        /// The most there can be.
        limit: u32,
    },
    /// Leases would expire as they are granted.
    #[error("lease_ttl is 0: every lease would expire at once")]
    NoLeaseTtl,
}

/// Slots of one pool at most: enough for any proxy, and no sum or product of counts overflows.
const MOST_SLOTS: u32 = 10_000_000;

impl Policy {
    /// Checks the form: names, ranges. [`crate::Engine`] obeys nothing that fails this.
    ///
    /// # Errors
    /// The first thing found wrong, by name.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.node.lease_ttl.is_zero() {
            return Err(PolicyError::NoLeaseTtl);
        }
        let mut names = BTreeSet::new();
        for pool in &self.pools {
            if !names.insert(pool.name.as_str()) {
                return Err(PolicyError::DuplicatePool { pool: pool.name.clone() });
            }
            pool.check()?;
        }
        Ok(())
    }
}

impl PoolPolicy {
    fn check(&self) -> Result<(), PolicyError> {
        let pool = || self.name.clone();
        if self.name.is_empty() || self.members.iter().any(|member| member.name.is_empty()) {
            return Err(PolicyError::EmptyName { pool: pool() });
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.members.iter().find(|member| !names.insert(member.name.as_str())) {
            return Err(PolicyError::DuplicateMember { pool: pool(), member: twice.name.clone() });
        }
        match self.fair_share {
            FairShare::EqualSplit { threshold } if !(1..=100).contains(&threshold) => {
                return Err(PolicyError::Threshold { pool: pool(), threshold });
            }
            FairShare::MaxMin { headroom: Headroom::PerMille(permille) } if permille > 1000 => {
                return Err(PolicyError::Headroom { pool: pool(), permille });
            }
            FairShare::EqualSplit { .. } | FairShare::MaxMin { .. } | FairShare::Off => {}
        }
        if !matches!(self.exhausted_status, 429 | 529) {
            return Err(PolicyError::ExhaustedStatus { pool: pool(), status: self.exhausted_status });
        }
        let slots: u64 = self.members.iter().map(|member| u64::from(member.slots)).sum();
        if slots > u64::from(MOST_SLOTS) {
            return Err(PolicyError::TooManySlots { pool: pool(), limit: MOST_SLOTS });
        }
        Ok(())
    }
}
