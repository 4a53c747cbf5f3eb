//! One pool: its members, its rule, its kinds of traffic.

use crate::policy::Mode;
use crate::time::Duration;

/// One pool of shared upstream capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPolicy {
    /// Name, unique.
    pub name: String,
    /// The members, names unique within the pool. While none of them takes requests, nothing is granted.
    pub members: Vec<MemberPolicy>,
    /// The pool has no gate: every request passes at once, counted and on no member. Such a pool has no members (A2).
    pub unlimited: bool,
    /// The fair-share rule.
    pub fair_share: FairShare,
    /// Whether the fair-share rule acts or only records (A6).
    pub mode: Mode,
    /// How requests without a key are judged.
    pub anonymous: Anonymous,
    /// A key below this many is never refused by fair share (A4). Under `max-min` it is a newcomer, for which the
    /// headroom is kept: at least one (A21); where orgs share, the org below this many is.
    pub min_guarantee: u32,
    /// Longest park (A7).
    pub max_wait: Duration,
    /// Parked requests of one key at most (A24).
    pub max_parked_per_key: u32,
    /// Parked requests of the pool at most. `None`: as many as the ordinary slots of its members, cooling ones
    /// included, and at least `max_parked_per_key`.
    pub max_waiting: Option<u32>,
    /// Status of a refusal for want of member slots: 429 or 529.
    pub exhausted_status: u16,
    /// Cool-down of a member that answered 429 without a reset.
    pub rate_limited_cooldown: Duration,
    /// Cool-down of a member that answered 529 or failed in transport (A12).
    pub overloaded_cooldown: Duration,
    /// The longest cool-down that a report can cause, counted from the report, whatever reset it names (A12).
    pub max_cooldown: Duration,
    /// Kinds of traffic with a sub-capacity of their own, names unique (A13).
    pub traffic: Vec<TrafficPolicy>,
}

impl Default for PoolPolicy {
    /// The usual numbers, without a name and without members.
    fn default() -> Self {
        Self {
            name: String::new(),
            members: Vec::new(),
            unlimited: false,
            fair_share: FairShare::Off,
            mode: Mode::Observe,
            anonymous: Anonymous::Judge,
            min_guarantee: 2,
            max_wait: Duration::from_secs(30),
            max_parked_per_key: 16,
            max_waiting: None,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            max_cooldown: Duration::from_secs(600),
            traffic: Vec::new(),
        }
    }
}

/// How a pool judges requests without a key. Either way they never take the last quarter of the places for waiting
/// requests, in the pool and on the node (A9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// They share one identity, which is judged and bounded like a key.
    #[default]
    Judge,
    /// They pass the share test, and count in T.
    Bypass,
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
    /// Slots it has. 0: the member is off. It takes nothing and adds nothing to capacity (A2).
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
    /// A20: when those that use least for their weight are served first, none below its floor, and what they leave is
    /// shared, a key may hold what it then gets. Every request passes while more than the headroom is free. The
    /// requests of an org share as one; within it, who uses least for its weight is served first.
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
