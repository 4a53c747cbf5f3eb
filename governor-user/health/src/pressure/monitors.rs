//! The monitors: each turns one measurement into 0–1000 ‰ by clamp((x − lo) / (hi − lo)); the pressure is their
//! maximum. What is unknown raises no pressure.

use crate::listeners::evidence::Evidence;
use crate::pressure::loads::Loads;
use crate::pressure::settings::{CgroupCeiling, OverloadConfig};
use governor_common::wire::reply::cause;
use governor_engine::snapshot::PoolFigures;
use governor_observation::Observation;
use governor_observation::vitals::Descriptors;
use governor_observation::vitals::Vitals;

/// Everything the pressure is made of at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Maximum over the monitors, 0–1000 ‰.
    pub permille: u16,
    /// Bits of the monitors that raise any pressure.
    pub causes: u32,
    /// A queue is full or refuses now: enter levels at once.
    pub urgent: bool,
    /// Maximum over the monitors that may cost admitted work its slot, 0–1000 ‰. A full accept queue in front of an
    /// idle proxy asks for a longer backlog, not for refusals.
    pub shedding: u16,
    /// Every monitor that knows its measurement, in the order of the causes.
    pub readings: Vec<Reading>,
}

/// One monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its bit in the causes.
    pub cause: u32,
    /// The pressure that it raises, 0–1000 ‰.
    pub permille: u16,
    /// The measurement in words.
    pub detail: String,
}

/// Causes that may shed work by themselves.
const SHEDDING: u32 =
    cause::NODE_IN_FLIGHT | cause::DESCRIPTORS | cause::CPU_PRESSURE | cause::MEMORY_PRESSURE | cause::CGROUP_MEMORY;

/// What is weighed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales<'a> {
    pub(crate) config: &'a OverloadConfig,
    pub(crate) ceilings: &'a [CgroupCeiling],
}

/// What it is weighed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) seen: &'a Observation,
    pub(crate) vitals: &'a Vitals,
    pub(crate) loads: &'a Loads,
}

/// A listener that feeds the level, with its place for people.
pub(crate) type Watched<'a> = (String, &'a Evidence);

