//! The state folder: what the daemon keeps over a restart, one small file each, and the folders of its logs. Held by one
//! daemon at a time. None of it is needed to start: a file that is damaged, or that another user could have written, is
//! moved aside, reported, and the daemon goes on without it. Knows names and bounds of the files, not what they mean.

pub mod file;
mod lock;
#[cfg(test)]
mod tests;
mod writer;

use anyhow::{Context, Result, bail};
use file::Damage;
use governor_observation::wording::counted;
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use writer::Writer;
pub use writer::{Stored, Unstored};

/// Damaged files of one name that are kept aside at most; the last place is used again.
const MOST_ASIDE: u32 = 8;

/// Findings that are listed at most.
const MOST_LISTED: usize = 64;

/// A file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Its name.
    pub name: &'static str,
    /// What is lost with it.
    pub holds: &'static str,
    /// Bytes at most; a longer one is damaged.
    most: u64,
}

/// Settings that were changed at run time.
pub const OVERRIDES: StateFile =
    StateFile { name: "overrides.json", holds: "settings changed by governorctl set", most: 16 << 20 };
/// The bypass switch.
pub const BYPASS: StateFile = StateFile { name: "bypass.json", holds: "the bypass switch", most: 4096 };
/// Overrides of single keys.
pub const KEYS: StateFile = StateFile { name: "keys.json", holds: "overrides of keys", most: 64 << 20 };
/// Orders for single members.
pub const MEMBERS: StateFile = StateFile { name: "members.json", holds: "orders for members", most: 16 << 20 };
/// The drain of the node.
pub const DRAIN: StateFile = StateFile { name: "drain.json", holds: "the order to drain the node", most: 65_536 };
/// Leases in flight.
pub const LEASES: StateFile = StateFile { name: "leases.json", holds: "the leases of the previous run", most: 1 << 30 };
/// The number of the last start.
pub const EPOCH: StateFile = StateFile { name: "epoch", holds: "the number of the previous run", most: 64 };
/// Backlogs as their owners had set them.
pub const TUNER: StateFile = StateFile { name: "tuner.json", holds: "the original backlogs", most: 64 << 20 };

/// Modes that operators set for single listeners.
pub const TUNER_SETTINGS: StateFile =
    StateFile { name: "tuner-settings.json", holds: "the tuner's modes for single listeners", most: 1 << 20 };

/// Every file.
pub const FILES: [StateFile; 9] = [OVERRIDES, BYPASS, KEYS, MEMBERS, DRAIN, LEASES, EPOCH, TUNER, TUNER_SETTINGS];

/// Every folder of a log.
pub const LOGS: [&str; 4] = ["decisions", "events", "demand", "tuner"];

/// The folder of this process. Cheap to clone; free again when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct StateDir(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    is_new: bool,
    damaged: Mutex<Vec<Damaged>>,
    writer: Writer,
    /// Declared last: the lock is released after the writer has ended.
    _lock: File,
}

/// Something in the folder that was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
    /// Its name now; `None`: it could not be moved.
    pub aside: Option<String>,
}

