//! Writes down what the tuner records: the journal, the counters, and the events.

use super::Runner;
use crate::config::TunerMode;
use crate::driver::messages::{Ask as DriverAsk, Message};
use crate::process::clock;
use crate::records::audit::{ITSELF, event};
use governor_api::{Event, TunerAction, TunerRecord, TunerSetting, TunerWhich};
use governor_health::backlog::tuner::Record;

impl Runner {
    /// Into the journal, the counters, and, if the system changed, the events.
    pub(super) async fn record(&mut self, record: Record) {
        *self.counts.entry(record.action).or_default() += 1;
        let by = record.by.unwrap_or_else(|| ITSELF.to_owned());
        let record = TunerRecord {
            at: clock::wall_time(),
            at_seconds: clock::wall_seconds(),
            listener: record.listener,
            action: record.action,
            by,
            before: record.before,
            after: record.after,
            wanted: record.wanted,
            limit: record.limit.map(|limit| limit.as_str().to_owned()),
            pid: record.pid,
            reason: record.reason,
        };
        self.journal.add(&record);
        let notable = matches!(record.action, TunerAction::StandDown | TunerAction::Resume);
        if record.action.acts() || notable {
            let action = format!("tune {}", record.action.as_str());
            let subject = record.listener.to_string();
            let event = event(&record.by, &action, &subject, &record.before, &record.after, Some(record.reason));
            self.send_event(event).await;
        }
    }

    /// Records a run-time setting that came or went among the events.
    pub(super) async fn record_mode(
        &self,
        which: &TunerWhich,
        by: &str,
        before: Option<&TunerSetting>,
        after: Option<TunerMode>,
    ) {
        let before = before.map(|setting| setting.mode.clone());
        let after = after.map(|mode| mode.as_str().to_owned());
        self.send_event(event(by, "tune mode", &which.to_string(), &before, &after, None)).await;
    }

    /// A driver that is gone keeps no record; journal and log have it.
    async fn send_event(&self, event: Event) {
        if let Some(driver) = self.driver.upgrade() {
            drop(driver.send(Message::Ask(DriverAsk::Record(Box::new(event)))).await);
        }
    }
}
