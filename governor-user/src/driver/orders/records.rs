//! What people later read of orders: decisions, with the names they had, and how refusals are counted and logged.

use crate::driver::Driver;
use crate::driver::sessions::light::is_light;
use crate::driver::sessions::translate;
use crate::naming;
use crate::records::journal::Entry;
use governor_engine::id::RequestId;
use governor_engine::io::Decision;

impl Driver {
    /// A request is refused: kept for `explain`, counted, and answered with the same words.
    pub(super) fn refused(&mut self, request: RequestId, decision: &Decision) {
        let entry = self.entry(decision.clone());
        let reply = translate::shed(&entry);
        let reason = naming::reason(decision.reason);
        if is_light(decision) {
            self.parts.recorder.refused_light(&entry.pool, reason);
        }
        let id = format_args!("d-{:016x}", decision.id.0);
        tracing::debug!(pool = entry.pool, reason, decision = %id, "request shed");
        self.keep(entry);
        self.send(decision.session, request.0, &reply);
    }

    pub(super) fn keep(&mut self, entry: Entry) {
        self.parts.archive.append(&entry);
        self.journal.record(entry);
    }

    pub(super) fn entry(&self, decision: Decision) -> Entry {
        Entry {
            pool: self.parts.engine.pool_name(decision.pool).unwrap_or_default().to_owned(),
            label: decision.key.and_then(|key| self.labels.of(key)).map(str::to_owned),
            class: decision.class.and_then(|class| self.parts.engine.class_name(class)).map(str::to_owned),
            decision,
        }
    }
}
