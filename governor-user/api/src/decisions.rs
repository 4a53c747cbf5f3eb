//! Decisions in numbers, and what other settings would have decided.

use super::admission::FairShare;
use serde::{Deserialize, Serialize};

/// A refusal or delay, in numbers and in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Decision id, 16 hexadecimal digits; `governorctl` shows it as `d-…`.
    pub id: String,
    /// Seconds since it was made.
    pub age_seconds: f64,
    /// The session that asked.
    pub session: u64,
    /// The pool.
    pub pool: String,
    /// The keyed hash; `anonymous` for a request without a key (`null` in records of older daemons).
    pub key: Option<String>,
    /// What the proxy calls the key, if it says.
    pub label: Option<String>,
    /// Its org, 32 hexadecimal digits; `null` without one.
    #[serde(default)]
    pub org: Option<String>,
    /// The class it was judged by; `null` without one.
    #[serde(default)]
    pub class: Option<String>,
    /// `critical`, `normal` or `sheddable`.
    #[serde(default)]
    pub priority: Option<String>,
    /// The level of overload that refuses work: `normal`, `elevated`, `high` or `overloaded`.
    #[serde(default)]
    pub level: Option<String>,
    /// What it came to.
    pub outcome: Outcome,
    /// Which rule decided, as in [`super::Pool::shed_total`].
    pub reason: String,
    /// Which level refused: `key`, `org`, `pool`, `node`, `fleet` or `upstream`.
    pub origin: String,
    /// HTTP status: 429 or 529; 403 for a suspended key.
    pub status: u16,
    /// `Retry-After` of the answer, in seconds.
    pub retry_after_seconds: f64,
    /// How long the request was parked before, in seconds.
    pub waited_seconds: f64,
    /// The numbers it was decided on.
    pub numbers: Numbers,
    /// One or two plain sentences, made from the numbers.
    pub explanation: String,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Refused.
    #[default]
    Shed,
    /// Granted in observe mode; enforce would have parked it.
    WouldPark,
    /// Granted in observe mode; enforce would have refused it.
    WouldRefuse,
}

/// The numbers of a decision, all over the members the request could use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// In flight of the key.
    pub key_in_flight: u32,
    /// What the key may hold while the pool is congested; its org, where the share is the org's.
    pub share: u32,
    /// In flight of whom the share is for. Records of earlier versions lack this and what has a default below.
    #[serde(default)]
    pub unit_in_flight: u32,
    /// Weight of whom the share is for.
    #[serde(default)]
    pub weight: u32,
    /// Floor of whom the share is for.
    #[serde(default)]
    pub floor: u32,
    /// Slots that `max-min` keeps for newcomers.
    #[serde(default)]
    pub headroom: u32,
    /// Under `max-min`: what would be held if the requester had one more and all others filled up to its level.
    #[serde(default)]
    pub filled: u32,
    /// The cap, ceiling or sub-capacity that refused; 0 if none did.
    #[serde(default)]
    pub limit: u32,
    /// What was counted against `limit`.
    #[serde(default)]
    pub limited: u32,
    /// In flight in all.
    pub in_flight: u32,
    /// Capacity.
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

/// Which demand `GET /v1/advise` replays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdviceQuery {
    /// Of the last so many seconds.
    pub last_seconds: u64,
}

/// What other settings would have done with the recorded demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// How far the record that was replayed goes back, in seconds: at most what was asked for.
    pub window_seconds: f64,
    /// The pools in configuration order; those nothing was asked of are absent.
    pub pools: Vec<PoolAdvice>,
}

/// The same for one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolAdvice {
    /// Name.
    pub pool: String,
    /// Requests replayed.
    pub requests: u64,
    /// Keys they were of.
    pub keys: u64,
    /// Each setting, enforced.
    pub settings: Vec<SettingAdvice>,
}

/// What one setting would have done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingAdvice {
    /// The setting.
    pub fair_share: FairShare,
    /// It is the one in effect.
    pub current: bool,
    /// Requests that would have waited and then been granted.
    pub waited_requests: u64,
    /// Of so many keys.
    pub waited_keys: u64,
    /// Requests that would have been refused.
    pub refused_requests: u64,
    /// Of so many keys.
    pub refused_keys: u64,
    /// Slots in use, of the capacity, on average, in percent; `null` for a pool without capacity.
    pub utilisation_percent: Option<f64>,
}
