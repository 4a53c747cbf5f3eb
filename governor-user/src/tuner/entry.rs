//! One listener as the tuner knows it: how it is followed, and what has been said of it. Decides and does nothing.

use super::memory::Kept;
use super::relisten::Socket;
use crate::config::{ListenerPolicy, TunerMode};
use governor_api::{self as api, ListenerName, TunerState};
use governor_engine::time::{Duration, Instant};
use governor_health::backlog::burst::Sample;
use governor_health::backlog::policy::{Stance, Track};
use governor_observation::{ListenerView, Protocol};

/// A listener and all that is remembered of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) track: Track,
    pub(super) name: ListenerName,
    pub(super) socket: Socket,
    pub(super) policy: ListenerPolicy,
    pub(super) somaxconn: Option<u32>,
    pub(super) seen: Instant,
    /// The kernel's table of its namespace had it when it was last read.
    pub(super) is_there: bool,
    /// Where it is, for selectors.
    pub(super) view: ListenerView,
    /// An operator set its mode at run time.
    pub(super) mode_set: bool,
    /// Why no process is seen that holds it; `None` when one is, or none has been looked for.
    pub(super) unseen: Option<String>,
    /// The longest backlog that observing has said it would get.
    pub(super) would: u32,
    /// What was last said of a clamp, and of a failure: each is written down once.
    pub(super) clamped: Option<u32>,
    pub(super) failure: String,
}

impl Entry {
    /// A listener that is seen for the first time in this life; `kept` is what an earlier one knew of it.
    pub(super) fn new(listener: &ListenerView, cookie: u64, backlog: u32, kept: Option<&Kept>, now: Instant) -> Self {
        let track = match kept {
            Some(kept) => Track::resumed(kept.original, kept.set, kept.stood_down, backlog, now),
            None => Track::new(backlog, now),
        };
        Self {
            track,
            name: ListenerName { netns: listener.netns, address: listener.address, port: listener.port, cookie },
            socket: socket(listener),
            policy: ListenerPolicy {
                mode: TunerMode::Off,
                target: 0,
                max: 0,
                max_wait: Duration::ZERO,
                quiet: Duration::ZERO,
            },
            somaxconn: None,
            seen: now,
            is_there: true,
            view: listener.clone(),
            mode_set: false,
            unseen: None,
            would: 0,
            clamped: None,
            failure: String::new(),
        }
    }

    /// Why its backlog cannot be set, as far as that is known.
    pub(super) fn obstacle(&self) -> Option<String> {
        Some(self.failure.clone()).filter(|failure| !failure.is_empty()).or_else(|| self.unseen.clone())
    }

    /// As the control API shows it.
    pub(super) fn view(&self) -> api::TunedListener {
        let track = &self.track;
        api::TunedListener {
            listener: self.name.clone(),
            mode: self.policy.mode.as_str().to_owned(),
            mode_set: self.mode_set,
            obstacle: self.obstacle(),
            state: match track.stance {
                Stance::StoodDown => TunerState::StoodDown,
                Stance::Reverted(_) => TunerState::Reverted,
                Stance::Free if track.set.is_some() => TunerState::Raised,
                Stance::Free => TunerState::Untouched,
            },
            original: track.original,
            backlog: track.held,
            somaxconn: self.somaxconn,
            plan: api::TunerPlan {
                to: track.plan.to,
                wanted: track.plan.wanted,
                limit: track.plan.limit.map(|limit| limit.as_str().to_owned()),
                reason: track.plan.reason.clone(),
            },
        }
    }
}

/// What `listen()` is called on.
pub(super) fn socket(listener: &ListenerView) -> Socket {
    Socket {
        cookie: listener.cookie.filter(|_| listener.protocol == Protocol::Tcp),
        netns: listener.netns,
        inode: listener.inode,
        pids: listener.pids.clone(),
    }
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
