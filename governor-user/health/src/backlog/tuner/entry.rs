//! One listener as the tuner knows it: how it is followed, and what has been said of it. Decides nothing.

use super::io::Socket;
use crate::backlog::burst::Sample;
use crate::backlog::plan::Plan;
use crate::backlog::policy::{Stance, Track};
use crate::backlog::{ListenerPolicy, TunerMode};
use governor_engine::time::Instant;
use governor_observation::{ListenerName, ListenerView, Protocol};
use serde::{Deserialize, Serialize};

/// A listener by its namespace and cookie.
pub type Id = (u64, u64);

/// A listener that is not as its owner left it, or not to be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Inode number of its network namespace.
    pub netns: u64,
    /// Its cookie.
    pub cookie: u64,
    /// What its owner asked for.
    pub original: u32,
    /// What it was raised to.
    pub set: Option<u32>,
    /// It is left to an operator.
    pub stood_down: bool,
}

/// A namespace whose somaxconn was raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedCap {
    /// Its inode number.
    pub netns: u64,
    /// Its cookie, where the kernel reports it: another namespace may get the inode number.
    #[serde(default)]
    pub cookie: Option<u64>,
    /// What it was.
    pub before: u32,
    /// What it was raised to.
    pub after: u32,
}

/// A listener and all that is remembered of it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) track: Track,
    pub(super) policy: ListenerPolicy,
    /// An operator set its mode at run time.
    pub(super) mode_set: bool,
    /// As it was when its row last changed.
    pub(super) view: ListenerView,
    /// Its row in the last observation that has it.
    pub(super) row: usize,
    /// When it was last seen, if it is not in the last observation.
    pub(super) seen: Instant,
    /// The kernel's table of its namespace had it when it was last read, or its namespace could not be read.
    pub(super) is_there: bool,
    /// The longest backlog that observing has said it would get.
    pub(super) would: u32,
    /// What was last said of a clamp, and of a failure: each is recorded once.
    pub(super) clamped: Option<u32>,
    pub(super) failure: String,
}

impl Entry {
    /// A listener that this run sees for the first time; `kept` is what the run before knew of it.
    pub(super) fn new(listener: &ListenerView, backlog: u32, kept: Option<&Kept>, now: Instant) -> Self {
        let track = match kept {
            Some(kept) => Track::resumed(kept.original, kept.set, kept.stood_down, backlog, now),
            None => Track::new(backlog, now),
        };
        Self {
            track,
            policy: ListenerPolicy {
                mode: TunerMode::Off,
                target: 0,
                max: 0,
                max_wait: std::time::Duration::ZERO,
                quiet: std::time::Duration::ZERO,
            },
            mode_set: false,
            view: listener.clone(),
            row: 0,
            seen: now,
            is_there: true,
            would: 0,
            clamped: None,
            failure: String::new(),
        }
    }

    /// Puts a policy in force. A listener that was left out begins with its next sample.
    pub(super) fn obey(&mut self, (policy, mode_set): (ListenerPolicy, bool)) {
        if self.policy.mode == TunerMode::Off && policy.mode != TunerMode::Off {
            self.track.skipped();
        }
        (self.policy, self.mode_set) = (policy, mode_set);
    }

    /// As records name it.
    #[must_use]
    pub fn name(&self) -> ListenerName {
        name(&self.view)
    }

    /// The mode that holds for it, and whether an operator set it at run time.
    #[must_use]
    pub fn mode(&self) -> (TunerMode, bool) {
        (self.policy.mode, self.mode_set)
    }

    /// The backlog that its owner asked for, and the one that the kernel holds, as last known.
    #[must_use]
    pub fn backlogs(&self) -> (u32, u32) {
        (self.track.original, self.track.held)
    }

    /// Whose it is, and whether its backlog is raised.
    #[must_use]
    pub fn stance(&self) -> (Stance, bool) {
        (self.track.stance, self.track.set.is_some())
    }

    /// What the last burst that asked for more room led to.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.track.plan
    }

    /// Why its backlog cannot be set, as far as that is known: what the last attempt met, or that no process is seen
    /// that holds it; `blind` says what the last walk over processes could not see.
    #[must_use]
    pub fn obstacle(&self, blind: Option<&String>) -> Option<String> {
        Some(self.failure.clone()).filter(|failure| !failure.is_empty()).or_else(|| self.unseen(blind))
    }

    /// Why no process is seen that holds it; `None` when one is, or none has been looked for.
    #[must_use]
    pub fn unseen(&self, blind: Option<&String>) -> Option<String> {
        unseen(&self.view, blind)
    }

    /// What `listen()` is called on.
    pub(super) fn socket(&self) -> Socket {
        let view = &self.view;
        Socket {
            cookie: view.cookie.filter(|_| view.protocol == Protocol::Tcp),
            netns: view.netns,
            inode: view.inode,
            pids: view.pids.clone(),
        }
    }
}

/// As records name a listener. Without a cookie nothing is recorded of it.
pub(super) fn name(listener: &ListenerView) -> ListenerName {
    let ListenerView { netns, address, port, cookie, .. } = *listener;
    ListenerName { netns, address, port, cookie: cookie.unwrap_or(0) }
}

/// Why no holder of a listener is seen, given what the last walk could not see; `None` where a holder is known.
pub(super) fn unseen(listener: &ListenerView, blind: Option<&String>) -> Option<String> {
    blind.filter(|_| listener.pids.is_empty() && listener.inode.is_some()).cloned()
}

/// What one observation says of its queue.
pub(super) fn sample(listener: &ListenerView, backlog: u32, now: Instant) -> Sample {
    Sample {
        at: now,
        backlog,
        depth: listener.depth,
        peak: listener.depth_peak,
        enqueued: listener.enqueued_total,
        accepted: listener.accepted_total,
        overflows: listener.overflows_total,
    }
}

/// Whether two rows of one place say the same, as far as backlogs go. Ages and what counts by itself are left out.
pub(super) fn is_same(one: &ListenerView, other: &ListenerView) -> bool {
    one.cookie == other.cookie
        && one.port == other.port
        && one.netns == other.netns
        && one.depth == other.depth
        && one.backlog == other.backlog
        && one.depth_peak == other.depth_peak
        && one.enqueued_total == other.enqueued_total
        && one.accepted_total == other.accepted_total
        && one.overflows_total == other.overflows_total
        && one.inode == other.inode
        && one.protocol == other.protocol
        && one.address == other.address
        && one.pids == other.pids
        && one.owner_cgroup == other.owner_cgroup
}
