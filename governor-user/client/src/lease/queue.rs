//! What handles and leases ask of the session, queued from any thread. Queueing never waits and needs no runtime, so that a
//! dropped lease can do it anywhere. Knows no connection: `transport` drains the queue.

use crate::lease::Lease;
use crate::lease::refused::Refused;
use crate::lease::request::AcquireRequest;
use crate::stats::Counters;
use crate::sync::{Mutex, MutexGuard, Notify};
use governor_common::wire::request::{MemberReport, TierIs};
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What is asked of the session.
#[derive(Debug)]
pub(crate) enum Command {
    Acquire { ticket: u64, ask: Box<AcquireRequest>, reply: oneshot::Sender<Result<Lease, Refused>> },
    Cancel { ticket: u64 },
    Release { slot: u64 },
    Move { slot: u64, reply: oneshot::Sender<Result<Arc<str>, Refused>> },
    Suspend { slot: u64 },
    Resume { slot: u64, max_wait: Option<Duration>, reply: oneshot::Sender<Result<(), Refused>> },
    Tier(TierIs),
    Report(MemberReport),
}

/// Unbounded, so that a drop never waits, and counted, so that a stall shows.
#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    /// When the oldest release among them came.
    release_since: Option<Instant>,
    /// The session's task drains the queue soon enough for a release without being notified.
    attended: bool,
    /// The last handle and the last lease are gone.
    closed: bool,
    /// The session's task is gone, and with it the session and all its leases.
    ended: bool,
}

/// The queue as those who drain it see it.
#[derive(Default)]
pub(crate) struct CommandQueue {
    /// Held for a push or a swap only.
    state: Mutex<State>,
    /// Notifies the session's task.
    notify: Notify,
    counters: Arc<Counters>,
}

/// Why the session's task is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The queue is not empty.
    Busy,
    /// Nothing to do until it is notified.
    Rest,
    /// No handle and no lease is left, and the queue is empty.
    Closed,
}

impl CommandQueue {
    /// Queues, unless the task is gone; says whether the task is to be notified for it.
    pub(crate) fn push(&self, command: Command) -> bool {
        let lingers = matches!(command, Command::Release { .. });
        let mut state = self.state();
        if state.ended {
            // Unlocked first: dropping the command wakes its caller, who learns that there is no answer.
            drop(state);
            return false;
        }
        if lingers {
            state.release_since.get_or_insert_with(Instant::now);
        }
        state.commands.push_back(command);
        self.counters.queued.fetch_add(1, Ordering::Relaxed);
        !(lingers && state.attended)
    }

    /// Exchanges everything that is queued for `commands`, which is empty; when the oldest release among it came.
    pub(crate) fn take(&self, commands: &mut VecDeque<Command>) -> Option<Instant> {
        let since = {
            let mut state = self.state();
            mem::swap(&mut state.commands, commands);
            state.release_since.take()
        };
        self.counters.queued.fetch_sub(u32::try_from(commands.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        since
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().commands.is_empty()
    }

    /// What the task does next. `attended`: it drains the queue soon enough for releases without being notified.
    pub(crate) fn rest(&self, attended: bool) -> Next {
        let mut state = self.state();
        state.attended = attended;
        match (state.commands.is_empty(), state.closed) {
            (false, _) => Next::Busy,
            (true, true) => Next::Closed,
            (true, false) => Next::Rest,
        }
    }

    /// Notifies the session's task.
    pub(crate) fn notify(&self) {
        self.notify.notify_one();
    }

    /// Waits until the session's task is notified.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// For the model.
    #[cfg(shuttle)]
    pub(crate) fn notify_of_task(&self) -> &Notify {
        &self.notify
    }

    /// The session's task is gone: callers of what is queued and of what is queued later learn that there is no answer.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        let mut queued = VecDeque::new();
        self.take(&mut queued);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The lock only ever guards a push or a swap, so a poisoned value is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue as handles and leases hold it: it is closed when the last of these is gone.
#[derive(Clone)]
pub(crate) struct Queue(Arc<End>);

struct End(Arc<CommandQueue>);

impl Queue {
    pub(crate) fn new() -> Self {
        Self(Arc::new(End(Arc::default())))
    }

    /// Queues, and notifies the session's task if it is to drain the queue now.
    pub(crate) fn send(&self, command: Command) {
        if self.0.0.push(command) {
            self.0.0.notify();
        }
    }

    /// Whether both lead to the same session.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.0.counters
    }

    /// The same for those who drain it: keeps nothing open.
    pub(crate) fn commands(&self) -> Arc<CommandQueue> {
        self.0.0.clone()
    }

    /// The same for leases that are given later: keeps nothing open.
    pub(crate) fn downgrade(&self) -> WeakQueue {
        WeakQueue { end: Arc::downgrade(&self.0), counters: self.0.0.counters.clone() }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.notify();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// A [`Queue`] that keeps nothing open.
#[derive(Clone)]
pub(crate) struct WeakQueue {
    end: Weak<End>,
    counters: Arc<Counters>,
}

impl WeakQueue {
    /// `None` when no handle and no lease is left.
    pub(crate) fn upgrade(&self) -> Option<Queue> {
        self.end.upgrade().map(Queue)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}
