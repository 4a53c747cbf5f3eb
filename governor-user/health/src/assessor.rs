//! From observations to reports: remembers what has to be remembered and asks the pure parts. Time is an argument. One call for
//! each observation, which gives a whole report: it orders nothing and waits for no time of its own, so that inputs and outputs
//! apart, as [`crate::backlog::tuner`] has them, would be the same call in two halves.

use super::report::{Judged, Report};
use crate::listeners::history::History;
use crate::listeners::verdict::{Thresholds, Verdict};
use crate::pools::work::WorkHistory;
use crate::pressure::loads::Loads;
use crate::pressure::monitors::{Facts, Scales, Watched};
use crate::pressure::settings::{CgroupCeiling, OverloadConfig};
use governor_engine::time::{Duration, Instant};
use governor_observation::vitals::Descriptors;
use governor_observation::vitals::Vitals;
use governor_observation::{ListenerView, Observation};
use std::net::SocketAddr;
use std::sync::Arc;

/// Makes one report of each observation.
#[derive(Debug)]
pub struct Assessor {
    config: OverloadConfig,
    ceilings: Vec<CgroupCeiling>,
    thresholds: Thresholds,
    history: History,
    work: WorkHistory,
    /// The rows of the last report.
    last: Vec<Arc<Judged>>,
}

impl Assessor {
    /// With no past.
    #[must_use]
    pub fn new(config: OverloadConfig, ceilings: Vec<CgroupCeiling>) -> Self {
        let stalled = Duration::from_micros(config.ranges.acceptor_stalled.0.into());
        let max_wait = Duration::from_micros(config.ranges.accept_sojourn.1.into());
        let thresholds = Thresholds { stalled, max_wait, hold: config.hold };
        Self {
            config,
            ceilings,
            thresholds,
            history: History::default(),
            work: WorkHistory::default(),
            last: Vec::new(),
        }
    }

    /// Weighs and judges what was seen.
    pub fn assess(&mut self, seen: &Observation, vitals: &Vitals, loads: &Loads, now: Instant) -> Report {
        let pools = self.work.absorb(loads, now);
        let work = self.work.work(loads, &pools, now);
        let mut listeners = Vec::with_capacity(seen.listeners.len());
        let (config, thresholds, last) = (&self.config, &self.thresholds, &self.last);
        self.history.absorb(seen, now, |listener, mut evidence| {
            evidence.descriptors = scarcest(listener, vitals);
            if is_held_by_proxy(listener, loads) {
                evidence.work = Some(work.clone());
            }
            let verdict = Verdict::of(&evidence, thresholds);
            let watched = is_watched(listener, config, loads);
            let before = last.get(listeners.len()).filter(|row| row.is(listener, watched, verdict, &evidence));
            let row = before.cloned().unwrap_or_else(|| Arc::new(Judged::of(listener, watched, verdict, evidence)));
            listeners.push(row);
        });
        self.last.clone_from(&listeners);
        let watched = listeners.iter().filter(|row| row.watched).map(|row| place_and_evidence(row));
        let watched: Vec<Watched<'_>> = watched.collect();
        let scales = Scales { config: &self.config, ceilings: &self.ceilings };
        let pressure = scales.weigh(Facts { seen, vitals, loads }, &watched);
        Report { pressure, listeners, pools }
    }
}

/// Listeners feed the level if their port is configured or, when no port is, if a connected proxy holds them.
fn is_watched(listener: &ListenerView, config: &OverloadConfig, loads: &Loads) -> bool {
    if config.ports.is_empty() { is_held_by_proxy(listener, loads) } else { config.ports.contains(&listener.port) }
}

fn place_and_evidence(row: &Judged) -> Watched<'_> {
    (SocketAddr::new(row.address, row.port).to_string(), &row.evidence)
}

fn is_held_by_proxy(listener: &ListenerView, loads: &Loads) -> bool {
    listener.pids.iter().any(|pid| loads.proxies.contains(pid))
}

/// Of the processes that hold the listener, the one closest to its limit.
fn scarcest(listener: &ListenerView, vitals: &Vitals) -> Option<Descriptors> {
    let known = listener.pids.iter().filter_map(|pid| vitals.descriptors.get(pid));
    known.max_by_key(|descriptors| descriptors.permille()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::wire::reply::cause;

    fn seen(listeners: Vec<ListenerView>) -> Observation {
        Observation { listeners, ..Observation::default() }
    }

    fn full(port: u16, pids: &[u32]) -> ListenerView {
        ListenerView {
            cookie: Some(port.into()),
            depth: 5,
            backlog: Some(4),
            pids: pids.to_vec(),
            ..ListenerView::bare(port)
        }
    }

    fn proxy(pid: u32) -> Loads {
        Loads { proxies: [pid].into(), ..Loads::default() }
    }

    fn assess(ports: &[u16], listeners: Vec<ListenerView>, loads: &Loads) -> Report {
        let config = OverloadConfig { ports: ports.to_vec(), ..OverloadConfig::default() };
        Assessor::new(config, Vec::new()).assess(&seen(listeners), &Vitals::default(), loads, Instant::ZERO)
    }

    #[test]
    fn listeners_of_strangers_are_judged_and_press_nothing() {
        let report = assess(&[], vec![full(80, &[1])], &proxy(7));
        assert_eq!(report.pressure.permille, 0);
        assert_eq!((report.listeners[0].verdict, report.listeners[0].watched), (Verdict::Burst, false));
        assert_eq!(assess(&[], vec![full(80, &[1, 7])], &proxy(7)).pressure.causes, cause::ACCEPT_FILL);
        assert_eq!(assess(&[80], vec![full(80, &[])], &Loads::default()).pressure.causes, cause::ACCEPT_FILL);
        assert_eq!(assess(&[81], vec![full(80, &[7])], &proxy(7)).pressure.causes, 0);
    }

    #[test]
    fn a_listener_is_judged_by_the_descriptors_of_whoever_holds_it() {
        let open = |pid, open| (pid, Descriptors { pid, open, limit: 64 });
        let vitals = Vitals { descriptors: [open(1, 10), open(2, 64), open(3, 64)].into(), ..Vitals::default() };
        let mut assessor = Assessor::new(OverloadConfig::default(), Vec::new());
        let listeners = vec![full(80, &[1, 2]), full(81, &[1])];
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        assessor.assess(&seen(listeners.clone()), &vitals, &Loads::default(), at(0));
        let report = assessor.assess(&seen(listeners), &vitals, &Loads::default(), at(300));
        let verdicts: Vec<_> = report.listeners.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Verdict::FdExhausted, Verdict::Burst]);
        assert_eq!(report.listeners[0].evidence.descriptors.map(|found| found.pid), Some(2));
    }

    #[test]
    fn what_requests_come_to_is_evidence_for_the_proxys_listeners_only() {
        let report = assess(&[], vec![full(80, &[7]), full(81, &[1])], &proxy(7));
        let known: Vec<_> = report.listeners.iter().map(|row| row.evidence.work.is_some()).collect();
        assert_eq!(known, [true, false]);
    }
}