impl StateDir {
    /// Takes the folder, making it (mode 0700) unless it is there, and moves aside what cannot be a log of ours.
    ///
    /// # Errors
    /// Another daemon has it, it cannot be made, or other users could write to it.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make the folder of {shown}"))?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("cannot make the state folder {shown}: see daemon.state_dir"))?,
        }
        let handle = File::open(path).with_context(|| format!("cannot open the state folder {shown}"))?;
        let metadata = handle.metadata().with_context(|| format!("cannot look at the state folder {shown}"))?;
        if !metadata.is_dir() {
            bail!("the state folder {shown} is not a folder: see daemon.state_dir");
        }
        if let Err(why) = file::check_owner(&metadata) {
            let mode = metadata.permissions().mode() & 0o7777;
            bail!("the state folder {shown} (uid {}, mode {mode:04o}) {why}: chown and chmod go-w it", metadata.uid());
        }
        lock::take(&handle, path)?;
        let mut entries = fs::read_dir(path).with_context(|| format!("cannot read the state folder {shown}"))?;
        let folder = Self(Arc::new(Inner {
            path: path.to_owned(),
            is_new: entries.next().is_none(),
            damaged: Mutex::default(),
            writer: Writer::start(path).context("the system refuses a thread")?,
            _lock: handle,
        }));
        for name in LOGS {
            if let Err(why) = file::check_folder(&path.join(name)) {
                folder.set_aside(name, "records of earlier runs", &why);
            }
        }
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether it was empty when it was opened: no daemon has run with it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.0.is_new
    }

    /// Reads and parses a JSON file. `None`: it is not there, or it was damaged and is moved aside.
    #[must_use]
    pub fn load<T: DeserializeOwned>(&self, file: StateFile) -> Option<T> {
        self.load_with(file, |bytes| serde_json::from_slice(bytes).map_err(|error| error.to_string()))
    }

    /// As [`Self::load`] with another parser, which says what is wrong.
    #[must_use]
    pub fn load_with<T>(&self, file: StateFile, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        match read_with(self.path(), file, parse) {
            Ok(found) => found,
            Err(damage) => {
                self.set_aside(file.name, file.holds, &damage);
                None
            }
        }
    }

    /// Has the file replaced on the writer's thread; never waits. Content that cannot be stored now is stored as soon as
    /// that becomes possible, unless newer content comes first.
    pub fn store(&self, file: StateFile, content: Vec<u8>) -> Stored {
        self.0.writer.store(file.name, content)
    }

    /// Replaces the file now, on the caller's thread.
    ///
    /// # Errors
    /// The folder cannot be written; the old content stays.
    pub fn store_now(&self, file: StateFile, content: &[u8]) -> io::Result<()> {
        file::replace(&self.path().join(file.name), content)
    }

    /// What was found damaged since the start.
    #[must_use]
    pub fn damaged(&self) -> Vec<Damaged> {
        self.0.damaged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a restart would lose, because it could not be stored.
    #[must_use]
    pub fn unstored(&self) -> Vec<Unstored> {
        self.0.writer.unstored()
    }

    /// Stores what is pending and ends the writer, within a few seconds.
    pub fn finish(&self) {
        let left = self.0.writer.finish();
        if left > 0 {
            tracing::error!("{} could not be stored before the stop", counted(left, "state file", "state files"));
        }
    }

    fn set_aside(&self, name: &str, holds: &str, damage: &Damage) {
        let aside = move_aside(self.path(), name)
            .inspect_err(|error| tracing::error!(file = name, %error, "a damaged file cannot be moved aside"))
            .ok();
        let damaged = Damaged { name: name.to_owned(), why: damage.to_string(), aside };
        tracing::error!(
            folder = %self.path().display(),
            file = damaged.name,
            aside = damaged.aside,
            "{} is not used: {}; {holds} are lost",
            damaged.name,
            damaged.why
        );
        let mut all = self.0.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_LISTED {
            all.push(damaged);
        }
    }
}

/// Reads a file of a state folder that may be in use; changes nothing.
///
/// # Errors
/// It is there and damaged.
pub fn read_with<T>(
    folder: &Path,
    file: StateFile,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, Damage> {
    match file::read(&folder.join(file.name), file.most)? {
        None => Ok(None),
        Some(bytes) if bytes.is_empty() => Err(Damage::Empty),
        Some(bytes) => parse(&bytes).map(Some).map_err(Damage::Content),
    }
}

/// Renames `name` to the first free `name.damaged-N`, or to the last one.
fn move_aside(folder: &Path, name: &str) -> io::Result<String> {
    let place = |number: u32| format!("{name}.damaged-{number}");
    let is_free = |number: &u32| fs::symlink_metadata(folder.join(place(*number))).is_err();
    let aside = place((1..=MOST_ASIDE).find(is_free).unwrap_or(MOST_ASIDE));
    fs::rename(folder.join(name), folder.join(&aside))?;
    Ok(aside)
}
