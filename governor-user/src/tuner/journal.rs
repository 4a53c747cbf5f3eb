//! What the tuner did and would have done, on disk: a bounded ring in the state folder. Every record has before and after.

use crate::control::api::TunerRecord;
use crate::daemon::clock;
use crate::daemon::ring::{Ring, RingHealth, read};
use std::io;
use std::path::{Path, PathBuf};

/// Records on disk at most, in bytes: some 4,000 of them.
const BYTES: u64 = 2 * 1024 * 1024;

/// Records of this life on their way to the disk.
#[derive(Debug)]
pub(super) struct Journal(Ring);

impl Journal {
    /// The journal of this state folder.
    pub(super) fn open(state_dir: &Path) -> Self {
        Self(Ring::open(folder(state_dir), BYTES))
    }

    /// Adds one and hands it to the disk.
    pub(super) fn add(&mut self, record: &TunerRecord) {
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
        self.0.append(&serde_json::to_vec(record).expect("API types have string keys and serialize"));
        self.0.flush();
    }

    /// How the disk fares.
    pub(super) fn health(&self) -> RingHealth {
        self.0.health()
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
