//! What requests have done lately: how long a pool has been full with requests waiting, and for how long a request holds its
//! slot, now and usually. Pure; time is an argument.

use super::evidence::{PoolWork, Work};
use super::loads::{Loads, NamedLoad};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// What the present service time is of.
const WINDOW: Duration = Duration::from_secs(10);
/// How often ends are noted.
const STEP: Duration = Duration::from_secs(1);
/// Ends in the window that make a service time.
const LEAST_ENDS: u64 = 5;
/// Share of one step in the usual service time: it follows within some minutes.
const FOLLOW: f64 = 1.0 / 64.0;
/// Requests come and go: a pool that was full a moment ago still is.
const PAUSE: Duration = Duration::from_secs(1);

/// Everything remembered.
#[derive(Debug, Default)]
pub(super) struct WorkHistory {
    /// Since when, and when last.
    saturated: Option<(Instant, Instant)>,
    pools: BTreeMap<String, Track>,
}

/// One pool.
#[derive(Debug, Default)]
struct Track {
    /// Slots given back so far, by the second.
    ended: VecDeque<(Instant, u64)>,
    service: Option<f64>,
    usual: Option<f64>,
}

impl WorkHistory {
    /// Takes in what the engine carries.
    pub(super) fn absorb(&mut self, loads: &Loads, now: Instant) -> Work {
        self.pools.retain(|name, _| loads.pools.iter().any(|pool| pool.name == *name));
        for pool in &loads.pools {
            self.pools.entry(pool.name.clone()).or_default().absorb(pool, now);
        }
        let full = loads.cap > 0 && loads.counted >= loads.cap;
        if full || loads.pools.iter().any(is_exhausted) {
            let since = self.saturated.map_or(now, |(since, _)| since);
            self.saturated = Some((since, now));
        } else if self.saturated.is_some_and(|(_, last)| now.since(last) > PAUSE) {
            self.saturated = None;
        }
        let busiest = loads.pools.iter().max_by_key(|pool| (pool.load.parked, pool.load.in_flight));
        Work {
            counted: loads.counted,
            cap: loads.cap,
            saturated_seconds: self.saturated.map_or(0.0, |(since, _)| now.since(since).as_secs_f64()),
            pool: busiest.map(|pool| self.shown(pool)),
        }
    }

    fn shown(&self, NamedLoad { name, load }: &NamedLoad) -> PoolWork {
        let track = self.pools.get(name);
        PoolWork {
            name: name.clone(),
            capacity: load.capacity,
            in_flight: load.in_flight,
            parked: load.parked,
            members: load.members,
            cooling: load.cooling,
            service_seconds: track.and_then(|track| track.service),
            usual_seconds: track.and_then(|track| track.usual),
        }
    }
}

/// Requests wait and no slot is free: those that wait for their share while slots are free are another matter.
fn is_exhausted(pool: &NamedLoad) -> bool {
    pool.load.parked > 0 && pool.load.in_flight >= pool.load.capacity
}

impl Track {
    fn absorb(&mut self, pool: &NamedLoad, now: Instant) {
        if self.ended.back().is_some_and(|(last, _)| now.since(*last) < STEP) {
            return;
        }
        // Leases that were registered were never granted here.
        let ended = pool.load.granted.saturating_sub(pool.load.in_flight.into());
        while self.ended.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.ended.pop_front();
        }
        self.service = self.ended.front().and_then(|(since, before)| {
            let (ends, time) = (ended.saturating_sub(*before), now.since(*since).as_secs_f64());
            let held = f64::from(pool.load.in_flight);
            (ends >= LEAST_ENDS && held > 0.0).then(|| held * time / f64::from(u32::try_from(ends).unwrap_or(u32::MAX)))
        });
        self.ended.push_back((now, ended));
        if let Some(service) = self.service.filter(|_| pool.load.in_flight < pool.load.capacity) {
            self.usual = Some(self.usual.map_or(service, |usual| usual + (service - usual) * FOLLOW));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::snapshot::PoolFigures;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    /// A pool of 10 that has granted so many.
    fn loads(granted: u64, in_flight: u32, parked: u32) -> Loads {
        let load = PoolFigures { capacity: 10, in_flight, parked, granted, members: 2, ..PoolFigures::default() };
        let pool = NamedLoad { name: "chat".into(), load };
        Loads { counted: in_flight + parked, cap: 100, pools: vec![pool], ..Loads::default() }
    }

    #[test]
    fn a_pool_that_slows_down_is_compared_with_how_it_was() {
        let mut history = WorkHistory::default();
        // 5 slots, 5 ends a second: each is held for a second.
        for second in 0..60 {
            history.absorb(&loads(5 + second * 5, 5, 0), at(second));
        }
        let usual = history.absorb(&loads(305, 5, 0), at(60)).pool.unwrap();
        assert_eq!((usual.service_seconds, usual.usual_seconds), (Some(1.0), Some(1.0)));
        // Full, and 2 end a second: 5 s each.
        let mut work = Work::default();
        for second in 0..30 {
            work = history.absorb(&loads(310 + second * 2, 10, 7), at(61 + second));
        }
        let pool = work.pool.unwrap();
        assert_eq!((pool.service_seconds, pool.usual_seconds), (Some(5.0), Some(1.0)));
        assert_eq!(work.saturated_seconds, 29.0);
    }

    #[test]
    fn a_pool_is_exhausted_only_while_requests_wait_for_a_slot_that_is_not_there() {
        let mut history = WorkHistory::default();
        let mut lasts =
            |in_flight, parked, second| history.absorb(&loads(100, in_flight, parked), at(second)).saturated_seconds;
        assert_eq!(lasts(10, 0, 1), 0.0, "nobody waits");
        assert_eq!(lasts(9, 5, 2), 0.0, "those wait for their share");
        assert_eq!((lasts(10, 5, 3), lasts(10, 5, 5)), (0.0, 2.0));
        assert_eq!((lasts(10, 0, 6), lasts(10, 1, 7)), (3.0, 4.0), "for a moment nobody waited");
        assert_eq!((lasts(9, 0, 8), lasts(9, 0, 9)), (5.0, 0.0));
    }

    #[test]
    fn nothing_that_ended_says_nothing() {
        let mut history = WorkHistory::default();
        for second in 0..20 {
            let pool = history.absorb(&loads(10, 10, 3), at(second)).pool.unwrap();
            assert_eq!((pool.service_seconds, pool.usual_seconds), (None, None));
        }
    }
}
