//! What keys, orgs and classes are entitled to.

use crate::id::{KeyId, OrgId};
use crate::policy::check::{MOST_SLOTS, PolicyError};
use crate::time::Instant;

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
