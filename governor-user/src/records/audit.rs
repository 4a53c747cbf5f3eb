//! What operators changed and what ended by itself, on disk: who, when, what was and what is. A bounded ring; the log
//! has the same lines. Knows nothing of what the changes do.

use crate::process::clock;
use crate::records::event_log::{level, words};
use crate::records::ring::{Ring, RingHealth, read};
use governor_api::Event;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Events on disk at most, in bytes: some 15,000 of them.
const BYTES: u64 = 4 * 1024 * 1024;

/// The actor of an event without one: something ended by itself.
pub const ITSELF: &str = "governord";

/// An event of this moment. `before` and `after` are whatever the API shows of the thing; `None` is nothing.
#[must_use]
pub fn event<T: Serialize>(
    by: &str,
    action: &str,
    subject: &str,
    before: &T,
    after: &T,
    reason: Option<String>,
) -> Event {
    let json = |value: &T| serde_json::to_value(value).expect("API types have string keys and serialize");
    Event {
        at: clock::wall_time(),
        at_seconds: clock::wall_seconds(),
        by: by.to_owned(),
        action: action.to_owned(),
        subject: subject.to_owned(),
        before: json(before),
        after: json(after),
        reason,
    }
}

/// Events of this run on their way to the disk.
#[derive(Debug)]
pub struct Audit(Ring);

impl Audit {
    /// The audit of this state folder.
    #[must_use]
    pub fn open(state_dir: &Path) -> Self {
        Self(Ring::open(folder(state_dir), BYTES))
    }

    /// Adds one and hands it to the disk.
    pub fn record(&mut self, event: &Event) {
        let (before, after) = (words(&event.before), words(&event.after));
        let Event { action, subject, by, reason, .. } = event;
        if level(event) == tracing::Level::WARN {
            tracing::warn!(action, subject, by, before, after, reason, "changed");
        } else {
            tracing::info!(action, subject, by, before, after, reason, "changed");
        }
        self.0.append(&serde_json::to_vec(event).expect("API types have string keys and serialize"));
        self.0.flush();
    }

    /// How the disk fares.
    #[must_use]
    pub fn health(&self) -> RingHealth {
        self.0.health()
    }
}

/// The events of the last so many seconds, oldest first. Reads the disk: not on the driver's loop.
///
/// # Errors
/// The folder cannot be read.
pub fn events(state_dir: &Path, last_seconds: u64) -> io::Result<Vec<Event>> {
    let from = clock::wall_seconds().saturating_sub(last_seconds);
    let records = read(&folder(state_dir))?;
    let events = records.iter().flatten().filter_map(|record| serde_json::from_slice::<Event>(record).ok());
    Ok(events.filter(|event| event.at_seconds >= from).collect())
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_read_back_in_order_and_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let now = clock::wall_seconds();
        let event = |at_seconds: u64, subject: &str| Event {
            at: String::new(),
            at_seconds,
            by: "uid 0".into(),
            action: "set".into(),
            subject: subject.into(),
            before: json!(null),
            after: json!({ "cap": 5 }),
            reason: Some("abuse".into()),
        };
        let mut audit = Audit::open(folder.path());
        for (at, subject) in [(now - 7200, "old"), (now - 60, "a"), (now, "b")] {
            audit.record(&event(at, subject));
        }
        drop(audit);
        assert_eq!(events(folder.path(), 3600).unwrap(), [event(now - 60, "a"), event(now, "b")]);
        assert_eq!(events(&folder.path().join("nowhere"), 3600).unwrap(), []);
    }
}
