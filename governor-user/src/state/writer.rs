//! The thread that writes state files, so that a slow or full disk never delays an order. The newest content of each file
//! is pending until it is stored, so that what is held here is bounded by the number of files.

use super::file;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often a refusing disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Longest wait for the disk by an order that took effect already.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest wait at a stop.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Orders per file that wait for the outcome of one write at most; later ones are answered without it.
const MOST_WAITING: usize = 64;

/// The sending end.
#[derive(Debug)]
pub(super) struct Writer(Arc<Shared>);

/// What became of a [`super::StateDir::store`].
#[derive(Debug)]
pub struct Stored(oneshot::Receiver<Result<(), String>>);

/// A file whose newest content is not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstored {
    /// Its name.
    pub name: &'static str,
    /// What the system said.
    pub why: String,
    /// For how long.
    pub age: Duration,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    state: Mutex<State>,
    /// Something is to be written, or the writer is to end.
    work: Condvar,
    /// The writer has ended.
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: BTreeMap<&'static str, Pending>,
    failing: BTreeMap<&'static str, (String, Instant)>,
    is_ending: bool,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Pending {
    content: Vec<u8>,
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
    /// It was tried and is tried again later.
    was_refused: bool,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(folder: &Path) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            state: Mutex::default(),
            work: Condvar::new(),
            over: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("state".to_owned()).spawn(move || own.run())?;
        Ok(Self(shared))
    }

    pub(super) fn store(&self, name: &'static str, content: Vec<u8>) -> Stored {
        let (answer, outcome) = oneshot::channel();
        let mut state = self.0.state();
        if state.is_over {
            drop(answer.send(Err("the daemon is stopping".to_owned())));
            return Stored(outcome);
        }
        let pending = state.pending.entry(name).or_default();
        pending.content = content;
        pending.was_refused = false;
        if pending.waiting.len() < MOST_WAITING {
            pending.waiting.push(answer);
        }
        self.0.work.notify_one();
        Stored(outcome)
    }

    pub(super) fn unstored(&self) -> Vec<Unstored> {
        let state = self.0.state();
        let failing = state.failing.iter();
        failing.map(|(name, (why, since))| Unstored { name, why: why.clone(), age: since.elapsed() }).collect()
    }

    /// Ends the thread after one more attempt for each pending file; how many files are not stored.
    pub(super) fn finish(&self) -> usize {
        let mut state = self.0.state();
        state.is_ending = true;
        self.0.work.notify_one();
        let wait = self.0.over.wait_timeout_while(state, LAST_WAIT, |state| !state.is_over);
        wait.unwrap_or_else(PoisonError::into_inner).0.pending.len()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Stored {
    /// Why a restart undoes what was ordered; `None` once it is on disk. Waits for the disk, a second at most.
    pub async fn warning(self) -> Option<String> {
        let why = match tokio::time::timeout(PATIENCE, self.0).await {
            Ok(Ok(Ok(()))) => return None,
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) | Err(_) => "the disk does not answer".to_owned(),
        };
        Some(format!("in force, but not stored ({why}): a restart undoes it; governord keeps trying to store it"))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some((name, mut pending)) = self.next() {
            let written = file::replace(&self.folder.join(name), &pending.content).map_err(|error| error.to_string());
            let waiting = std::mem::take(&mut pending.waiting);
            self.note(name, pending, &written);
            for order in waiting {
                // An order whose caller has gone needs no answer.
                drop(order.send(written.clone()));
            }
        }
        self.state().is_over = true;
        self.over.notify_all();
    }

    /// The next file to write. `None` when the writer is to end.
    fn next(&self) -> Option<(&'static str, Pending)> {
        let mut state = self.state();
        loop {
            let fresh = state.pending.iter().find(|(_, pending)| !pending.was_refused).map(|(name, _)| *name);
            if let Some(name) = fresh {
                return state.pending.remove(name).map(|pending| (name, pending));
            }
            if state.is_ending {
                return None;
            }
            if state.pending.is_empty() {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timeout) = self.work.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() || state.is_ending {
                state.pending.values_mut().for_each(|pending| pending.was_refused = false);
            }
        }
    }

    fn note(&self, name: &'static str, mut pending: Pending, written: &Result<(), String>) {
        let mut state = self.state();
        let Err(why) = written else {
            if state.failing.remove(name).is_some() && !state.pending.contains_key(name) {
                tracing::info!(file = name, "a state file is stored again");
            }
            return;
        };
        let since = state.failing.get(name).map_or_else(Instant::now, |(_, since)| *since);
        if state.failing.insert(name, (why.clone(), since)).is_none() {
            tracing::error!(file = name, why, "a state file cannot be stored; a restart would undo what changed");
        }
        pending.was_refused = true;
        // Content that came meanwhile is newer.
        state.pending.entry(name).or_insert(pending);
    }
}
