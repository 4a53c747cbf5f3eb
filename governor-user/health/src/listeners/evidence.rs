//! What is known of one listener when it is judged: numbers only, of now and of the last seconds. Plain data; a value
//! that is not known is `None`, never 0.

use governor_engine::time::Duration;
use governor_observation::vitals::Descriptors;
use governor_observation::{Conntrack, NamespaceCounters};
use serde::{Deserialize, Serialize};

/// Everything a [verdict](crate::listeners::verdict) is made of, and what the tuner decides on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Connections in the accept queue now.
    pub depth: u32,
    /// Its limit; the queue holds one more.
    pub backlog: Option<u32>,
    /// The namespace's `net.core.somaxconn`: no backlog is longer.
    pub somaxconn: Option<u32>,
    /// Of `depth`, those whose client has gone.
    pub abandoned: Option<u32>,
    /// How far back the counts reach, at most 10 s.
    pub window_seconds: f64,
    /// Deepest the queue was in the window.
    pub depth_max: u32,
    /// Connections that entered it in the window.
    pub enqueued: Option<u64>,
    /// Connections that left it by accept in the window.
    pub accepted: Option<u64>,
    /// Packets refused in the window because it was full: attempts, not clients.
    pub overflows: Option<u64>,
    /// The same per second, over the last one or two. On the procfs tier those of the whole namespace in the last 10 s.
    pub overflow_rate: Option<f64>,
    /// Accepts per second while something waited; `None` below five accepts. Too low where bursts are shorter than the
    /// time between observations, never too high.
    pub accept_rate: Option<f64>,
    /// Since when the queue has not been seen empty; 0 while it is.
    pub waiting_seconds: f64,
    /// The longest time in the window through which it was never seen empty, the one that goes on included.
    pub longest_wait_seconds: f64,
    /// How long it took to empty when it last did, in the window; `None` if it has not since it last was full or
    /// overflowed.
    pub drained_seconds: Option<f64>,
    /// How long something has waited and nothing was accepted; 0 while nothing waits, `None` where accepts do not show.
    pub no_accept_seconds: Option<f64>,
    /// Age of the oldest queued connection.
    pub oldest_seconds: Option<f64>,
    /// The least wait of any connection, while the queue stands: it was not empty through 100 ms and none of at least
    /// five accepted had waited less than 5 ms, or its oldest connection is older than 100 ms.
    pub standing_seconds: Option<f64>,
    /// For how long it has stood.
    pub standing_for_seconds: f64,
    /// What the namespace counted in the last 10 s.
    pub namespace: NamespaceCounters,
    /// The namespace's connection-tracking table.
    pub conntrack: Conntrack,
    /// Of the processes that hold the listener, the one closest to its limit of descriptors.
    pub descriptors: Option<Descriptors>,
    /// What the requests of the process come to, where it is a connected proxy.
    pub work: Option<Work>,
}

/// Requests of the node, as the engine counts them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Counted requests, granted or parked.
    pub counted: u32,
    /// At most so many; 0 is no cap.
    pub cap: u32,
    /// For how long the cap was reached, or requests have waited for the pool below; 0 while neither.
    pub saturated_seconds: f64,
    /// For how long the cap was reached; 0 while it is not.
    #[serde(default)]
    pub node_full_seconds: f64,
    /// The pool whose upstream is down; else the one that most requests wait for; the fullest when none waits.
    pub pool: Option<PoolWork>,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolWork {
    /// Its name.
    pub name: String,
    /// Slots of the members that count.
    pub capacity: u32,
    /// Slots held.
    pub in_flight: u32,
    /// Requests that wait.
    pub parked: u32,
    /// Members in the policy.
    pub members: u32,
    /// Of those, the ones that are cooling.
    pub cooling: u32,
    /// Members that take requests unless they cool.
    #[serde(default)]
    pub usable: u32,
    /// Of the usable, those in a cool-down: the cooling, and the one that is kept in use because all others fail too.
    #[serde(default)]
    pub failing: u32,
    /// How long the oldest parked request has waited; `None` when none is parked.
    #[serde(default)]
    pub oldest_seconds: Option<f64>,
    /// For how long requests have waited, or were refused for want of a slot, without a longer pause; 0 while neither.
    #[serde(default)]
    pub waiting_seconds: f64,
    /// Requests refused for want of a slot in the last 10 s.
    #[serde(default)]
    pub refused: u64,
    /// Grants in the last minute.
    #[serde(default)]
    pub granted_last_minute: u64,
    /// Refusals in the last minute, whatever their reason.
    #[serde(default)]
    pub refused_last_minute: u64,
    /// For how long nearly all usable members have failed; 0 while enough of them work.
    #[serde(default)]
    pub down_seconds: f64,
    /// Mean time for which the requests that ended in the last 10 s had held their slot; `None` below five.
    pub service_seconds: Option<f64>,
    /// The same over minutes, while the pool was not full and no member failed.
    pub usual_seconds: Option<f64>,
}

impl PoolWork {
    /// Its upstream has been down for longer than a moment.
    #[must_use]
    pub fn is_down(&self, hold: Duration) -> bool {
        self.down_seconds > 0.0 && self.down_seconds >= hold.as_secs_f64()
    }

    /// Requests have waited for it, or were refused for want of a slot, for longer than a moment.
    #[must_use]
    pub fn is_saturated(&self, hold: Duration) -> bool {
        self.waiting_seconds > 0.0 && self.waiting_seconds >= hold.as_secs_f64()
    }
}

impl Evidence {
    /// The queue is full now: it refuses when depth > backlog. `None` where the backlog is unknown.
    #[must_use]
    pub fn is_full(&self) -> Option<bool> {
        self.backlog.map(|backlog| self.depth > backlog)
    }

    /// Deepest fill in the window in ‰ of what the queue holds; `None` where the backlog is unknown.
    #[must_use]
    pub fn fill_permille(&self) -> Option<u64> {
        let holds = u64::from(self.backlog?) + 1;
        Some((u64::from(self.depth_max) * 1000 / holds).min(1000))
    }

    /// It overflowed in the window, or was more than four fifths full.
    #[must_use]
    pub fn peaked(&self) -> bool {
        self.overflows.is_some_and(|refused| refused > 0) || self.fill_permille().is_some_and(|fill| fill > 800)
    }

    /// Time to empty a queue of this depth at the measured rate, in seconds.
    #[must_use]
    pub fn time_to_drain(&self, depth: u32) -> Option<f64> {
        self.accept_rate.filter(|rate| *rate > 0.0).map(|rate| f64::from(depth) / rate)
    }
}
