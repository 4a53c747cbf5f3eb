//! Decisions on disk, so that `explain` answers for a day also after a restart. Written as they are made, looked
//! through only on request; what the driver remembers itself is in `journal`.

use super::decision as views;
use crate::process::clock;
use crate::records::explain::explain;
use crate::records::journal::Entry;
use crate::records::ring::{self, Ring, RingHealth};
use governor_api::Decision;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How long a decision can be explained, in seconds.
const KEEP: u64 = 24 * 3600;

/// Decisions on disk at most, in bytes: some 150,000 of them.
const BYTES: u64 = 64 * 1024 * 1024;

/// The same for people.
pub const BOUND: &str = "decisions are kept for 24 hours, at most 64 MiB of them (some 150,000)";

/// Decisions of this run on their way to the disk.
#[derive(Debug)]
pub struct Archive(Ring);

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Seconds since 1970: the monotonic clock does not survive a boot.
    wall: u64,
    decision: Decision,
}

impl Archive {
    /// The archive of this state folder.
    #[must_use]
    pub fn open(state_dir: &Path) -> Self {
        Self(Ring::open(folder(state_dir), BYTES))
    }

    /// Adds one. It is on its way to the disk after [`Self::flush`].
    pub fn append(&mut self, entry: &Entry) {
        // The explanation is worked out from the numbers on request.
        let record = Record { wall: clock::wall_seconds(), decision: views::numbers(entry, entry.decision.at) };
        self.0.append(&serde_json::to_vec(&record).expect("API types have string keys and serialize"));
    }

    /// Whether something waits for a flush.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.is_dirty()
    }

    /// Hands everything to the disk; never waits.
    pub fn flush(&mut self) {
        self.0.flush();
    }

    /// How the disk fares.
    #[must_use]
    pub fn health(&self) -> RingHealth {
        self.0.health()
    }
}

/// Looks for a decision of the last day, of any run. Reads the disk: not on the driver's loop.
///
/// # Errors
/// The archive cannot be read.
pub fn find(state_dir: &Path, id: u64) -> io::Result<Option<Decision>> {
    let (id, wall) = (format!("{id:016x}"), clock::wall_seconds());
    let mut found = None;
    ring::newest_first(&folder(state_dir), |record| {
        let Ok(Record { wall: made, mut decision }) = serde_json::from_slice(record) else {
            return ControlFlow::Continue(());
        };
        let age = wall.saturating_sub(made);
        if age > KEEP {
            return ControlFlow::Break(());
        }
        if decision.id != id {
            return ControlFlow::Continue(());
        }
        decision.age_seconds = seconds(age);
        decision.explanation = explain(&decision);
        found = Some(decision);
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Hands over the decisions of the last so many seconds, of any run, the newest first, without explanations. Reads the
/// disk: not on the driver's loop.
///
/// # Errors
/// The archive cannot be read.
pub fn newest_first(state_dir: &Path, last_seconds: u64, mut each: impl FnMut(Decision)) -> io::Result<()> {
    let wall = clock::wall_seconds();
    ring::newest_first(&folder(state_dir), |record| {
        let Ok(Record { wall: made, mut decision }) = serde_json::from_slice(record) else {
            return ControlFlow::Continue(());
        };
        let age = wall.saturating_sub(made);
        if age > last_seconds.min(KEEP) {
            return ControlFlow::Break(());
        }
        decision.age_seconds = seconds(age);
        each(decision);
        ControlFlow::Continue(())
    })
}

/// Age in seconds of the oldest decision that is kept; `None` where none is.
///
/// # Errors
/// The archive cannot be read.
pub fn oldest(state_dir: &Path) -> io::Result<Option<u64>> {
    let record = ring::oldest(&folder(state_dir))?;
    let record = record.and_then(|record| serde_json::from_slice::<Record>(&record).ok());
    Ok(record.map(|record| clock::wall_seconds().saturating_sub(record.wall).min(KEEP)))
}

fn seconds(whole: u64) -> f64 {
    f64::from(u32::try_from(whole).unwrap_or(u32::MAX))
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("decisions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::id::{DecisionId, PoolId, SessionId};
    use governor_engine::io::{Numbers, Origin, Outcome, Reason};
    use governor_engine::time::{Duration, Instant};

    #[test]
    fn a_decision_of_an_earlier_life_is_explained_in_the_same_words() {
        let folder = tempfile::tempdir().unwrap();
        let decision = governor_engine::io::Decision {
            id: DecisionId(0x0001_0000_0000_0007),
            at: Instant::ZERO,
            session: SessionId(1),
            pool: PoolId(0),
            key: None,
            outcome: Outcome::Shed,
            reason: Reason::FairShare,
            origin: Origin::Key,
            status: 429,
            retry_after: Duration::from_secs(2),
            waited: Duration::ZERO,
            numbers: Numbers { key_in_flight: 8, share: 5, ..Numbers::default() },
            ..governor_engine::io::Decision::default()
        };
        let entry = Entry {
            decision,
            pool: "chat".to_owned(),
            label: Some("heavy".to_owned()),
            class: Some("tier0".to_owned()),
        };
        let mut archive = Archive::open(folder.path());
        archive.append(&entry);
        assert!(archive.is_dirty());
        drop(archive);
        let found = find(folder.path(), 0x0001_0000_0000_0007).unwrap().unwrap();
        let told = views::decision(&entry, Instant::ZERO);
        assert_eq!(Decision { age_seconds: 0.0, ..found }, told);
        assert_eq!(find(folder.path(), 8).unwrap(), None);
        let mut all = Vec::new();
        newest_first(folder.path(), 60, |decision| all.push(decision.id)).unwrap();
        assert_eq!(all, ["0001000000000007"]);
        assert!(oldest(folder.path()).unwrap().is_some_and(|age| age < 60));
    }
}
