//! What the driver makes of a report: the level that proxies are notified of, the level that the engine acts by, and a
//! record of what the [transitions](governor_health::transitions) selects.

use super::messages::Message;
use crate::driver::Driver;
use crate::driver::sessions::page::SignalPage;
use crate::driver::sessions::translate;
use crate::records::audit::{ITSELF, event};
use governor_common::wire::reply::{Level, Overload, Reply};
use governor_engine::io::Input;
use governor_engine::time::Instant;
use governor_health::Loads;
use governor_health::Report;
use governor_health::pressure::loads::NamedLoad;
use governor_health::pressure::monitors::cause_names;
use governor_health::transitions::Entry;
use std::sync::Arc;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::watch;

/// Advice for refusals that a proxy makes by itself while the level is above normal.
const OVERLOAD_RETRY_AFTER_MS: u32 = 1000;

/// Brings the driver every report, until it is over.
pub(crate) async fn forward(mut reports: watch::Receiver<Arc<Report>>, driver: WeakSender<Message>) {
    let mut goes_on = true;
    while goes_on {
        goes_on = reports.changed().await.is_ok();
        let report = if goes_on {
            Arc::clone(&reports.borrow_and_update())
        } else {
            // A level that is no longer updated must not refuse work.
            tracing::error!("the overload thread ended: no overload signals from now on");
            Arc::default()
        };
        let Some(driver) = driver.upgrade() else { return };
        goes_on &= driver.send(Message::Report(report)).await.is_ok();
    }
}

impl Driver {
    /// Applies the last report, and publishes the engine's load for the thread that makes reports.
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
        self.record(now);
        // The thread that reads them may have ended.
        self.parts.loads.send_replace(Arc::new(self.loads()));
    }

    /// The level as proxies receive it.
    pub(super) fn overload(&self) -> Overload {
        Overload {
            level: self.level.level(),
            pressure: self.report.pressure.permille,
            causes: self.report.pressure.causes,
            retry_after_ms: if self.level.level() == Level::Normal { 0 } else { OVERLOAD_RETRY_AFTER_MS },
        }
    }

    fn record(&mut self, now: Instant) {
        for entry in self.transitions.absorb(&self.report, self.level.level(), self.shedding.level(), now) {
            let Entry { action, subject, before, after, reason } = entry;
            self.parts.audit.record(&event(ITSELF, action, &subject, &before, &after, reason));
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
