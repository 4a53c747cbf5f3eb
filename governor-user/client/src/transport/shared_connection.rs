//! The line to the daemon as every handle, every lease and the session's task share it. Commands are queued from any
//! thread. Whoever asks for a slot takes up what is queued and writes to the socket itself, unless somebody else is just
//! doing that, who then looks again before he is done: no task is woken on the way out, and none on the way back when the
//! answer is there at once. What is not in such a hurry rings for the session's task (`session`), and a release that
//! somebody will look for soon anyway does not even that.
//! Decides nothing.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use governor_common::wire::request::{MemberReport, TierIs};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::governor::Counters;
use crate::lease::Lease;
use crate::lease::refused::Refused;
use crate::lease::request::AcquireRequest;
use crate::transport::connection::Talk;

/// Turns that one who asks takes for others who come meanwhile; the session's task takes the rest.
const TURNS: usize = 4;

/// What handles and leases say.
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

/// What is queued: unbounded, so that a drop never waits, and counted, so that a stall shows.
#[derive(Default)]
struct Inbox {
    commands: VecDeque<Command>,
    /// When the oldest release among them came.
    release_since: Option<Instant>,
    /// The session's task looks soon enough for a release, by itself.
    attended: bool,
    /// The last handle and the last lease are gone.
    closed: bool,
    /// The session's task is gone, and with it the session and all its leases.
    ended: bool,
}

/// The line. The session's task holds it, and so do those who can say something, by their [`Queue`].
pub(crate) struct Line {
    /// Held for a push or a swap only.
    inbox: Mutex<Inbox>,
    /// Never locked by whoever only queues: an answer may drop a lease while it is locked.
    talk: Mutex<Talk>,
    /// Calls the session's task.
    bell: Notify,
    counters: Arc<Counters>,
}

/// Why the session's task is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to take up.
    Busy,
    /// Until the bell rings.
    Rest,
    /// Nobody is left.
    Closed,
}

/// What there is to do after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// What else is due.
    Turn,
    /// More reading: answers were handed out, and that is all.
    Reading,
}

impl Line {
    fn new(talk: Talk, counters: Arc<Counters>) -> Self {
        Self { inbox: Mutex::default(), talk: Mutex::new(talk), bell: Notify::new(), counters }
    }

    /// Queues, unless the task is gone; says whether the task is to be called for it.
    fn push(&self, command: Command) -> bool {
        let lingers = matches!(command, Command::Release { .. });
        let mut inbox = self.inbox();
        if inbox.ended {
            // Unlocked first: whoever waits for an answer learns that there is none.
            drop(inbox);
            return false;
        }
        if lingers {
            inbox.release_since.get_or_insert_with(Instant::now);
        }
        inbox.commands.push_back(command);
        self.counters.queued.fetch_add(1, Ordering::Relaxed);
        !(lingers && inbox.attended)
    }

    /// Takes up what is queued, here and now, and calls the task for what it cannot do. Whoever holds the lock takes it up
    /// if this does not: both look at the queue after they had, or had not, the lock.
    fn take_turns(&self) {
        for _ in 0..TURNS {
            match self.talk.try_lock() {
                Ok(mut talk) => {
                    let now = Instant::now();
                    self.take_up(&mut talk, now);
                    talk.look(now);
                    if talk.needs_task() {
                        self.bell.notify_one();
                    }
                }
                Err(TryLockError::WouldBlock) => return,
                // The task finds out by itself, and ends.
                Err(TryLockError::Poisoned(_)) => return self.bell.notify_one(),
            }
            if self.inbox().commands.is_empty() {
                return;
            }
        }
        self.bell.notify_one();
    }

    /// Takes up everything that is queued and writes what there is to say.
    pub(crate) fn take_up(&self, talk: &mut Talk, now: Instant) {
        let mut commands = mem::take(&mut talk.spare);
        let release_since = {
            let mut inbox = self.inbox();
            mem::swap(&mut inbox.commands, &mut commands);
            inbox.release_since.take()
        };
        let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
        for command in commands.drain(..) {
            talk.exchange.handle_command(command, now);
        }
        talk.spare = commands;
        self.counters.queued.fetch_sub(count, Ordering::Relaxed);
        talk.write(release_since.unwrap_or(now), now);
    }

    /// The conversation, for the session's task. `None` when a panic cut into it: nothing is known of it any more.
    pub(crate) fn talk(&self) -> Option<MutexGuard<'_, Talk>> {
        self.talk.lock().ok()
    }

    /// Takes what has come, for the session's task: what it does then, and whether that was surely all.
    ///
    /// # Errors
    ///
    /// As for [`Talk::read`].
    pub(crate) fn listen(&self) -> rustix::io::Result<(After, bool)> {
        let Some(mut talk) = self.talk() else { return Ok((After::Turn, true)) };
        let read = talk.read(Instant::now());
        let needed = talk.needs_task();
        drop(talk);
        // Whoever found the line taken meanwhile has left what he asks in the queue.
        if needed || !self.inbox().commands.is_empty() {
            return Ok((After::Turn, read.unwrap_or(true)));
        }
        Ok((After::Reading, read?))
    }

    /// What the task does next. `attended`: it looks soon enough for releases, by itself.
    pub(crate) fn rest(&self, attended: bool) -> Next {
        let mut inbox = self.inbox();
        inbox.attended = attended;
        match (inbox.commands.is_empty(), inbox.closed) {
            (false, _) => Next::Busy,
            (true, true) => Next::Closed,
            (true, false) => Next::Rest,
        }
    }

    /// Somebody calls the session's task.
    pub(crate) async fn called(&self) {
        self.bell.notified().await;
    }

    /// The task is gone: whoever waits for an answer learns that there is none.
    pub(crate) fn end(&self) {
        let queued = {
            let mut inbox = self.inbox();
            inbox.ended = true;
            mem::take(&mut inbox.commands)
        };
        self.counters.queued.fetch_sub(u32::try_from(queued.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        drop(queued);
        let unanswered = self.talk.lock().unwrap_or_else(PoisonError::into_inner).end();
        drop(unanswered);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // The lock only ever guards a push or a swap, so a poisoned value is whole.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of the line: of a handle or of a lease.
#[derive(Clone)]
pub(crate) struct Queue(Arc<End>);

/// There as long as anybody can say anything.
struct End(Arc<Line>);

impl Queue {
    /// A new line, with the conversation that `talk` makes of the way back.
    pub(crate) fn new(talk: impl FnOnce(WeakQueue) -> Talk) -> Self {
        let counters = Arc::<Counters>::default();
        Self(Arc::new_cyclic(|end| {
            let back = WeakQueue { end: end.clone(), counters: counters.clone() };
            End(Arc::new(Line::new(talk(back), counters)))
        }))
    }

    /// Only queues: it awaits nothing and needs no runtime.
    pub(crate) fn send(&self, command: Command) {
        let line = &self.0.0;
        if line.push(command) {
            line.bell.notify_one();
        }
    }

    /// Says it now, if the daemon is to be told.
    pub(crate) fn ask(&self, command: Command) {
        let line = &self.0.0;
        line.push(command);
        line.take_turns();
    }

    /// Whether both lead to the same session.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.0.counters
    }

    /// The line, for the session's task.
    pub(crate) fn line(&self) -> Arc<Line> {
        self.0.0.clone()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.inbox().closed = true;
        self.0.bell.notify_one();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The same end as the conversation itself knows it: it keeps nothing alive.
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

#[cfg(test)]
mod tests;
