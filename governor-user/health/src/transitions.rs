//! What people later read of levels, upstreams and verdicts: which changes are recorded, and with which words. Pure; writing
//! the records down is the driver's part.

mod incident;

use self::incident::{Incident, Reading, Step};
use super::Judged;
use super::Report;
use super::Verdict;
use governor_common::wire::reply::Level;
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Each state of a thing is recorded this often at most, so that one that comes and goes does not fill the journal.
const RECORD_EVERY: Duration = Duration::from_secs(10);

/// Listeners whose verdicts are recorded.
const MOST_LISTENERS: usize = 64;

/// States as they were recorded last. Bounded by `MOST_LISTENERS` and by the configured pools.
#[derive(Debug)]
pub struct Transitions {
    /// A pool's upstream is down when it has failed for so long.
    hold: Duration,
    notified: Incident,
    shedding: Incident,
    /// Pools whose upstream is down, by name.
    upstreams: BTreeMap<String, Recorded<bool>>,
    /// Of listeners that feed the level, by network namespace, place and cookie.
    verdicts: BTreeMap<(u64, SocketAddr, Option<u64>), Recorded<Verdict>>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `level`, `shed level`, `upstream` or `verdict`.
    pub action: &'static str,
    /// The pool or the listener's place; empty for the node.
    pub subject: String,
    /// State before.
    pub before: &'static str,
    /// State after.
    pub after: &'static str,
    /// Why, with numbers.
    pub reason: Option<String>,
}

#[derive(Debug, Default)]
struct Recorded<T> {
    state: T,
    /// The states recorded within [`RECORD_EVERY`], with their times.
    lately: Vec<(T, Instant)>,
}

impl<T: Copy + PartialEq> Recorded<T> {
    /// Whether this state has to be recorded now, and what was before. A new state is recorded at once, so that what a short
    /// incident came to is not lost behind its first step; one that was recorded lately is not repeated.
    fn note(&mut self, state: T, now: Instant) -> Option<T> {
        self.lately.retain(|(_, at)| now.since(*at) < RECORD_EVERY);
        if state == self.state || self.lately.iter().any(|(recorded, _)| *recorded == state) {
            return None;
        }
        self.lately.push((state, now));
        Some(std::mem::replace(&mut self.state, state))
    }
}

impl Transitions {
    /// With nothing recorded. `hold` as in [`Thresholds`](super::Thresholds).
    #[must_use]
    pub fn new(hold: Duration) -> Self {
        Self {
            hold,
            notified: Incident::default(),
            shedding: Incident::default(),
            upstreams: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// Takes a report, with the level that proxies are notified of and the one that requests are shed by; what has to be
    /// recorded now.
    pub fn absorb(&mut self, report: &Report, notified: Level, shedding: Level, now: Instant) -> Vec<Entry> {
        let mut entries = Vec::new();
        let pressure = &report.pressure;
        for (action, level, permille, incident) in [
            ("level", notified, pressure.permille, &mut self.notified),
            ("shed level", shedding, pressure.shedding, &mut self.shedding),
        ] {
            let step = incident.note(Reading { level, pressure: permille, causes: pressure.causes }, now);
            entries.extend(step.map(|Step { before, after, reason }| Entry {
                action,
                subject: String::new(),
                before: before.as_str(),
                after: after.as_str(),
                reason: Some(reason),
            }));
        }
        self.note_upstreams(report, now, &mut entries);
        self.note_verdicts(report, now, &mut entries);
        entries
    }

    fn note_upstreams(&mut self, report: &Report, now: Instant, entries: &mut Vec<Entry>) {
        self.upstreams.retain(|name, _| report.pools.iter().any(|pool| pool.name == *name));
        for pool in &report.pools {
            if !self.upstreams.contains_key(&pool.name) {
                self.upstreams.insert(pool.name.clone(), Recorded::default());
            }
            let Some(recorded) = self.upstreams.get_mut(&pool.name) else { continue };
            let is_down = pool.is_down(self.hold);
            if recorded.note(is_down, now).is_some() {
                let (before, after) = if is_down { ("up", "down") } else { ("down", "up") };
                let reason = is_down.then(|| pool.failing_members());
                entries.push(Entry { action: "upstream", subject: pool.name.clone(), before, after, reason });
            }
        }
    }

    fn note_verdicts(&mut self, report: &Report, now: Instant, entries: &mut Vec<Entry>) {
        let watched =
            || report.listeners.iter().map(AsRef::as_ref).filter(|row: &&Judged| row.watched).take(MOST_LISTENERS);
        let id = |row: &Judged| (row.netns, SocketAddr::new(row.address, row.port), row.cookie);
        if self.verdicts.len() > watched().count() {
            let there: BTreeSet<_> = watched().map(id).collect();
            self.verdicts.retain(|id, _| there.contains(id));
        }
        for row in watched() {
            let id = id(row);
            if let Some(before) = self.verdicts.entry(id).or_default().note(row.verdict, now) {
                entries.push(Entry {
                    action: "verdict",
                    subject: id.1.to_string(),
                    before: before.as_str(),
                    after: row.verdict.as_str(),
                    reason: Some(row.verdict.sentence(&row.evidence)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::evidence::PoolWork;

    #[test]
    fn a_state_that_flaps_is_recorded_once_in_a_while_and_as_it_is_then() {
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let mut recorded = Recorded::<Verdict>::default();
        assert_eq!(recorded.note(Verdict::Ok, at(0)), None);
        assert_eq!(recorded.note(Verdict::AcceptStarved, at(1)), Some(Verdict::Ok));
        assert_eq!(recorded.note(Verdict::AcceptorStalled, at(2)), Some(Verdict::AcceptStarved), "it grew worse");
        assert_eq!(recorded.note(Verdict::Ok, at(3)), Some(Verdict::AcceptorStalled));
        assert_eq!(recorded.note(Verdict::AcceptStarved, at(4)), None, "it comes and goes");
        assert_eq!(recorded.note(Verdict::Ok, at(5)), None);
        assert_eq!(recorded.note(Verdict::AcceptStarved, at(11)), Some(Verdict::Ok));
        assert_eq!(recorded.note(Verdict::AcceptStarved, at(99)), None);
    }

    #[test]
    fn an_upstream_that_goes_down_and_works_again_is_recorded() {
        let mut transitions = Transitions::new(Duration::from_secs(2));
        let pool = PoolWork { name: "chat".into(), usable: 14, cooling: 13, failing: 14, ..PoolWork::default() };
        let mut at = |seconds: u64, down_seconds| {
            let report = Report { pools: vec![PoolWork { down_seconds, ..pool.clone() }], ..Report::default() };
            transitions.absorb(&report, Level::Normal, Level::Normal, Instant::ZERO.after(Duration::from_secs(seconds)))
        };
        assert_eq!((at(0, 0.0), at(1, 1.0)), (vec![], vec![]), "a moment is no outage");
        let down = at(2, 2.0);
        assert_eq!((down[0].action, &*down[0].subject, down[0].after), ("upstream", "chat", "down"));
        assert!(down[0].reason.as_deref().is_some_and(|reason| reason.contains("13 of 14 members")), "{down:?}");
        assert_eq!(at(30, 30.0), []);
        assert_eq!(at(40, 0.0)[0].after, "up");
    }
}
