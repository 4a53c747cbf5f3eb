//! How each event is observed: what was tried, what fires, and what is not known without it.

use super::Tier;
use serde::{Deserialize, Serialize};

/// What a hook is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A socket begins to listen.
    Listen,
    /// A connection enters an accept queue.
    Enqueue,
    /// A task takes one out.
    Accept,
    /// A connection or listener closes.
    Close,
    /// A SYN is refused because the queue is full.
    OverflowSyn,
    /// The last packet of a handshake is refused because the queue is full.
    OverflowAck,
    /// Connections are counted per cgroup.
    Connections,
    /// Sockets are visited: those that existed before are counted, and counts are held against what is open.
    Scan,
    /// The oldest connection in each accept queue is looked for.
    QueueAge,
    /// Depth and backlog as the kernel holds them now.
    Table,
}

impl HookEvent {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Enqueue => "enqueue",
            Self::Accept => "accept",
            Self::Close => "close",
            Self::OverflowSyn => "overflow_syn",
            Self::OverflowAck => "overflow_ack",
            Self::Connections => "connections",
            Self::Scan => "scan",
            Self::QueueAge => "queue_age",
            Self::Table => "table",
        }
    }
}

/// How one event is observed, or a program that is not governor's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookView {
    /// What it is for; `None` for a program that is not governor's.
    pub event: Option<HookEvent>,
    /// The same in words.
    pub purpose: String,
    /// Kernel name of what fires, e.g. `tp_btf/sk_data_ready`; of the first candidate where nothing does.
    pub hook: String,
    /// Attached and counted in the self-test.
    pub active: bool,
    /// Why not, or what is lost.
    pub note: String,
    /// Everything that was tried, best first, down to the one that fires.
    pub candidates: Vec<HookCandidate>,
    /// What is not known without it.
    pub lost_without: String,
}

impl HookView {
    /// The tier of the candidate that fires; `None` when none does, and for a program that is not governor's.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        self.candidates.iter().find(|candidate| candidate.fires).map(|candidate| candidate.tier)
    }
}

/// One way to observe an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCandidate {
    /// Kernel names, e.g. `fentry/__inet_accept`.
    pub hook: String,
    /// The tier that it belongs to.
    pub tier: Tier,
    /// It is attached and counted in the self-test.
    pub fires: bool,
    /// Why it does not; empty if it does.
    pub reason: String,
}
