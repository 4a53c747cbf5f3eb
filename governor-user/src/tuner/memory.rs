//! What a later life of the daemon has to know: what each raised listener's owner asked for, and which ones are left to
//! an operator. Kept in the state folder for one boot of the machine, because cookies are counted anew at the next.

use crate::config::overrides::replace;
use crate::own_namespaces::boot_id;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One listener that is not as its owner left it, or not to be touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Inode number of its network namespace.
    pub(super) netns: u64,
    /// Its cookie.
    pub(super) cookie: u64,
    /// What its owner asked for.
    pub(super) original: u32,
    /// What it was raised to.
    pub(super) set: Option<u32>,
    /// It is left to an operator.
    pub(super) stood_down: bool,
}

/// A namespace whose somaxconn was raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RaisedCap {
    /// Its inode number.
    pub(super) netns: u64,
    /// What it was.
    pub(super) before: u32,
    /// What it was raised to.
    pub(super) after: u32,
}

/// Everything that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    boot: String,
    /// Listeners.
    pub(super) listeners: Vec<Kept>,
    /// Namespaces.
    pub(super) caps: Vec<RaisedCap>,
}

/// Where it is kept.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    boot: String,
    kept: Memory,
}

impl Store {
    /// As it was left, if that was in this boot. A file that cannot be read is as good as none: it only means that what
    /// was raised before is taken for what owners asked for.
    pub(super) fn open(state_dir: &Path) -> Self {
        let path = state_dir.join("tuner.json");
        let boot = boot_id();
        let found = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Memory>(&bytes).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "what was raised before is not known");
                Memory::default()
            }),
            Err(_) => Memory::default(),
        };
        let kept = if found.boot == boot { found } else { Memory::default() };
        Self { path, boot, kept }
    }

    /// What is kept.
    pub(super) fn kept(&self) -> &Memory {
        &self.kept
    }

    /// Keeps this from now on. What cannot be written is logged: the journal has it too.
    pub(super) fn keep(&mut self, listeners: Vec<Kept>, caps: Vec<RaisedCap>) {
        let memory = Memory { boot: self.boot.clone(), listeners, caps };
        if memory == self.kept {
            return;
        }
        let text = serde_json::to_vec(&memory).expect("plain data serializes");
        match replace(&self.path, &text) {
            Ok(()) => self.kept = memory,
            Err(error) => tracing::error!("a restart would not know what was raised: {error:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_in_the_next_life_and_not_in_the_next_boot() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept { netns: 1, cookie: 2, original: 5, set: Some(155), stood_down: false };
        let mut store = Store::open(folder.path());
        assert!(store.kept().listeners.is_empty());
        store.keep(vec![kept.clone()], vec![RaisedCap { netns: 1, before: 128, after: 1024 }]);
        let mut store = Store::open(folder.path());
        assert_eq!(store.kept().listeners, std::slice::from_ref(&kept));
        store.boot = "another".to_owned();
        store.keep(vec![kept], Vec::new());
        assert_eq!(Store::open(folder.path()).kept().listeners, []);
        std::fs::write(folder.path().join("tuner.json"), "{").unwrap();
        assert_eq!(Store::open(folder.path()).kept().caps, []);
    }
}
