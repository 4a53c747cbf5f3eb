//! Retry-After: a virtual queue that advances by the measured time between two ends.

use super::Model;
use super::Parked;
use super::index;
use governor_engine::io::{Origin, Reason};
use governor_engine::policy::FairShare;
use governor_engine::time::{Duration, Instant};

impl Model {
    /// What the refused client is told, by whom it was refused; moves the queue on.
    pub(super) fn told(&mut self, w: &Parked, reason: Reason, by: Origin, back: Option<Instant>, id: u64) -> Duration {
        if reason == Reason::Suspended {
            return jittered(self.suspended_for(w), id);
        }
        let least = self.least_wait(w, reason);
        let pool = &mut self.pools[index(w.pool.0)];
        let (ends, tail) = if by == Origin::Node { (&self.ends, &mut self.tail) } else { (&pool.ends, &mut pool.tail) };
        match (back, interval(ends, self.now)) {
            (Some(at), _) => after(at.since(self.now), id),
            (None, gap) => {
                *tail = later(*tail, self.now, gap);
                jittered(tail.since(self.now).max(least), id)
            }
        }
    }

    /// What it would be told, without a place in the queue.
    pub(super) fn would_tell(&self, w: &Parked, reason: Reason, by: Origin, id: u64) -> Duration {
        let pool = &self.pools[index(w.pool.0)];
        let (ends, tail) = if by == Origin::Node { (&self.ends, self.tail) } else { (&pool.ends, pool.tail) };
        let wait = later(tail, self.now, interval(ends, self.now)).since(self.now);
        jittered(wait.max(self.least_wait(w, reason)), id)
    }

    /// Until the operator's setting ends; the longest that is told if it does not.
    fn suspended_for(&self, w: &Parked) -> Duration {
        let until = w.who.named().and_then(|key| self.overrides.get(&key)?.until);
        until.map_or(Duration::from_secs(60), |until| until.since(self.now))
    }

    fn least_wait(&self, w: &Parked, reason: Reason) -> Duration {
        let pool = &self.pools[index(w.pool.0)];
        let Some(gap) = interval(&pool.ends, self.now).filter(|_| reason == Reason::FairShare) else {
            return Duration::ZERO;
        };
        let standing = self.standing(w);
        let (held, share) = (standing.unit_in_flight, standing.share);
        let (t, c) = (standing.in_flight, standing.capacity);
        let loose = |t: u32| match pool.policy.fair_share {
            FairShare::Off => true,
            FairShare::EqualSplit { threshold } => c == 0 || t * 100 < c * u32::from(threshold),
            FairShare::MaxMin { headroom } => c == 0 || t < c - headroom.slots(c),
        };
        let ends = (0..=t).find(|ends| loose(t - ends)).unwrap_or(t + 1);
        let own = (held + 1).saturating_sub(share);
        let below = if held == 0 { 0 } else { gap.as_nanos() * u128::from(own * t) / u128::from(held) };
        Duration::from_nanos(u64::try_from(below.min(gap.as_nanos() * u128::from(ends))).unwrap())
    }
}

fn second(at: Instant) -> u64 {
    at.0 / 1_000_000_000
}

/// Mean time between two ends over the last 32 seconds, the one that runs included.
pub(super) fn interval(ends: &[Instant], now: Instant) -> Option<Duration> {
    let oldest = second(now).saturating_sub(31);
    let seen = ends.iter().filter(|at| second(**at) >= oldest).count() as u64;
    let from = (*ends.first()?).max(Instant(oldest * 1_000_000_000));
    let span = now.0.saturating_sub(from.0).max(1_000_000_000);
    span.checked_div(seen).map(Duration::from_nanos)
}

/// The first of a crowd comes back after a gap, at least a second; each other a gap after the one before. Unknown gaps are
/// a hundredth of a second.
fn later(tail: Instant, now: Instant, gap: Option<Duration>) -> Instant {
    let gap = gap.unwrap_or(Duration::from_millis(10));
    let first = now.after(gap).max(now.after(Duration::from_secs(1)));
    tail.after(gap).max(first).min(now.after(Duration::from_secs(48)))
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap().max(1_000)
}

/// 0–25 % more from 4 s up, 60 s at most. A longer wait is sent as 48 s and up to a quarter.
fn jittered(wait: Duration, id: u64) -> Duration {
    let wait = if wait >= Duration::from_secs(60) { 48_000 } else { millis(wait) };
    let most = if wait < 4_000 { wait } else { (wait + wait / 4).min(60_000) };
    Duration::from_millis(wait + spread(id) % (most - wait + 1))
}

/// An upstream's reset, and up to a quarter more: a quarter of a second at least, 12 s at most.
fn after(wait: Duration, id: u64) -> Duration {
    let wait = millis(wait);
    Duration::from_millis(wait + spread(id) % ((wait / 4).clamp(250, 12_000) + 1))
}

fn spread(id: u64) -> u64 {
    let mut z = id;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
