//! What is seen of the machine: the kernel plane publishes one immutable [`Observation`] per tick, and [`vitals`] are
//! read beside it. Plain data; knows no BPF, no netlink. A value that is not known is `None`, never 0.

mod hook;
mod listener;
mod namespace;
pub mod vitals;
pub mod wording;

pub use hook::{HookCandidate, HookEvent, HookView};
pub use listener::{
    ClosedListeners, Family, ListenerGroup, ListenerName, ListenerView, Protocol, SojournBucket, SojournView,
};
pub use namespace::{Conntrack, Finding, FindingKind, HalfOpen, NamespaceCounters, NamespaceView};

use serde::{Deserialize, Serialize};
use std::fmt;
use wording::counted;

/// Everything seen at one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Monotonic nanoseconds when it was taken.
    pub taken_ns: u64,
    /// The tier in use.
    pub tier: Tier,
    /// Why it is not a better one, one line each; empty on the best tier asked for.
    pub degraded: Vec<String>,
    /// Listeners, by (netns, port, address, cookie).
    pub listeners: Vec<ListenerView>,
    /// What became of listeners that closed, by (netns, port, address). Empty where closings are not seen.
    pub closed: Vec<ClosedListeners>,
    /// Cgroups with open connections, by path. `None`: per-cgroup counts are unavailable, see `degraded`.
    pub cgroups: Option<Vec<CgroupView>>,
    /// Network namespaces, by inode number.
    pub namespaces: Vec<NamespaceView>,
    /// Health of the plane itself.
    pub health: Health,
    /// Hooks and what became of them, for `doctor`.
    pub hooks: Vec<HookView>,
    /// Whether counting outlives the daemon.
    #[serde(default)]
    pub pins: PinsView,
    /// Sources that worked and fail now. Listeners that no source reports are not listed: they are unknown.
    #[serde(default)]
    pub failing: Vec<SourceView>,
    /// Inode numbers of the namespaces whose listeners are unknown now.
    #[serde(default)]
    pub unread: Vec<u64>,
    /// The last walk over processes.
    #[serde(default)]
    pub walk: ProcessWalk,
}

/// The last walk over `/proc`: who holds the listeners, and what it could not see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessWalk {
    /// Tasks and descriptors it looked at.
    pub looked_at: usize,
    /// How long it took.
    pub seconds: f64,
    /// Processes that could not be read for want of rights: the listeners that they hold show no pids.
    pub unreadable: usize,
    /// Which rights are missing; `None` while every process can be read.
    pub unreadable_reason: Option<String>,
    /// Processes that were left out, whole or in part, because their user's budget was used up, by user.
    pub left_out: Vec<LeftOutProcesses>,
}

/// Processes of one user that a walk left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutProcesses {
    /// The user.
    pub uid: u32,
    /// How many.
    pub processes: usize,
}

impl ProcessWalk {
    /// Why no process may be known to hold a listener, as a clause; `None` when every process was looked at.
    #[must_use]
    pub fn blind(&self) -> Option<String> {
        let unreadable = self.unreadable_reason.as_ref().map(|reason| {
            let many = counted(self.unreadable, "process cannot be read", "processes cannot be read");
            format!("{many} ({reason})")
        });
        let left_out = self.left_out.iter().map(|of| {
            let many = counted(of.processes, "process of user", "processes of user");
            format!("{many} {} were left out: too many descriptors", of.uid)
        });
        let reasons: Vec<String> = unreadable.into_iter().chain(left_out).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// A source that worked and fails now, for longer than a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// Stable name, such as `socket_tables`.
    pub source: String,
    /// For how long.
    pub failing_seconds: f64,
    /// In how many network namespaces; 0 for a source of the whole host.
    pub namespaces: usize,
    /// What cannot be done, as a clause.
    pub problem: String,
    /// What the kernel said last.
    pub reason: String,
    /// What that means for what is shown, as a clause.
    pub effect: String,
}

/// How the kernel is observed (design: tiers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Depth only.
    #[default]
    Procfs,
    /// Depth, backlog, drops and connections by polling.
    Netlink,
    /// BTF tracepoints: exact depth, peak and connections.
    Tracepoint,
    /// fentry/fexit: everything.
    Trampoline,
}

impl Tier {
    /// Stable lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Procfs => "procfs",
            Self::Netlink => "netlink",
            Self::Tracepoint => "tracepoint",
            Self::Trampoline => "trampoline",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the programs go on counting when the daemon dies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsView {
    /// What became of it.
    pub state: PinState,
    /// The folder of the pins; `None` unless something is pinned.
    pub folder: Option<String>,
    /// Monotonic nanoseconds when the programs began to count, in whichever run of the daemon; `None` unless something
    /// is pinned.
    pub counting_since_ns: Option<u64>,
    /// Why nothing is pinned, or why counting started clean though an earlier start had left something; else empty.
    pub note: String,
}

/// What became of pinning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// Not asked for, or nothing to pin on this tier.
    #[default]
    Off,
    /// It does not work here: the note says why. Counts end with the daemon.
    Unavailable,
    /// Everything is pinned by this daemon.
    Pinned,
    /// This daemon took over what an earlier one had pinned and goes on with its counts.
    Adopted,
}

impl PinState {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Unavailable => "unavailable",
            Self::Pinned => "pinned",
            Self::Adopted => "adopted",
        }
    }
}

/// Open connections of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupView {
    /// cgroup-v2 id (inode number of its folder).
    pub id: u64,
    /// Path below the v2 root; `None` when the folder is gone.
    pub path: Option<String>,
    /// Accepted or acceptable connections open now.
    pub inbound: u64,
    /// Connections it opened itself.
    pub outbound: u64,
    /// Whose cgroup `inbound` counts under.
    pub inbound_basis: Basis,
    /// Where that is the acceptor's: open connections of the listeners that this cgroup created, queued ones included
    /// and the cgroup that accepted them. Polled no more often than audits. `None` where `inbound` counts under the
    /// owner anyway.
    pub inbound_owned: Option<u64>,
}

/// Whose cgroup an inbound connection counts under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The creator of the listener (no accept event on this tier).
    Owner,
    /// The task that accepted.
    Acceptor,
}

/// Health of the plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Ring-buffer events lost, counted in the kernel.
    pub lost_events: u64,
    /// Sockets or listeners that no map entry could be made for.
    pub untracked: u64,
    /// Absolute difference repaired by audits since start; must stay 0.
    pub drift: u64,
    /// Audits completed.
    pub audits: u64,
    /// Audits that failed or were interrupted (never read as "no sockets").
    pub audits_failed: u64,
}