impl Scales<'_> {
    /// Weighs everything.
    pub(crate) fn weigh(&self, facts: Facts<'_>, listeners: &[Watched<'_>]) -> Pressure {
        let mut pressure = Pressure::default();
        self.queues(&mut pressure, listeners);
        self.connections(&mut pressure, facts.seen);
        self.requests(&mut pressure, facts.loads);
        self.machine(&mut pressure, facts);
        let pressing = |bit: u32| {
            let reading = pressure.readings.iter().find(|reading| reading.cause == bit);
            reading.map_or(0, |reading| reading.permille)
        };
        // A queue that stands asks for refusals only where there is no CPU to empty it with.
        if pressing(cause::CPU_PRESSURE) > 0 {
            pressure.shedding = pressure.shedding.max(pressing(cause::ACCEPT_SOJOURN));
        }
        pressure.readings.sort_by_key(|reading| reading.cause);
        pressure
    }

    fn queues(&self, pressure: &mut Pressure, listeners: &[Watched<'_>]) {
        let ranges = &self.config.ranges;
        let worst = |value: &dyn Fn(&Evidence) -> Option<u64>| {
            let known = listeners.iter().filter_map(|(place, evidence)| Some((value(evidence)?, place, *evidence)));
            known.max_by_key(|(value, ..)| *value)
        };
        if let Some((fill, place, evidence)) = worst(&|evidence| fill(evidence.depth, evidence.backlog?)) {
            let holds = evidence.backlog.map_or(0, |backlog| u64::from(backlog) + 1);
            self.add(pressure, cause::ACCEPT_FILL, ramp(fill, ranges.accept_fill), || {
                format!("{place}: {} of at most {holds} connections wait", evidence.depth)
            });
        }
        if let Some((wait, place, _)) = worst(&|evidence| evidence.standing_seconds.map(micros)) {
            self.add(pressure, cause::ACCEPT_SOJOURN, ramp(wait, ranges.accept_sojourn), || {
                format!("{place}: everybody waits {} ms or longer", wait / 1000)
            });
        }
        // Attempts in a thousand seconds, so that a few are not lost to rounding.
        if let Some((rate, place, _)) = worst(&|evidence| evidence.overflow_rate.map(thousandths)) {
            let (lo, hi) = ranges.accept_overflow;
            let range = (lo.saturating_mul(1000), hi.saturating_mul(1000));
            self.add(pressure, cause::ACCEPT_OVERFLOW, ramp(rate, range), || {
                format!("{place}: {:.1} attempts refused a second", per_second(rate))
            });
            pressure.urgent |= rate > 0 && !self.is_ignored(cause::ACCEPT_OVERFLOW);
        }
        if let Some((idle, place, _)) = worst(&|evidence| evidence.no_accept_seconds.map(micros)) {
            self.add(pressure, cause::ACCEPTOR_STALLED, ramp(idle, ranges.acceptor_stalled), || {
                format!("{place}: nothing accepted for {} ms while connections wait", idle / 1000)
            });
        }
        // A queue seen full is overflowing, not filling.
        pressure.urgent |= !self.is_ignored(cause::ACCEPT_FILL)
            && listeners.iter().any(|(_, evidence)| evidence.is_full() == Some(true));
    }

    fn connections(&self, pressure: &mut Pressure, seen: &Observation) {
        let known = self.ceilings.iter().filter_map(|ceiling| {
            let of = seen.cgroups.iter().flatten().filter(|row| row.path.as_deref() == Some(ceiling.path.as_str()));
            let open = of.map(|row| row.inbound.saturating_add(row.outbound)).max()?;
            Some((permille(open, u64::from(ceiling.max_connections)), open, ceiling))
        });
        if let Some((fill, open, ceiling)) = known.max_by_key(|(fill, ..)| *fill) {
            self.add(pressure, cause::CGROUP_CONNECTIONS, ramp(fill, self.config.ranges.connections), || {
                format!("{}: {open} of at most {} connections", ceiling.path, ceiling.max_connections)
            });
        }
    }

    fn requests(&self, pressure: &mut Pressure, loads: &Loads) {
        let ranges = &self.config.ranges;
        let Loads { counted, cap, .. } = loads;
        if *cap > 0 {
            let fill = permille(u64::from(*counted), u64::from(*cap));
            self.add(pressure, cause::NODE_IN_FLIGHT, ramp(fill, ranges.node_in_flight), || {
                format!("{counted} of at most {cap} requests")
            });
        }
        // While no member takes requests the capacity is 0: then whatever waits is more than there is.
        let bounded = |load: &PoolFigures| !load.unlimited && (load.capacity > 0 || load.parked > 0);
        let pools = loads.pools.iter().filter(|pool| bounded(&pool.load)).map(|pool| {
            let demand = u64::from(pool.load.in_flight) + u64::from(pool.load.parked);
            (demand * 1000 / u64::from(pool.load.capacity.max(1)), pool)
        });
        if let Some((demand, pool)) = pools.max_by_key(|(demand, _)| *demand) {
            self.add(pressure, cause::POOL_USE, ramp(demand, ranges.pool_use), || {
                let load = &pool.load;
                format!("{}: {} in flight and {} parked of {}", pool.name, load.in_flight, load.parked, load.capacity)
            });
        }
    }

    fn machine(&self, pressure: &mut Pressure, facts: Facts<'_>) {
        let (ranges, vitals) = (&self.config.ranges, facts.vitals);
        // Of proxies only: what other processes run out of is in their listeners' verdicts.
        let proxies = vitals.descriptors.iter().filter(|(pid, _)| facts.loads.proxies.contains(pid));
        if let Some((_, worst)) = proxies.max_by_key(|(_, descriptors)| descriptors.permille()) {
            let Descriptors { pid, open, limit } = worst;
            self.add(pressure, cause::DESCRIPTORS, ramp(worst.permille(), ranges.descriptors), || {
                format!("process {pid}: {open} of {limit}")
            });
        }
        let waits = |share: u16| format!("tasks waited through {}.{} % of the last 10 s", share / 10, share % 10);
        if let Some(share) = vitals.cpu {
            self.add(pressure, cause::CPU_PRESSURE, ramp(share.into(), ranges.cpu_pressure), || waits(share));
        }
        if let Some(share) = vitals.memory {
            self.add(pressure, cause::MEMORY_PRESSURE, ramp(share.into(), ranges.memory_pressure), || waits(share));
        }
        if let Some(memory) = &vitals.cgroup_memory {
            self.add(pressure, cause::CGROUP_MEMORY, ramp(memory.permille(), ranges.cgroup_memory), || {
                format!("{}: {} of {} MiB", memory.path, memory.used >> 20, memory.limit >> 20)
            });
        }
    }

    fn add(&self, pressure: &mut Pressure, cause: u32, permille: u16, detail: impl FnOnce() -> String) {
        if self.is_ignored(cause) {
            return;
        }
        pressure.readings.push(Reading { cause, permille, detail: detail() });
        if permille > 0 {
            pressure.causes |= cause;
            pressure.permille = pressure.permille.max(permille);
            if cause & SHEDDING != 0 {
                pressure.shedding = pressure.shedding.max(permille);
            }
        }
    }

    fn is_ignored(&self, cause: u32) -> bool {
        self.config.ignored & cause != 0
    }
}

/// Names of the bits in `causes`.
#[must_use]
pub fn cause_names(causes: u32) -> Vec<String> {
    cause::NAMES.iter().filter(|(bit, _)| causes & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

/// Fill of an accept queue. It holds backlog + 1, and utilisation is clamped to 1.
fn fill(depth: u32, backlog: u32) -> Option<u64> {
    Some(permille(u64::from(depth), u64::from(backlog) + 1))
}

fn permille(part: u64, whole: u64) -> u64 {
    (part.saturating_mul(1000) / whole.max(1)).min(1000)
}

fn ramp(x: u64, (lo, hi): (u32, u32)) -> u16 {
    let (lo, hi) = (u64::from(lo), u64::from(hi));
    let pressure = (x.clamp(lo, hi.max(lo)) - lo) * 1000 / hi.saturating_sub(lo).max(1);
    u16::try_from(pressure.min(1000)).unwrap_or(1000)
}

/// Seconds that were measured, as whole microseconds.
fn micros(seconds: f64) -> u64 {
    std::time::Duration::try_from_secs_f64(seconds)
        .map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// A rate as thousandths: of no more than a duration holds.
fn thousandths(rate: f64) -> u64 {
    micros(rate) / 1000
}

fn per_second(thousandths: u64) -> f64 {
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests;
