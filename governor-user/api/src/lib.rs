//! The JSON of the control API: one type per body, shared by the daemon that writes them and `governorctl` that reads
//! them. Types only; knows no HTTP, no engine, no rendering.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/listeners` | [`ListenersQuery`] | array of [`ListenerRow`]; of [`ListenerGroup`] with `groups=1` |
//! | `GET /v1/verdicts` | [`VerdictsQuery`] | array of [`ListenerVerdict`]; 404 where none is at that place |
//! | `GET /v1/listeners/closed` | | array of [`ClosedListeners`] |
//! | `GET /v1/cgroups` | | array of [`CgroupView`]; 503 where counts per cgroup are unavailable |
//! | `GET /v1/namespaces` | | array of [`NamespaceView`] |
//! | `GET /v1/pools` | | array of [`Pool`] |
//! | `GET /v1/members` | [`MembersQuery`] | array of [`MemberRow`] |
//! | `POST /v1/members/{pool}/{member}` | [`MemberRequest`] | [`Warned`] [`MemberChange`] |
//! | `GET /v1/drain` | | [`Drain`] |
//! | `POST /v1/drain` | [`DrainRequest`] | [`Warned`] [`Drain`] |
//! | `GET /v1/keys` | [`KeysQuery`] | array of [`Key`] |
//! | `GET /v1/orgs` | | array of [`Org`] |
//! | `GET /v1/leases` | [`LeasesQuery`] | array of [`Lease`] |
//! | `GET /v1/leases/{id}` | | [`Lease`]; 404 for one that is not held |
//! | `GET /v1/refusals` | [`RefusalsQuery`] | [`Refusals`], the newest first |
//! | `GET /v1/explain/{id}` | | [`Decision`]; 404 for an unknown id |
//! | `GET /v1/advise` | [`AdviceQuery`] | [`Advice`] |
//! | `GET /v1/config` | | array of [`ConfigEntry`] |
//! | `POST /v1/reload` | | [`Reload`]; 400 where the configuration is not valid, and nothing changed |
//! | `PUT /v1/settings/{key}` | [`Setting`] | [`Warned`] [`SettingChange`] |
//! | `DELETE /v1/settings/{key}` | | [`Warned`] [`SettingChange`] |
//! | `GET /v1/overrides` | | array of [`KeyOverride`] |
//! | `PUT /v1/overrides/{key}` | [`KeyOverrideRequest`] | [`Warned`] [`KeyOverrideChange`] |
//! | `DELETE /v1/overrides/{key}` | | [`Warned`] [`KeyOverrideChange`] |
//! | `GET /v1/events` | [`EventsQuery`] | array of [`Event`], oldest first |
//! | `POST /v1/bypass` | [`BypassRequest`] | [`Warned`] [`Bypass`] |
//! | `GET /v1/tuner` | | [`Tuner`] |
//! | `GET /v1/tuner/journal` | [`TunerJournalQuery`] | array of [`TunerRecord`], oldest first |
//! | `POST /v1/tuner/mode` | [`TunerSet`] | [`TunerOrdered`]; for single listeners, over the configuration |
//! | `POST /v1/tuner/clear` | [`TunerWhich`] | [`TunerOrdered`]; 404 if nothing was set for exactly these |
//! | `POST /v1/tuner/restore` | [`TunerWhich`] | [`TunerOrdered`]; 404 if the tuner looks at none of them |
//! | `POST /v1/tuner/resume` | [`TunerResume`] | [`TunerResumed`]; 404 if none of them was left alone |
//! | `GET /v1/doctor` | | array of [`Check`] |
//!
//! Every 4xx and 5xx answer is a [`Failure`]. Durations are seconds, ids of leases, decisions and keys are hexadecimal
//! text (they do not fit a JSON number), and what is not known is `null`, never 0. Readers skip fields they do not
//! know, so fields may be added; none changes its meaning.

mod admission;
mod decisions;
mod findings;
mod keys;
mod listeners;
mod members;
mod refusals;
mod settings;
mod tuner;
mod verdicts;

pub use admission::{
    FairShare, Key, KeysQuery, Lease, LeasesQuery, Member, MemberState, Mode, Org, OrgPool, Pool, Traffic, WouldHave,
};
pub use decisions::{Advice, AdviceQuery, Decision, Numbers, Outcome, PoolAdvice, SettingAdvice};
pub use findings::{HealthFinding, Severity};
pub use governor_observation::{
    Basis, CgroupView, ClosedListeners, Conntrack, Family, Finding, FindingKind, HalfOpen, Health, HookCandidate,
    HookEvent, HookView, ListenerGroup, ListenerView, NamespaceCounters, NamespaceView, PinState, Protocol,
    SojournBucket, SojournView, Tier,
};
pub use keys::{Event, EventsQuery, KeyField, KeyOverride, KeyOverrideChange, KeyOverrideRequest, KeySetting};
pub use listeners::ListenerRow;
pub use members::{Drain, DrainRequest, MemberChange, MemberOrder, MemberRequest, MemberRow, MembersQuery};
pub use refusals::{RefusalCount, Refusals, RefusalsQuery};
use serde::{Deserialize, Serialize};
pub use settings::{
    BypassRequest, ConfigEntry, Origin, PendingValue, Reload, ReloadChange, ReloadFailure, Setting, SettingChange,
};
pub use tuner::{
    HoldersUnknown, ListenerName, TunedListener, Tuner, TunerAction, TunerJournalQuery, TunerOrdered, TunerOutcome,
    TunerPlan, TunerRecord, TunerResume, TunerResumed, TunerSet, TunerSetting, TunerState, TunerWhich,
};
pub use verdicts::{Descriptors, Evidence, ListenerVerdict, Monitor, PoolWork, Troubled, Verdict, VerdictsQuery, Work};

