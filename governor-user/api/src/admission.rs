//! Pools, members, keys and leases.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Ordinary slots of the members that count now.
    pub capacity: u32,
    /// The pool has no gate; its capacity of 0 bounds nothing.
    #[serde(default)]
    pub unlimited: bool,
    /// Leases in flight, on all members, cooling ones too.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// How long the oldest parked request has waited, in seconds; `null` when none is parked.
    pub oldest_parked_seconds: Option<f64>,
    /// The rule.
    pub fair_share: FairShare,
    /// Whether it acts.
    pub mode: Mode,
    /// At or over its threshold now.
    pub congested: bool,
    /// Keys with at least one in flight.
    pub active_keys: u32,
    /// Slots that max-min keeps for newcomers; `null` under other rules.
    #[serde(default)]
    pub headroom: Option<u32>,
    /// The floors of those that ask exceed what max-min may hand out: each gets its part.
    #[serde(default)]
    pub oversubscribed: bool,
    /// Grants since the daemon started: of requests, and of leases that were suspended and resumed. A move to another
    /// member is none.
    pub granted_total: u64,
    /// Refusals since the daemon started, by reason: `fair_share`, `pool_exhausted`, `all_cooling`, `node_cap`,
    /// `key_queue_full`, `queue_full`. Reasons that never happened are absent.
    pub shed_total: BTreeMap<String, u64>,
    /// Observe mode: what enforce would have done since the daemon started, by the same reasons.
    pub would_have: BTreeMap<String, WouldHave>,
    /// The members in configuration order.
    pub members: Vec<Member>,
    /// Kinds of traffic with a bound of their own, in configuration order.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
}

/// The fair-share rule of a pool: `"off"`, `"max-min"` or the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FairShare {
    /// No rule: member slots only.
    #[default]
    #[serde(rename = "off")]
    Off,
    /// Max-min: what the light keys leave is shared by the others.
    #[serde(rename = "max-min")]
    MaxMin,
    /// Equal split, congested from this many percent of the capacity (1–100).
    #[serde(untagged)]
    EqualSplit(u8),
}

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Decides and records, changes nothing.
    #[default]
    Observe,
    /// Decides and acts.
    Enforce,
}

/// What enforce would have done, of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WouldHave {
    /// Requests it would have parked.
    pub park: u64,
    /// Requests it would have refused.
    pub refuse: u64,
}

/// One upstream account or backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Name.
    pub name: String,
    /// Slots.
    pub slots: u32,
    /// Slots of those that are kept for re-attach.
    pub reserve: u32,
    /// Leases in flight.
    pub in_flight: u32,
    /// Whether it takes new requests.
    pub state: MemberState,
    /// Seconds until a cool-down ends; `null` unless cooling.
    pub cooling_seconds: Option<f64>,
}

/// Whether a member takes new requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Yes.
    #[default]
    Up,
    /// Not until its cool-down ends.
    Cooling,
    /// Not until it has slots.
    Off,
    /// Not until the operator says so.
    Draining,
}

/// A kind of traffic with a bound of its own in one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Name.
    pub name: String,
    /// Slots it may hold at most; `null` without a bound.
    pub slots: Option<u32>,
    /// Slots it holds.
    pub in_flight: u32,
}

/// Which keys `GET /v1/keys` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysQuery {
    /// Only this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// One key with anything in flight or parked in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The pool.
    pub pool: String,
    /// The keyed hash, 32 hexadecimal digits; `anonymous`: all requests of the pool that name no key.
    pub key: String,
    /// What the proxy calls it, if it says; else what the configuration does.
    pub label: Option<String>,
    /// Its org, 32 hexadecimal digits; `null` without one.
    #[serde(default)]
    pub org: Option<String>,
    /// What the configuration calls the org.
    #[serde(default)]
    pub org_name: Option<String>,
    /// Leases in flight.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// What it may hold while the pool is congested; of a key in an org under max-min, what the org may; `null` without
    /// a rule.
    pub share: Option<u32>,
    /// Weight of its share.
    #[serde(default = "one")]
    pub weight: u32,
    /// Slots it gets whenever one is free, as set.
    #[serde(default)]
    pub floor: u32,
    /// Requests on the node at most, in flight and parked; `null` without a cap of its own.
    #[serde(default)]
    pub cap: Option<u32>,
    /// An operator's override holds, see `GET /v1/overrides`.
    #[serde(default)]
    pub overridden: bool,
    /// An operator has suspended it: every request is refused.
    #[serde(default)]
    pub suspended: bool,
}

fn one() -> u32 {
    1
}

/// One org with anything in flight, parked or suspended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Org {
    /// The keyed hash, 32 hexadecimal digits.
    pub org: String,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// Its class, by its last request or the default; `null` without one.
    pub class: Option<String>,
    /// The class its tier was answered with; `null` if none was asked for or found.
    pub tier: Option<String>,
    /// Seconds for which that holds; `null` if none was answered.
    pub tier_remaining_seconds: Option<f64>,
    /// Requests in flight and parked, in all pools.
    pub counted: u32,
    /// What they may come to; `null` without a cap.
    pub cap: Option<u32>,
    /// Pools it holds or awaits something in.
    pub pools: Vec<OrgPool>,
}

/// One org in one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrgPool {
    /// The pool.
    pub pool: String,
    /// Leases in flight.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// What it may hold while the pool is congested; `null` but under max-min.
    pub share: Option<u32>,
    /// Weight of its share.
    pub weight: u32,
    /// Slots it gets whenever one is free, as set.
    pub floor: u32,
}

/// Which leases `GET /v1/leases` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeasesQuery {
    /// Only this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only leases known to have moved no byte for at least so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
}

/// One lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Lease id, 16 hexadecimal digits; `governorctl` shows it as `l-…`.
    pub lease: String,
    /// The pool.
    pub pool: String,
    /// The keyed hash, 32 hexadecimal digits; `anonymous` for a request without a key.
    pub key: Option<String>,
    /// What the proxy calls the key, if it says.
    pub label: Option<String>,
    /// The member; `null` where it was granted without one.
    pub member: Option<String>,
    /// `ordinary`, `reattach` or `child`.
    pub kind: String,
    /// Its org, 32 hexadecimal digits; `null` without one.
    #[serde(default)]
    pub org: Option<String>,
    /// What the configuration calls the org.
    #[serde(default)]
    pub org_name: Option<String>,
    /// Kind of traffic, where it has a bound of its own.
    #[serde(default)]
    pub traffic: Option<String>,
    /// `critical`, `normal` or `sheddable`.
    #[serde(default)]
    pub priority: String,
    /// Suspended: it holds no slot.
    #[serde(default)]
    pub suspended: bool,
    /// The kernel has closed its client's connection.
    #[serde(default)]
    pub client_gone: bool,
    /// Where in its proxy it was asked for, e.g. `src/chat.rs:42`; `null` where the proxy does not say.
    #[serde(default)]
    pub site: Option<String>,
    /// The session that holds it.
    pub session: u64,
    /// Seconds since it was granted, or resumed last.
    pub age_seconds: f64,
    /// Seconds until it expires unless renewed.
    pub expires_seconds: f64,
    /// Seconds since it last moved bytes; `null` where its holder does not report it.
    pub idle_seconds: Option<f64>,
}
