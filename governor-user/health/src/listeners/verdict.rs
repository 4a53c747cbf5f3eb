//! One word for what is wrong with a listener, from its [`Evidence`]: pure, no clock, no state. What it cannot know it
//! does not used against any listener.

use crate::listeners::evidence::{Evidence, Work};
use governor_engine::time::Duration;
use governor_observation::{Conntrack, HalfOpen};
use serde::{Deserialize, Serialize};
use std::fmt;

mod words;

pub use words::seconds;

/// The diagnosis of a listener, first match wins in this order (but `ok`, which is last).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing to do.
    #[default]
    Ok,
    /// Connections wait and the process has no descriptor left to accept them with.
    FdExhausted,
    /// Connections wait and no process accepts them.
    AcceptorStalled,
    /// Nearly all members of a pool fail: its clients get errors.
    UpstreamDown,
    /// Requests wait for slots, and each holds its slot for longer than it used to.
    UpstreamSlow,
    /// Requests wait for slots or the node is at its cap.
    InflightSaturated,
    /// Connections are accepted more slowly than they come, and the queue stands.
    AcceptStarved,
    /// Handshakes that do not complete fill the table of half-open connections.
    HalfOpenPressure,
    /// Many clients at once: the queue was full or nearly, and drains.
    Burst,
    /// The listener or its namespace is set up so that it cannot work well.
    Misconfigured,
}

/// When a wait becomes a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Nothing was accepted for so long while something waited: the acceptor stalls.
    pub stalled: Duration,
    /// A burst is accepted within this.
    pub max_wait: Duration,
    /// A condition that comes and goes has to last for so long.
    pub hold: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { stalled: Duration::from_secs(1), max_wait: Duration::from_millis(500), hold: Duration::from_secs(2) }
    }
}

/// Descriptors can run out between two looks and come back at once; what waited this long for one is no coincidence.
const NO_DESCRIPTOR_FOR: f64 = 0.2;

/// A request holds its slot this many times as long as it used to when the upstream is slow.
const SLOW: f64 = 2.0;

impl Verdict {
    /// Every verdict, `ok` first.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::FdExhausted,
        Self::AcceptorStalled,
        Self::UpstreamDown,
        Self::UpstreamSlow,
        Self::InflightSaturated,
        Self::AcceptStarved,
        Self::HalfOpenPressure,
        Self::Burst,
        Self::Misconfigured,
    ];

    /// Judges a listener.
    #[must_use]
    pub fn of(evidence: &Evidence, thresholds: &Thresholds) -> Self {
        let half_open = evidence.namespace.half_open();
        if no_descriptor(evidence) {
            Self::FdExhausted
        } else if evidence.depth > 0 && longer(evidence.no_accept_seconds, thresholds.stalled) {
            Self::AcceptorStalled
        } else if evidence.work.as_ref().is_some_and(|work| is_down(work, thresholds)) {
            Self::UpstreamDown
        } else if let Some(verdict) = evidence.work.as_ref().and_then(|work| saturated(work, thresholds)) {
            verdict
        } else if starved(evidence, thresholds) {
            Self::AcceptStarved
        } else if matches!(half_open, HalfOpen::Pressure | HalfOpen::Critical) {
            Self::HalfOpenPressure
        } else if evidence.backlog == Some(0) || is_tracking_full(evidence.conntrack) {
            Self::Misconfigured
        } else if evidence.peaked() || (half_open == HalfOpen::Burst && has_been_crowded(evidence)) {
            Self::Burst
        } else {
            Self::Ok
        }
    }

    /// Stable name, as in JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::FdExhausted => "fd_exhausted",
            Self::AcceptorStalled => "acceptor_stalled",
            Self::UpstreamDown => "upstream_down",
            Self::UpstreamSlow => "upstream_slow",
            Self::InflightSaturated => "inflight_saturated",
            Self::AcceptStarved => "accept_starved",
            Self::HalfOpenPressure => "half_open_pressure",
            Self::Burst => "burst",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// Whether a longer backlog may help: only where the queue drains, or has no room to begin with. Everywhere else it
    /// stores connections that are not accepted, or adds waiting.
    #[must_use]
    pub fn wants_longer_backlog(self, evidence: &Evidence) -> bool {
        match self {
            Self::Burst => true,
            Self::Misconfigured => evidence.backlog == Some(0),
            Self::Ok
            | Self::FdExhausted
            | Self::AcceptorStalled
            | Self::UpstreamDown
            | Self::UpstreamSlow
            | Self::InflightSaturated
            | Self::AcceptStarved
            | Self::HalfOpenPressure => false,
        }
    }

    /// Whether an operator should look at it soon.
    #[must_use]
    pub fn is_trouble(self) -> bool {
        !matches!(self, Self::Ok | Self::Burst)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn no_descriptor(evidence: &Evidence) -> bool {
    evidence.depth > 0
        && evidence.waiting_seconds >= NO_DESCRIPTOR_FOR
        && evidence.descriptors.is_some_and(|descriptors| descriptors.exhausted())
}

/// The queue stands, or was not emptied within the time of a burst although it was full.
fn starved(evidence: &Evidence, thresholds: &Thresholds) -> bool {
    let stands = longer(evidence.standing_seconds, thresholds.max_wait)
        || (evidence.standing_seconds.is_some() && evidence.standing_for_seconds >= thresholds.hold.as_secs_f64());
    let drains = evidence.longest_wait_seconds <= thresholds.max_wait.as_secs_f64()
        || (evidence.standing_seconds.is_none()
            && evidence
                .time_to_drain(evidence.depth_max)
                .is_some_and(|time| time <= thresholds.max_wait.as_secs_f64()));
    stands || (evidence.peaked() && !drains)
}

/// A burst of failures that ends within the hold time is no outage.
fn is_down(work: &Work, thresholds: &Thresholds) -> bool {
    work.pool.as_ref().is_some_and(|pool| pool.is_down(thresholds.hold))
}

fn saturated(work: &Work, thresholds: &Thresholds) -> Option<Verdict> {
    if work.saturated_seconds <= 0.0 || work.saturated_seconds < thresholds.hold.as_secs_f64() {
        return None;
    }
    let slow = work.pool.as_ref().is_some_and(|pool| {
        let cools = pool.cooling > 0 && pool.cooling * 2 >= pool.members;
        let longer = pool.service_seconds.zip(pool.usual_seconds).is_some_and(|(now, usual)| now >= SLOW * usual);
        cools || longer
    });
    Some(if slow { Verdict::UpstreamSlow } else { Verdict::InflightSaturated })
}

fn longer(seconds: Option<f64>, than: Duration) -> bool {
    seconds.is_some_and(|seconds| seconds >= than.as_secs_f64())
}

fn is_tracking_full(table: Conntrack) -> bool {
    matches!(table, Conntrack::Table { count, max } if count >= max)
}

/// A namespace counts its cookies once for all listeners. They are this one's only if it came near being full: the
/// table of half-open attempts has as many places as the backlog (`inet_csk_reqsk_queue_is_full`), and clients that
/// filled it enter the accept queue within a round trip.
fn has_been_crowded(evidence: &Evidence) -> bool {
    let Some(backlog) = evidence.backlog else { return false };
    let came_enough = evidence.enqueued.is_none_or(|came| came >= u64::from(backlog));
    came_enough && evidence.fill_permille().is_some_and(|fill| fill >= 250)
}

#[cfg(test)]
mod tests;
