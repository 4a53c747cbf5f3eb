//! A refusal or delay in numbers: enough to explain it a day later, and to replay its arithmetic.

use crate::id::{ClassId, DecisionId, KeyId, OrgId, PoolId, SessionId};
use crate::io::{Level, Priority};
use crate::time::{Duration, Instant};

/// What a decision came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Refused.
    #[default]
    Shed,
    /// Observe mode: enforce would have parked it.
    WouldPark,
    /// Observe mode: enforce would have refused it.
    WouldRefuse,
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Over the fair share (origin key; origin org where the share is the org's).
    #[default]
    FairShare,
    /// No member had a slot (origin pool).
    PoolExhausted,
    /// All candidates cool after 429 and the earliest reset is too far (origin upstream).
    AllCooling,
    /// Node cap (origin node, 529).
    NodeCap,
    /// Too many parked requests of this key (origin key).
    KeyQueueFull,
    /// Too many parked requests in the pool (origin pool) or on the node (origin node).
    QueueFull,
    /// Shed by the overload level (origin node, 529).
    Overload,
    /// An operator suspended the key (origin key).
    Suspended,
    /// Over the cap of the key (origin key).
    KeyCap,
    /// Over the cap of the org (origin org).
    OrgCap,
    /// Over the ceiling of the class (origin org; origin key where there is no org).
    ClassCap,
    /// Its kind of traffic fills its sub-capacity (origin pool).
    SubCapacity,
    /// An operator drains the node (origin node, 529).
    Draining,
}

impl Reason {
    /// More slots would have granted it: no cap, no operator and no level refused it.
    #[must_use]
    pub fn is_for_want_of_a_slot(self) -> bool {
        match self {
            Self::FairShare
            | Self::PoolExhausted
            | Self::AllCooling
            | Self::NodeCap
            | Self::KeyQueueFull
            | Self::QueueFull
            | Self::SubCapacity => true,
            Self::Overload | Self::Suspended | Self::KeyCap | Self::OrgCap | Self::ClassCap | Self::Draining => false,
        }
    }
}

/// Which level decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The key.
    #[default]
    Key,
    /// The org.
    Org,
    /// The pool.
    Pool,
    /// The node.
    Node,
    /// The upstream.
    Upstream,
}

/// A refusal or delay, in numbers (A8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Id for `explain`.
    pub id: DecisionId,
    /// When.
    pub at: Instant,
    /// The session.
    pub session: SessionId,
    /// The pool.
    pub pool: PoolId,
    /// The key; `None` if the request names none.
    pub key: Option<KeyId>,
    /// The org.
    pub org: Option<OrgId>,
    /// The class it was judged by: of the org, or of the key where there is no org.
    pub class: Option<ClassId>,
    /// Its priority.
    pub priority: Priority,
    /// The overload level of the node.
    pub level: Level,
    /// What it came to.
    pub outcome: Outcome,
    /// Which rule.
    pub reason: Reason,
    /// Which level.
    pub origin: Origin,
    /// HTTP status: 429 or 529; 403 for a suspended key.
    pub status: u16,
    /// When to try again, in whole milliseconds: 1–60 s, and longer only where an upstream named its reset.
    pub retry_after: Duration,
    /// How long it was parked before.
    pub waited: Duration,
    /// The numbers it was decided on.
    pub numbers: Numbers,
}

/// The numbers of a decision, over the request's candidate members but for those of the pool and the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// In flight of the key.
    pub key_in_flight: u32,
    /// What the key may hold while the pool is congested; of a key in an org under `max-min`, what the org may hold.
    pub share: u32,
    /// In flight of whom the share is for: of the org under `max-min`, else of the key.
    pub unit_in_flight: u32,
    /// Weight of whom the share is for.
    pub weight: u32,
    /// Floor of whom the share is for, scaled if the pool is oversubscribed; 0 but under `max-min`.
    pub floor: u32,
    /// Slots kept for newcomers (units below `min_guarantee`, at least 1), H; 0 but under `max-min`.
    pub headroom: u32,
    /// What would be held if the requester had one more and all others filled up to its level, F of A20: refused when
    /// more than C − H. 0 but under `max-min`.
    pub filled: u32,
    /// The cap, ceiling, sub-capacity or bound of waiting requests that refused; 0 if none did.
    pub limit: u32,
    /// What was counted against `limit`, the request itself left out; 0 if none refused.
    pub limited: u32,
    /// In flight in all, T.
    pub in_flight: u32,
    /// Capacity, C.
    pub capacity: u32,
    /// Active keys, the requester included.
    pub active_keys: u32,
    /// Parked requests in the pool.
    pub parked: u32,
    /// Counted requests on the node, granted or parked.
    pub node_counted: u32,
    /// The node cap.
    pub node_cap: u32,
}
