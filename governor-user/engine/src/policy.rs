//! Policy as data: what the operator asked for, already validated in form. Knows no file, no default of a file.

use std::collections::BTreeSet;

use crate::id::{KeyId, OrgId};
use crate::time::{Duration, Instant};

/// How long an unanswered question for an org's tier is not asked again.
pub const TIER_PATIENCE: Duration = Duration::from_secs(10);

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

/// What one key or org is entitled to. Each field comes from the first source that has it: the key's [`Override`], the
/// settings of the key or org, the class (of an org, or of a key without one; a key in an org has none), the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entitlement {
    /// Configured ratio, 1–[`Entitlement::MOST_WEIGHT`]; default 1.
    pub weight: Option<u32>,
    /// `max-min` admits below this many in each pool whenever there is a slot; default 0.
    pub floor: Option<u32>,
    /// Requests on the node, in flight and parked, at most; over it 429 at once (B4). 0 is no limit, as is the default.
    /// Acts on arrivals: what runs or waits when it is lowered goes on.
    pub cap: Option<u32>,
}

impl Entitlement {
    /// The largest weight.
    pub const MOST_WEIGHT: u32 = 10_000;
    /// The largest floor.
    pub const MOST_FLOOR: u32 = MOST_SLOTS;
}

/// A class (plan): what its orgs are entitled to, and keys whose requests name no org.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassPolicy {
    /// Name, unique.
    pub name: String,
    /// `cap` is the class's ceiling (B4).
    pub entitlement: Entitlement,
}

impl ClassPolicy {
    /// The usual classes with their ceilings: trust tiers 0–4, chat and developer plan, enterprise.
    #[must_use]
    pub fn table() -> Vec<Self> {
        let rows = [
            ("tier0", 100),
            ("tier1", 200),
            ("tier2", 400),
            ("tier3", 1000),
            ("tier4", 2000),
            ("chat", 10),
            ("developer", 50),
            ("enterprise", 2000),
        ];
        let class = |(name, ceiling): (&str, u32)| Self {
            name: name.to_owned(),
            entitlement: Entitlement { cap: Some(ceiling), ..Entitlement::default() },
        };
        rows.map(class).into()
    }
}

/// One org.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrgPolicy {
    /// The org.
    pub org: OrgId,
    /// A `cap` here replaces the class's ceiling, tiers included.
    pub entitlement: Entitlement,
}

/// One key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPolicy {
    /// The key.
    pub key: KeyId,
    /// For a key without an org, a `cap` here replaces the class's ceiling. Within an org, weight and floor order its
    /// keys when they wait; the share is the org's.
    pub entitlement: Entitlement,
}

/// An operator's setting for one key (C7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Wins over everything configured, field by field.
    pub entitlement: Entitlement,
    /// Every request of the key is refused, whatever the modes say; those that wait are refused when this begins. What
    /// runs goes on.
    pub suspend: bool,
    /// Gone from then on; `None`: until taken away.
    pub until: Option<Instant>,
}

impl Override {
    /// Checks the form.
    ///
    /// # Errors
    /// What is wrong with its entitlement.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.entitlement.check()
    }
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
    /// Kinds of traffic with a sub-capacity of their own, names unique (A13).
    pub traffic: Vec<TrafficPolicy>,
}

impl Default for PoolPolicy {
    /// The usual numbers, without a name and without members.
    fn default() -> Self {
        Self {
            name: String::new(),
            members: Vec::new(),
            fair_share: FairShare::Off,
            mode: Mode::Observe,
            min_guarantee: 2,
            max_wait: Duration::from_secs(30),
            max_parked_per_key: 16,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            traffic: Vec::new(),
        }
    }
}

/// A kind of traffic that may not fill its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficPolicy {
    /// Name, unique within its pool.
    pub name: String,
    /// Leases of it in the pool at most, on whatever members: an ordinary, child or resumed request over it waits or is
    /// refused as for want of a member's slot. Re-attached work and moves count and are not held back. 0 is no limit.
    pub slots: u32,
}

/// One upstream account or backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// A20: when those that use least for their weight are served first, nobody below its floor, and what they leave is
    /// shared, a key may hold what it then gets. Everybody passes while more than the headroom is free. The requests of
    /// an org share as one; within it, who uses least for its weight is served first.
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
    fn check(&self) -> Result<(), PolicyError> {
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
