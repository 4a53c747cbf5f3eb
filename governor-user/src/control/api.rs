//! The JSON of the control API: one type per body, shared by the daemon that writes them and `governorctl` that reads
//! them. Types only; knows no HTTP, no engine, no rendering.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/listeners` | [`ListenersQuery`] | array of [`ListenerView`]; of [`ListenerGroup`] with `groups=1` |
//! | `GET /v1/cgroups` | | array of [`CgroupView`]; 503 where counts per cgroup are unavailable |
//! | `GET /v1/namespaces` | | array of [`NamespaceView`] |
//! | `GET /v1/pools` | | array of [`Pool`] |
//! | `GET /v1/keys` | [`KeysQuery`] | array of [`Key`] |
//! | `GET /v1/leases` | [`LeasesQuery`] | array of [`Lease`] |
//! | `GET /v1/explain/{id}` | | [`Decision`]; 404 for an unknown id |
//! | `GET /v1/advise` | [`AdviceQuery`] | [`Advice`] |
//! | `GET /v1/config` | | array of [`ConfigEntry`] |
//! | `PUT /v1/settings/{key}` | [`Setting`] | [`SettingChange`] |
//! | `DELETE /v1/settings/{key}` | | [`SettingChange`] |
//! | `POST /v1/bypass` | [`BypassRequest`] | [`Bypass`] |
//! | `GET /v1/doctor` | | array of [`Check`] |
//!
//! Every 4xx and 5xx answer is a [`Failure`]. Durations are seconds, ids of leases, decisions and keys are hexadecimal
//! text (they do not fit a JSON number), and what is not known is `null`, never 0. Readers skip fields they do not
//! know, so fields may be added; none changes its meaning.

pub use crate::kernel::view::{
    Basis, CgroupView, Conntrack, Family, Finding, FindingKind, Health, HookCandidate, HookEvent, HookView,
    ListenerGroup, ListenerView, NamespaceCounters, NamespaceView, Protocol, Tier,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where the daemon listens for control requests unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/governor/control.sock";

/// The daemon at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Changes with every start; the upper bits of lease and decision ids.
    pub epoch: u32,
    /// How the kernel is observed.
    pub tier: Tier,
    /// What runs with less than asked for, one line each; empty when all is well.
    pub degraded: Vec<String>,
    /// `normal`, `elevated`, `high` or `overloaded`.
    pub level: String,
    /// 0–1000 ‰.
    pub pressure: u16,
    /// What causes the pressure, e.g. `accept_fill`.
    pub causes: Vec<String>,
    /// Whether every request passes at once.
    pub bypass: Bypass,
    /// The daemon grants nothing new and is about to stop.
    pub draining: bool,
    /// Connected proxies, by id.
    pub sessions: Vec<Session>,
    /// Limits of the node.
    pub node: Node,
    /// The pools in configuration order.
    pub pools: Vec<PoolSummary>,
    /// Health of the kernel plane.
    pub kernel: Health,
    /// What the configuration asks for that cannot work as written, one line each.
    pub warnings: Vec<String>,
}

/// The bypass switch: while on, every `Acquire` passes at once, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bypass {
    /// On or off.
    pub on: bool,
    /// Seconds until it ends by itself; `null` when off or without end.
    pub remaining_seconds: Option<f64>,
}

/// One connected proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Session id.
    pub id: u64,
    /// Name it gave itself.
    pub name: String,
    /// Its process, as the kernel tells; `null` for a peer in a foreign pid namespace.
    pub pid: Option<u32>,
    /// Its user, as the kernel tells.
    pub uid: u32,
    /// Leases it holds.
    pub leases: u32,
}

/// Limits of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Counted requests, granted or parked.
    pub counted: u32,
    /// At most so many; 0 means no cap.
    pub cap: u32,
    /// Parked requests over all pools.
    pub parked: u32,
    /// At most so many.
    pub max_parked: u32,
}

/// One pool in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Name.
    pub name: String,
    /// Ordinary slots of the members that count now.
    pub capacity: u32,
    /// Leases in flight, on all members.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// At or over its threshold now.
    pub congested: bool,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Ordinary slots of the members that count now.
    pub capacity: u32,
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
    /// Grants since the daemon started.
    pub granted_total: u64,
    /// Refusals since the daemon started, by reason: `fair_share`, `pool_exhausted`, `all_cooling`, `node_cap`,
    /// `key_queue_full`, `queue_full`. Reasons that never happened are absent.
    pub shed_total: BTreeMap<String, u64>,
    /// Observe mode: what enforce would have done since the daemon started, by the same reasons.
    pub would_have: BTreeMap<String, WouldHave>,
    /// The members in configuration order.
    pub members: Vec<Member>,
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
    /// Not until the operator says so.
    Draining,
}