/// Where the daemon listens for control requests unless configured otherwise.
pub const DEFAULT_SOCKET: &str = "/run/governor/control.sock";

/// The daemon at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What needs attention, problems first; empty when all is well.
    #[serde(default)]
    pub findings: Vec<HealthFinding>,
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
    /// The level of overload that refuses work, by `overload.mode`: over what may cost admitted work its slot.
    #[serde(default)]
    pub shed_level: Option<String>,
    /// Whether it does refuse or only records.
    #[serde(default)]
    pub shed_mode: Mode,
    /// What causes the pressure, e.g. `accept_fill`.
    pub causes: Vec<String>,
    /// Every monitor of overload that knows its measurement.
    #[serde(default)]
    pub monitors: Vec<Monitor>,
    /// Listeners whose verdict is not `ok`, those that feed the level first; at most 20.
    #[serde(default)]
    pub troubled: Vec<Troubled>,
    /// Whether every request passes at once.
    pub bypass: Bypass,
    /// The daemon grants nothing new and is about to stop.
    pub draining: bool,
    /// An operator drains the node: new requests are refused, what runs goes on.
    #[serde(default)]
    pub drain: Drain,
    /// Connected proxies, by id.
    pub sessions: Vec<Session>,
    /// Leases of the daemon's previous run that count until their holders are back, for some seconds after its start.
    #[serde(default)]
    pub awaited: u32,
    /// Leases that their holders lost since the daemon started, by where they were asked for; the most first.
    #[serde(default)]
    pub lost: Vec<LostLeases>,
    /// Limits of the node.
    pub node: Node,
    /// The pools in configuration order.
    pub pools: Vec<PoolSummary>,
    /// Health of the kernel plane.
    pub kernel: Health,
    /// Whether the kernel goes on counting when the daemon dies.
    #[serde(default)]
    pub pins: Pins,
    /// The state folder.
    #[serde(default)]
    pub state: StateHealth,
    /// What operators have overridden.
    #[serde(default)]
    pub overrides: Overrides,
    /// The last reload, if it changed nothing because the configuration was not valid.
    #[serde(default)]
    pub reload_failure: Option<ReloadFailure>,
    /// Settings whose newest value waits for a restart, by key.
    #[serde(default)]
    pub pending: Vec<String>,
    /// What the configuration asks for that cannot work as written, one line each.
    pub warnings: Vec<String>,
}

/// Whether the programs in the kernel outlive the daemon, and since when they count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pins {
    /// `adopted`: this daemon goes on with the counts of an earlier one.
    pub state: PinState,
    /// Folder of the pins; `null` unless something is pinned.
    pub folder: Option<String>,
    /// Seconds since the programs began to count, in whichever run of the daemon; `null` unless something is pinned.
    pub counting_seconds: Option<f64>,
    /// Why nothing is pinned, or why counting started clean; empty if there is nothing to say.
    pub note: String,
}

/// An answer to an order that is in force, and what went wrong beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warned<T> {
    /// The answer itself.
    #[serde(flatten)]
    pub answer: T,
    /// Why a restart undoes it; absent where it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The state folder: what a restart would lose, and what the last start could not use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateHealth {
    /// Files whose newest content is in force and not on disk.
    pub unstored: Vec<UnstoredFile>,
    /// Files that were not used, by the daemon since its start.
    pub damaged: Vec<DamagedFile>,
}

/// A file that the disk does not take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnstoredFile {
    /// Its name in the state folder.
    pub file: String,
    /// What the system said.
    pub error: String,
    /// For how long.
    pub seconds: f64,
}

/// A file or folder that was moved aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Its name in the state folder.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
    /// Its name now; `null`: it could not be moved.
    pub aside: Option<String>,
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
    /// Its process, as the kernel reports it; `null` for a peer in a foreign pid namespace.
    pub pid: Option<u32>,
    /// Its user, as the kernel reports it.
    pub uid: u32,
    /// Leases it holds.
    pub leases: u32,
}

/// Leases that were neither released nor gone with their proxy: leaks of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLeases {
    /// Where in the proxy they were asked for; `null` for those whose proxy did not say.
    pub site: Option<String>,
    /// Not renewed within their time.
    pub expired: u64,
    /// Still held some time after their client was gone.
    pub reclaimed: u64,
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
    /// Its members by state.
    #[serde(default)]
    pub members: MemberCounts,
    /// The rule and its mode.
    pub fair_share: FairShare,
    /// See `fair_share`.
    pub mode: Mode,
    /// Grants in the last minute.
    #[serde(default)]
    pub granted_last_minute: u64,
    /// Refusals in the last minute, whatever their reason.
    #[serde(default)]
    pub refused_last_minute: u64,
}

/// Members of one pool by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCounts {
    /// Take requests.
    pub up: usize,
    /// Failed and rest.
    pub cooling: usize,
    /// Take nothing new.
    pub draining: usize,
    /// Have no slots.
    pub off: usize,
}

/// What is in force because an operator said so, and not by the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Settings.
    pub settings: usize,
    /// Keys.
    pub keys: usize,
}

/// How `GET /v1/listeners` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenersQuery {
    /// 1: sockets that share an address and port as one; 0 or absent: each socket.
    #[serde(default)]
    pub groups: u8,
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
