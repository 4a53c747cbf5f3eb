//! What the tuner does about backlogs, what it did, and what it would do.

pub use governor_health::backlog::TunerAction;
pub use governor_observation::ListenerName;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The tuner now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuner {
    /// Mode for listeners without one of their own: `off`, `observe` or `enforce`.
    pub mode: String,
    /// What a stop does with raised backlogs: `keep` or `restore`.
    pub at_exit: String,
    /// Why nothing can be tuned here, e.g. a tier that does not know backlogs; `null` when it can.
    pub unavailable: Option<String>,
    /// Every listener it looks at, by (netns, port, address, cookie). One that closed is not among them.
    pub listeners: Vec<TunedListener>,
    /// What operators set for single listeners at run time, the oldest first.
    #[serde(default)]
    pub settings: Vec<TunerSetting>,
    /// Listeners of which no process is known that holds them, and why: these cannot be tuned. `null` where every
    /// process could be looked at.
    #[serde(default)]
    pub holders_unknown: Option<HoldersUnknown>,
}

/// Listeners that cannot be tuned because no process is known to hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldersUnknown {
    /// How many.
    pub listeners: usize,
    /// Why, with the right that is missing.
    pub reason: String,
}

/// Which listeners: those that every given part fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunerWhich {
    /// `0.0.0.0:443` or `[::]:443`; `:443` on any address; `cookie:4711`, one socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// In this network namespace, by inode number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
    /// Created in this cgroup or below it, by its path below the v2 root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Held by this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl fmt::Display for TunerWhich {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.listener.as_deref().unwrap_or("all listeners"))?;
        if let Some(netns) = self.netns {
            write!(f, " in network namespace {netns}")?;
        }
        if let Some(cgroup) = &self.cgroup {
            write!(f, " of cgroup {cgroup}")?;
        }
        if let Some(pid) = self.pid {
            write!(f, " of process {pid}")?;
        }
        Ok(())
    }
}

/// A mode that an operator set at run time, over the configuration. Of several that fit a listener the most precise
/// holds: a socket before an address, before a port, before a process, a cgroup and a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerSetting {
    /// For which listeners.
    pub which: TunerWhich,
    /// `enforce` or `observe`.
    pub mode: String,
    /// Who set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
}

/// Sets a mode for single listeners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunerSet {
    /// For which.
    pub which: TunerWhich,
    /// `enforce` or `observe`.
    pub mode: String,
}

/// What became of an order for single listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerOrdered {
    /// The setting as it was; `null` where there was none.
    #[serde(default)]
    pub before: Option<TunerSetting>,
    /// Listeners that are there now and that the order changed, with what became of each.
    pub listeners: Vec<TunerOutcome>,
    /// Why nothing is tuned here now, whatever the order; `null` when backlogs can be tuned.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// Why a restart undoes it; `null` where it is kept.
    #[serde(default)]
    pub warning: Option<String>,
}

/// One listener after an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerOutcome {
    /// Which.
    #[serde(flatten)]
    pub listener: ListenerName,
    /// The mode that holds for it now.
    pub mode: String,
    /// Its backlog before the order.
    pub before: u32,
    /// Its backlog now.
    pub after: u32,
    /// Why its backlog was not restored, or cannot be raised in mode `enforce`; `null` while nothing prevents it.
    #[serde(default)]
    pub failure: Option<String>,
}

/// One listener as the tuner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedListener {
    /// Which.
    #[serde(flatten)]
    pub listener: ListenerName,
    /// Mode that holds for it.
    pub mode: String,
    /// An operator set the mode at run time.
    #[serde(default)]
    pub mode_set: bool,
    /// Whose it is now.
    pub state: TunerState,
    /// The backlog its owner asked for.
    pub original: u32,
    /// The backlog the kernel holds for it.
    pub backlog: u32,
    /// `net.core.somaxconn` of its namespace; `null`: unknown.
    pub somaxconn: Option<u32>,
    /// What the last burst that asked for more room leads to.
    pub plan: TunerPlan,
    /// Why its backlog cannot be set: what the last attempt met, or that no process is seen that holds it. `null` while
    /// nothing is known to prevent it.
    #[serde(default)]
    pub obstacle: Option<String>,
}

/// Whose a listener's backlog is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunerState {
    /// As its owner asked.
    Untouched,
    /// Raised by the tuner.
    Raised,
    /// Its application called `listen()` with the first value again, as a reload does.
    Reverted,
    /// Left as another process or an operator set it, until `tune resume`.
    StoodDown,
}

impl TunerState {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Raised => "raised",
            Self::Reverted => "reverted",
            Self::StoodDown => "stood_down",
        }
    }
}

/// What should be done about a backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerPlan {
    /// The backlog to give it; `null`: leave it as it is.
    pub to: Option<u32>,
    /// What it would get without bounds; `null` when more room would not help.
    pub wanted: Option<u32>,
    /// The bound that decided: `rate`, `somaxconn`, `memory` or `max`.
    pub limit: Option<String>,
    /// Why; empty while no burst has asked for more room.
    pub reason: String,
}

/// One line of the tuner's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerRecord {
    /// When, RFC 3339.
    pub at: String,
    /// When, in seconds since 1970.
    pub at_seconds: u64,
    /// Which listener.
    #[serde(flatten)]
    pub listener: ListenerName,
    /// What was done.
    pub action: TunerAction,
    /// Who; `governord` for what it did by itself.
    pub by: String,
    /// The number before: a backlog, or `somaxconn`.
    pub before: u32,
    /// The number after, as the kernel says; in observe mode, what it would be.
    pub after: u32,
    /// What would have been done without bounds.
    pub wanted: Option<u32>,
    /// The bound that decided.
    pub limit: Option<String>,
    /// The process through which it was done.
    pub pid: Option<u32>,
    /// Why.
    pub reason: String,
}

/// Which records `GET /v1/tuner/journal` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunerJournalQuery {
    /// Of the last so many seconds.
    pub last_seconds: u64,
}

/// Gives listeners that the tuner left alone back to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunerResume {
    /// Those on this address and port, `:port`, or `cookie:4711`; `null`: all.
    #[serde(default)]
    pub listener: Option<String>,
    /// Only those in this network namespace, by inode number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
    /// Only those of this cgroup or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Only those that this process holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl From<TunerResume> for TunerWhich {
    fn from(resume: TunerResume) -> Self {
        let TunerResume { listener, netns, cgroup, pid } = resume;
        Self { listener, netns, cgroup, pid }
    }
}

/// What [`TunerResume`] came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunerResumed {
    /// The listeners that are tuned again.
    pub listeners: Vec<ListenerName>,
}
