//! What a later life of the daemon has to know: what each raised listener's owner asked for, and which ones are left to
//! an operator. Kept in the state folder for one boot of the machine, because cookies are counted anew at the next.

use crate::state::{StateDir, TUNER};
use governor_kernel::proc::own_namespaces::boot_id;
use serde::{Deserialize, Serialize};

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
    /// Its cookie, where the kernel tells it: another namespace may get the inode number.
    #[serde(default)]
    pub(super) cookie: Option<u64>,
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
    state: StateDir,
    boot: String,
    kept: Memory,
}

impl Store {
    /// As it was left, if that was in this boot. A file that cannot be read is as good as none: it only means that what
    /// was raised before is taken for what owners asked for.
    pub(super) fn open(state: &StateDir) -> Self {
        let boot = boot_id();
        let found = state.load::<Memory>(TUNER).unwrap_or_default();
        let kept = if found.boot == boot { found } else { Memory::default() };
        Self { state: state.clone(), boot, kept }
    }

    /// What is kept.
    pub(super) fn kept(&self) -> &Memory {
        &self.kept
    }

    /// Keeps this from now on. Content that cannot be stored is stored later, and shown as unstored until then.
    pub(super) fn keep(&mut self, listeners: Vec<Kept>, caps: Vec<RaisedCap>) {
        let memory = Memory { boot: self.boot.clone(), listeners, caps };
        if memory != self.kept {
            drop(self.state.store(TUNER, serde_json::to_vec(&memory).expect("plain data serializes")));
            self.kept = memory;
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
        let state = StateDir::open(folder.path()).unwrap();
        let mut store = Store::open(&state);
        assert!(store.kept().listeners.is_empty());
        store.keep(vec![kept.clone()], vec![RaisedCap { netns: 1, cookie: None, before: 128, after: 1024 }]);
        drop((store, state));
        let state = StateDir::open(folder.path()).unwrap();
        let mut store = Store::open(&state);
        assert_eq!(store.kept().listeners, std::slice::from_ref(&kept));
        store.boot = "another".to_owned();
        store.keep(vec![kept], Vec::new());
        state.finish();
        assert_eq!(Store::open(&state).kept().listeners, []);
    }
}
