//! What the next run of the daemon has to know: what each raised listener's owner asked for, and which ones are left to
//! an operator. Kept in the state folder for one boot of the machine, because cookies are counted anew at the next.

use crate::state::{StateDir, TUNER};
use governor_health::backlog::tuner::{Kept, Memory, RaisedCap};
use governor_kernel::proc::own_namespaces::boot_id;
use serde::{Deserialize, Serialize};

/// As it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    boot: String,
    listeners: Vec<Kept>,
    caps: Vec<RaisedCap>,
}

/// Where it is kept.
#[derive(Debug)]
pub(super) struct Store {
    state: StateDir,
    boot: String,
}

impl Store {
    /// Of this state folder, and what the run before left there, if that was in this boot. A file that cannot be read is as
    /// good as none: it only means that what was raised before is taken for what owners asked for.
    pub(super) fn open(state: &StateDir) -> (Self, Memory) {
        let boot = boot_id();
        let found = state.load::<Stored>(TUNER).unwrap_or_default();
        let memory = if found.boot == boot {
            Memory { listeners: found.listeners, caps: found.caps }
        } else {
            Memory::default()
        };
        (Self { state: state.clone(), boot }, memory)
    }

    /// Keeps this from now on. Content that cannot be stored is stored later, and shown as unstored until then.
    pub(super) fn keep(&self, memory: Memory) {
        let Memory { listeners, caps } = memory;
        let content = Stored { boot: self.boot.clone(), listeners, caps };
        drop(self.state.store(TUNER, serde_json::to_vec(&content).expect("plain data serializes")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_in_the_next_run_and_not_in_the_next_boot() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept { netns: 1, cookie: 2, original: 5, set: Some(155), stood_down: false };
        let state = StateDir::open(folder.path()).unwrap();
        let (store, before) = Store::open(&state);
        assert_eq!(before, Memory::default());
        let caps = vec![RaisedCap { netns: 1, cookie: None, before: 128, after: 1024 }];
        let memory = Memory { listeners: vec![kept], caps };
        store.keep(memory.clone());
        drop((store, state));
        let state = StateDir::open(folder.path()).unwrap();
        let (mut store, found) = Store::open(&state);
        assert_eq!(found, memory);
        store.boot = "another".to_owned();
        store.keep(memory);
        state.finish();
        assert_eq!(Store::open(&state).1, Memory::default());
    }
}
