//! What the tuner did and would have done, on disk: a bounded ring in the state folder. Every record has before and
//! after.

use crate::process::clock;
use crate::records::ring::{Ring, RingHealth, read};
use governor_api::{TunerAction, TunerRecord};
use std::io;
use std::path::{Path, PathBuf};

/// Records on disk at most, in bytes: some 4,000 of them.
const BYTES: u64 = 2 * 1024 * 1024;

/// Records of this run on their way to the disk.
#[derive(Debug)]
pub(super) struct Journal {
    ring: Ring,
    unsaid: Unsaid,
}

/// The log has at most one line in so many seconds about what observe mode would have done.
const SAY_EVERY: u64 = 600;

/// Records that the log has not mentioned yet.
#[derive(Debug, Default)]
struct Unsaid {
    count: u64,
    /// When the log mentioned the last ones, in seconds since 1970.
    said: Option<u64>,
}

impl Unsaid {
    /// Counts one at `at`; how many there are when the log is to mention them.
    fn note(&mut self, at: u64) -> Option<u64> {
        self.count += 1;
        if self.said.is_some_and(|said| at.saturating_sub(said) < SAY_EVERY) {
            return None;
        }
        self.said = Some(at);
        Some(std::mem::take(&mut self.count))
    }
}

impl Journal {
    /// The journal of this state folder.
    pub(super) fn open(state_dir: &Path) -> Self {
        Self { ring: Ring::open(folder(state_dir), BYTES), unsaid: Unsaid::default() }
    }

    /// Adds one and hands it to the disk.
    pub(super) fn add(&mut self, record: &TunerRecord) {
        if record.action == TunerAction::WouldRaise {
            // Once a burst: on a busy node most of the log.
            if let Some(count) = self.unsaid.note(record.at_seconds) {
                tracing::info!(
                    count,
                    newest = %record.listener,
                    "observe mode would raise backlogs; governorctl tune --dry-run lists them"
                );
            }
            self.append(record);
            return;
        }
        tracing::info!(
            listener = %record.listener,
            netns = record.listener.netns,
            action = record.action.as_str(),
            before = record.before,
            after = record.after,
            pid = record.pid,
            reason = record.reason,
            "tuner"
        );
        self.append(record);
    }

    fn append(&mut self, record: &TunerRecord) {
        self.ring.append(&serde_json::to_vec(record).expect("API types have string keys and serialize"));
        self.ring.flush();
    }

    /// How the disk fares.
    pub(super) fn health(&self) -> RingHealth {
        self.ring.health()
    }
}

/// The records of the last so many seconds, oldest first. Reads the disk: not on the daemon's loop.
///
/// # Errors
/// The folder cannot be read.
pub fn records(state_dir: &Path, last_seconds: u64) -> io::Result<Vec<TunerRecord>> {
    let from = clock::wall_seconds().saturating_sub(last_seconds);
    let segments = read(&folder(state_dir))?;
    let records = segments.iter().flatten().filter_map(|record| serde_json::from_slice::<TunerRecord>(record).ok());
    Ok(records.filter(|record| record.at_seconds >= from).collect())
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("tuner")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_mentions_observed_raises_once_in_ten_minutes() {
        let mut unsaid = Unsaid::default();
        let said: Vec<_> = [0, 1, 599, 600, 601, 1300].into_iter().map(|at| unsaid.note(at)).collect();
        assert_eq!(said, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
