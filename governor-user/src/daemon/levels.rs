//! What the driver makes of a report: the level that proxies are told, the level that the engine acts by, and a record for
//! people of both and of the verdicts of listeners that feed them.

use super::audit::{ITSELF, event};
use super::driver::Driver;
use super::messages::Message;
use super::page::SignalPage;
use super::translate;
use crate::overload::loads::NamedLoad;
use crate::overload::monitors::cause_names;
use crate::overload::{Judged, Loads, Report, Verdict};
use governor_common::wire::reply::{Level, Overload, Reply};
use governor_engine::io::Input;
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::watch;

/// Advice for refusals that a proxy makes by itself while the level is above normal.
const OVERLOAD_RETRY_AFTER_MS: u32 = 1000;

/// What comes and goes is recorded this often at most: the events of operators must not drown in it.
const RECORD_EVERY: Duration = Duration::from_secs(10);

/// Listeners whose verdicts are recorded.
const MOST_RECORDED: usize = 64;

/// Levels and verdicts as they were recorded last.
#[derive(Debug, Default)]
pub(super) struct LevelLog {
    told: Recorded<Level>,
    shedding: Recorded<Level>,
    /// Of listeners that feed the level, by network namespace, place and cookie.
    verdicts: BTreeMap<(u64, SocketAddr, Option<u64>), Recorded<Verdict>>,
}

#[derive(Debug, Default)]
struct Recorded<T> {
    state: T,
    at: Option<Instant>,
}

impl<T: PartialEq> Recorded<T> {
    /// Whether this state has to be recorded now, and what was before.
    fn note(&mut self, state: T, now: Instant) -> Option<T> {
        if state == self.state || self.at.is_some_and(|at| now.since(at) < RECORD_EVERY) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::replace(&mut self.state, state))
    }
}

/// Brings the driver every report, until it is over.
pub(super) async fn forward(mut reports: watch::Receiver<Arc<Report>>, driver: WeakSender<Message>) {
    let mut goes_on = true;
    while goes_on {
        goes_on = reports.changed().await.is_ok();
        let report = if goes_on {
            Arc::clone(&reports.borrow_and_update())
        } else {
            // A level that nobody looks after must not refuse work.
            tracing::error!("the overload thread ended: no overload signals from now on");
            Arc::default()
        };
        let Some(driver) = driver.upgrade() else { return };
        goes_on &= driver.send(Message::Report(report)).await.is_ok();
    }
}

impl Driver {
    /// Takes what the last observation came to, and tells the thread that made it what the engine carries by now.
    pub fn heed(&mut self, report: Arc<Report>, now: Instant) {
        self.report = report;
        let pressure = &self.report.pressure;
        if self.level.update(pressure.permille, pressure.urgent, now) {
            let overload = self.overload();
            // The event of the change is logged as well, at its own level, though not more often than every 10 seconds.
            tracing::debug!(
                level = overload.level.as_str(),
                pressure = overload.pressure,
                causes = cause_names(overload.causes).join(","),
                "overload level changed"
            );
            self.broadcast(&Reply::Overload(overload));
            self.parts.page.iter_mut().for_each(SignalPage::hurry);
        }
        if self.shedding.update(self.report.pressure.shedding, false, now) {
            let level = translate::level(self.shedding.level());
            self.parts.engine.handle_input(Input::OverloadChanged { level }, now);
        }
        self.record_levels(now);
        self.record_verdicts(now);
        // The thread that reads them may have ended.
        self.parts.loads.send_replace(Arc::new(self.loads()));
    }

    /// The level as proxies are told of it.
    pub(super) fn overload(&self) -> Overload {
        Overload {
            level: self.level.level(),
            pressure: self.report.pressure.permille,
            causes: self.report.pressure.causes,
            retry_after_ms: if self.level.level() == Level::Normal { 0 } else { OVERLOAD_RETRY_AFTER_MS },
        }
    }

    fn record_levels(&mut self, now: Instant) {
        let why = |pressure: u16| format!("pressure {pressure} ‰: {}", cause_names(self.overload().causes).join(", "));
        let told = (self.level.level(), why(self.report.pressure.permille), "level");
        let shedding = (self.shedding.level(), why(self.report.pressure.shedding), "shed level");
        for ((level, why, action), recorded) in
            [(told, &mut self.level_log.told), (shedding, &mut self.level_log.shedding)]
        {
            if let Some(before) = recorded.note(level, now) {
                let reason = (level != Level::Normal).then_some(why);
                self.parts.audit.record(&event(ITSELF, action, "", &before.as_str(), &level.as_str(), reason));
            }
        }
    }

    fn record_verdicts(&mut self, now: Instant) {
        let watched = || self.report.listeners.iter().filter(|row| row.watched).take(MOST_RECORDED);
        let id = |row: &Judged| (row.netns, SocketAddr::new(row.address, row.port), row.cookie);
        if self.level_log.verdicts.len() > watched().count() {
            let there: BTreeSet<_> = watched().map(id).collect();
            self.level_log.verdicts.retain(|id, _| there.contains(id));
        }
        for row in watched() {
            let id = id(row);
            if let Some(before) = self.level_log.verdicts.entry(id).or_default().note(row.verdict, now) {
                let reason = row.verdict.sentence(&row.evidence);
                let (place, after) = (id.1.to_string(), row.verdict.as_str());
                self.parts.audit.record(&event(ITSELF, "verdict", &place, &before.as_str(), &after, Some(reason)));
            }
        }
    }

    fn loads(&self) -> Loads {
        let engine = &self.parts.engine;
        let oldest = engine.oldest_parked();
        Loads {
            counted: engine.counted(),
            cap: self.parts.policy.node.cap,
            proxies: self.connected().filter_map(|(_, session)| session.peer.in_proc()).collect(),
            pools: engine
                .pools()
                .filter_map(|pool| {
                    Some(NamedLoad {
                        name: engine.pool_name(pool)?.to_owned(),
                        load: engine.pool_figures(pool)?,
                        oldest: oldest.get(&pool).map(|arrived| self.now.since(*arrived)),
                    })
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_flaps_is_recorded_once_in_a_while_and_as_it_is_then() {
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let mut recorded = Recorded::<Level>::default();
        assert_eq!(recorded.note(Level::Normal, at(0)), None);
        assert_eq!(recorded.note(Level::High, at(1)), Some(Level::Normal));
        assert_eq!(recorded.note(Level::Normal, at(2)), None);
        assert_eq!(recorded.note(Level::Overloaded, at(3)), None);
        assert_eq!(recorded.note(Level::Elevated, at(11)), Some(Level::High));
        assert_eq!(recorded.note(Level::Elevated, at(99)), None);
    }
}
