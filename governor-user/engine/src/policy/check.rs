//! What a policy must be to be obeyed.

use crate::policy::{Entitlement, FairShare, Headroom, Policy, PoolPolicy};
use std::collections::BTreeSet;

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
    /// A pool without a gate that has members, whose slots would bound nothing.
    #[error("pool {pool:?} is unlimited and has member {member:?}: a pool has members or no gate")]
    UnlimitedWithMembers {
        /// The pool.
        pool: String,
        /// Its first member.
        member: String,
    },
    /// Two kinds of traffic of one name in a pool, or one without a name.
    #[error("pool {pool:?} names traffic {traffic:?} twice or not at all")]
    Traffic {
        /// The pool.
        pool: String,
        /// The name.
        traffic: String,
    },
    /// Two classes of one name, or one without.
    #[error("class {class:?} is defined twice or has no name")]
    Class {
        /// The name.
        class: String,
    },
    /// A default class that is not defined.
    #[error("default class {class:?} is not defined")]
    DefaultClass {
        /// The name.
        class: String,
    },
    /// Two settings of one org.
    #[error("an org is set twice")]
    DuplicateOrg,
    /// Two settings of one key.
    #[error("a key is set twice")]
    DuplicateKey,
    /// A weight out of range.
    #[error("a weight of {weight} is not within 1-{limit}", limit = Entitlement::MOST_WEIGHT)]
    Weight {
        /// What it says.
        weight: u32,
    },
    /// A floor out of range.
    #[error("a floor of {floor} is more than {limit}", limit = Entitlement::MOST_FLOOR)]
    Floor {
        /// What it says.
        floor: u32,
    },
    /// A guarantee that a limit of the same source forbids.
    #[error("a floor of {floor} is above its own cap of {cap}")]
    FloorAboveCap {
        /// The floor.
        floor: u32,
        /// The cap.
        cap: u32,
    },
    /// Leases would expire as they are granted.
    #[error("lease_ttl is 0: every lease would expire at once")]
    NoLeaseTtl,
}

/// Slots of one pool at most: enough for any proxy, and no sum or product of counts overflows.
pub(crate) const MOST_SLOTS: u32 = 10_000_000;

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
        self.check_classes()?;
        let mut orgs = BTreeSet::new();
        if !self.orgs.iter().all(|org| orgs.insert(org.org)) {
            return Err(PolicyError::DuplicateOrg);
        }
        let mut keys = BTreeSet::new();
        if !self.keys.iter().all(|key| keys.insert(key.key)) {
            return Err(PolicyError::DuplicateKey);
        }
        let single = self.orgs.iter().map(|org| &org.entitlement).chain(self.keys.iter().map(|key| &key.entitlement));
        self.classes.iter().map(|class| &class.entitlement).chain(single).try_for_each(Entitlement::check)
    }

    fn check_classes(&self) -> Result<(), PolicyError> {
        let mut names = BTreeSet::new();
        if let Some(class) = self.classes.iter().find(|class| class.name.is_empty() || !names.insert(&class.name)) {
            return Err(PolicyError::Class { class: class.name.clone() });
        }
        match self.node.default_class.as_ref().filter(|class| !names.contains(class)) {
            Some(class) => Err(PolicyError::DefaultClass { class: class.clone() }),
            None => Ok(()),
        }
    }
}

impl Entitlement {
    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        if let Some(weight) = self.weight.filter(|weight| !(1..=Self::MOST_WEIGHT).contains(weight)) {
            return Err(PolicyError::Weight { weight });
        }
        if let Some(floor) = self.floor.filter(|floor| *floor > Self::MOST_FLOOR) {
            return Err(PolicyError::Floor { floor });
        }
        match (self.floor, self.cap) {
            (Some(floor), Some(cap)) if cap > 0 && floor > cap => Err(PolicyError::FloorAboveCap { floor, cap }),
            _ => Ok(()),
        }
    }
}

impl PoolPolicy {
    fn check(&self) -> Result<(), PolicyError> {
        let pool = || self.name.clone();
        if self.name.is_empty() || self.members.iter().any(|member| member.name.is_empty()) {
            return Err(PolicyError::EmptyName { pool: pool() });
        }
        if let Some(member) = self.members.first().filter(|_| self.unlimited) {
            return Err(PolicyError::UnlimitedWithMembers { pool: pool(), member: member.name.clone() });
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.members.iter().find(|member| !names.insert(member.name.as_str())) {
            return Err(PolicyError::DuplicateMember { pool: pool(), member: twice.name.clone() });
        }
        let mut names = BTreeSet::new();
        if let Some(kind) = self.traffic.iter().find(|kind| kind.name.is_empty() || !names.insert(&kind.name)) {
            return Err(PolicyError::Traffic { pool: pool(), traffic: kind.name.clone() });
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
