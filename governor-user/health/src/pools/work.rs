//! What requests have done lately: for how long they have waited for a pool, for how long its upstream has been down, and for
//! how long a request holds its slot, now and usually. Pure; time is an argument.

use crate::listeners::evidence::{PoolWork, Work};
use crate::pools::spell::Spell;
use crate::pools::upstream::Upstream;
use crate::pressure::loads::{Loads, NamedLoad};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// What the present figures are of.
const WINDOW: Duration = Duration::from_secs(10);
/// What the rates that people read are of.
const MINUTE: Duration = Duration::from_secs(60);
/// How often counters are noted.
const STEP: Duration = Duration::from_secs(1);
/// Ends in the window that make a service time.
const LEAST_ENDS: u64 = 5;
/// Share of one step in the usual service time: it follows within some minutes.
const FOLLOW: f64 = 1.0 / 64.0;

/// Everything remembered.
#[derive(Debug, Default)]
pub(crate) struct WorkHistory {
    node_full: Spell,
    pools: BTreeMap<String, Track>,
}

/// One pool.
#[derive(Debug, Default)]
struct Track {
    /// The counters by the second, back to the last one outside the window.
    noted: VecDeque<Counters>,
    /// Grants and refusals by the second, back to a minute ago.
    minute: VecDeque<(Instant, u64, u64)>,
    /// Requests wait, or were refused for want of a slot.
    waiting: Spell,
    upstream: Upstream,
    /// Refusals at the last look; `None` before the first.
    refused: Option<u64>,
    service: Option<f64>,
    usual: Option<f64>,
}

/// Counters of the engine at one moment.
#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Instant,
    ended: u64,
    held: Duration,
    refused: u64,
    failures: u64,
}

impl WorkHistory {
    /// Takes in what the engine carries and returns what is known of each pool, in their order.
    pub(crate) fn absorb(&mut self, loads: &Loads, now: Instant) -> Vec<PoolWork> {
        self.node_full.absorb(loads.cap > 0 && loads.counted >= loads.cap, now);
        self.pools.retain(|name, _| loads.pools.iter().any(|pool| pool.name == *name));
        loads.pools.iter().map(|pool| self.pools.entry(pool.name.clone()).or_default().absorb(pool, now)).collect()
    }

    /// The requests of the node, with the pool that matters most.
    pub(crate) fn work(&self, loads: &Loads, pools: &[PoolWork], now: Instant) -> Work {
        let worst =
            |pool: &&PoolWork| (pool.down_seconds > 0.0, pool.waiting_seconds > 0.0, pool.parked, pool.in_flight);
        let pool = pools.iter().max_by_key(worst);
        let node_full_seconds = self.node_full.seconds(now);
        Work {
            counted: loads.counted,
            cap: loads.cap,
            saturated_seconds: pool.map_or(0.0, |pool| pool.waiting_seconds).max(node_full_seconds),
            node_full_seconds,
            pool: pool.cloned(),
        }
    }
}

impl Track {
    fn absorb(&mut self, NamedLoad { name, load, oldest }: &NamedLoad, now: Instant) -> PoolWork {
        let refuses = self.refused.replace(load.refused).is_some_and(|before| load.refused > before);
        self.waiting.absorb(load.parked > 0 || refuses, now);
        let counters =
            Counters { at: now, ended: load.ended, held: load.held, refused: load.refused, failures: load.failures };
        if self.noted.back().is_none_or(|last| now.since(last.at) >= STEP) {
            // Slots that max-min keeps free are no sign of rest: what counts is that no request waits.
            let is_usual = self.waiting.seconds(now) <= 0.0 && load.in_flight < load.capacity && load.failing == 0;
            self.note(counters, is_usual);
            if self.minute.is_empty() {
                // Totals begin with the pool: what was granted before the first observation is of the last minute, too.
                self.minute.push_back((now, 0, 0));
            }
            self.minute.push_back((now, load.granted, load.refused_in_all));
            while self.minute.get(1).is_some_and(|(second, ..)| now.since(*second) >= MINUTE) {
                self.minute.pop_front();
            }
        }
        let (granted, refused_in_all) = self
            .minute
            .front()
            .map_or((load.granted, load.refused_in_all), |(_, granted, refused)| (*granted, *refused));
        let first = self.noted.front().copied().unwrap_or(counters);
        self.upstream.absorb(load, load.failures.saturating_sub(first.failures), now);
        PoolWork {
            name: name.clone(),
            capacity: load.capacity,
            in_flight: load.in_flight,
            parked: load.parked,
            members: load.members,
            cooling: load.cooling,
            usable: load.usable,
            failing: load.failing,
            oldest_seconds: oldest.map(|oldest| oldest.as_secs_f64()),
            waiting_seconds: self.waiting.seconds(now),
            refused: load.refused.saturating_sub(first.refused),
            granted_last_minute: load.granted.saturating_sub(granted),
            refused_last_minute: load.refused_in_all.saturating_sub(refused_in_all),
            down_seconds: self.upstream.seconds(now),
            service_seconds: self.service,
            usual_seconds: self.usual,
        }
    }

    /// Both service times are of requests that ended and of their whole time. A rate of ends over the requests in flight
    /// would take in the ones that have only begun, which are most of them after a quiet spell.
    fn note(&mut self, counters: Counters, is_usual: bool) {
        self.noted.push_back(counters);
        while self.noted.get(1).is_some_and(|second| counters.at.since(second.at) >= WINDOW) {
            self.noted.pop_front();
        }
        let Some(first) = self.noted.front() else { return };
        let ends = counters.ended.saturating_sub(first.ended);
        let held = counters.held.saturating_sub(first.held).as_secs_f64();
        self.service = (ends >= LEAST_ENDS).then(|| held / f64::from(u32::try_from(ends).unwrap_or(u32::MAX)));
        if let Some(service) = self.service.filter(|_| is_usual) {
            self.usual = Some(self.usual.map_or(service, |usual| usual + (service - usual) * FOLLOW));
        }
    }
}

#[cfg(test)]
mod tests;