/// How `GET /v1/listeners` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenersQuery {
    /// 1: sockets that share an address and port as one; 0 or absent: each socket.
    #[serde(default)]
    pub groups: u8,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The pool.
    pub pool: String,
    /// The keyed hash, 32 hexadecimal digits.
    pub key: String,
    /// What the proxy calls it, if it says.
    pub label: Option<String>,
    /// Leases in flight.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// What it may hold while the pool is congested; `null` without a rule.
    pub share: Option<u32>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Lease id, 16 hexadecimal digits.
    pub lease: String,
    /// The pool.
    pub pool: String,
    /// The keyed hash, 32 hexadecimal digits; `null` for a request without a key.
    pub key: Option<String>,
    /// What the proxy calls the key, if it says.
    pub label: Option<String>,
    /// The member; `null` where it was granted without one.
    pub member: Option<String>,
    /// `ordinary` or `reattach`.
    pub kind: String,
    /// The session that holds it.
    pub session: u64,
    /// Seconds since it was granted.
    pub age_seconds: f64,
    /// Seconds until it expires unless renewed.
    pub expires_seconds: f64,
    /// Seconds since it last moved bytes; `null` where its holder does not tell.
    pub idle_seconds: Option<f64>,
}

/// A refusal or delay, in numbers and in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Decision id, 16 hexadecimal digits.
    pub id: String,
    /// Seconds since it was made.
    pub age_seconds: f64,
    /// The session that asked.
    pub session: u64,
    /// The pool.
    pub pool: String,
    /// The keyed hash; `null` for a request without a key.
    pub key: Option<String>,
    /// What the proxy calls the key, if it says.
    pub label: Option<String>,
    /// What it came to.
    pub outcome: Outcome,
    /// Which rule decided, as in [`Pool::shed_total`].
    pub reason: String,
    /// Which level refused: `key`, `org`, `pool`, `node`, `fleet` or `upstream`.
    pub origin: String,
    /// HTTP status: 429 or 529.
    pub status: u16,
    /// When the client was told to try again, in seconds.
    pub retry_after_seconds: f64,
    /// How long the request was parked before, in seconds.
    pub waited_seconds: f64,
    /// The numbers it was decided on.
    pub numbers: Numbers,
    /// One or two plain sentences, see [`crate::control::explain`].
    pub explanation: String,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Refused.
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
    /// What the key may hold while the pool is congested.
    pub share: u32,
    /// In flight of everybody.
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

/// One effective setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// Dotted key, e.g. `pools.chat.fair_share`.
    pub key: String,
    /// Its value, as the file would write it.
    pub value: Value,
    /// Which layer it comes from.
    pub origin: Origin,
    /// Where in that layer: file and line, variable name, or when it was set.
    pub detail: Option<String>,
}

/// Layer of the configuration; later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The default.
    BuiltIn,
    /// The configuration file.
    File,
    /// An environment variable of the daemon.
    Environment,
    /// Set at run time.
    Override,
}

/// Asks for a run-time override.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The value, as the file would write it.
    pub value: Value,
}

/// A run-time override was set or removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Dotted key.
    pub key: String,
    /// The value in effect now.
    pub value: Value,
    /// Where it comes from now.
    pub origin: Origin,
    /// The value in effect before.
    pub previous: Value,
}

/// Asks to switch the bypass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BypassRequest {
    /// On or off.
    pub on: bool,
    /// Switch off by itself after so many seconds; `null` or absent means without end.
    #[serde(default)]
    pub for_seconds: Option<u64>,
}

/// One finding of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, e.g. `kernel BTF`.
    pub name: String,
    /// How it is.
    pub status: CheckStatus,
    /// What was found.
    pub detail: String,
    /// What to do about it; `null` when nothing needs doing.
    pub fix: Option<String>,
    /// The hook it is about, with everything that was tried; left out for all other findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookView>,
}

/// How a [`Check`] came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// Works, with less than could be had.
    Warn,
    /// Does not work.
    Fail,
}

/// Body of every 4xx and 5xx answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What is wrong, in one sentence.
    pub error: String,
    /// What to do about it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
