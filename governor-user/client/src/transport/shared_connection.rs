//! The connection to the daemon as handles and the session's task share it. A thread that asks for a slot drains the command
//! queue and writes to the socket itself: no task is woken on the way out, and none on the way back when the answer is there
//! at once. If another thread holds the connection's lock, that thread looks at the queue again after it has unlocked.
//! Decides nothing.

use crate::lease::queue::{Command, CommandQueue, Next, Queue};
use crate::sync::{Mutex, MutexGuard};
use crate::transport::connection::Connection;
use std::mem;
use std::sync::{Arc, PoisonError, TryLockError};
use tokio::time::Instant;

/// Times that a thread which asks drains the queue for others that push meanwhile; the session's task drains the rest.
/// One in the model, where few threads push.
const ROUNDS: usize = if cfg!(shuttle) { 1 } else { 4 };

/// The connection and the queue that it drains.
pub(crate) struct SharedConnection {
    commands: Arc<CommandQueue>,
    /// Never locked by a thread that only queues: an answer may drop a lease while it is locked.
    connection: Mutex<Connection>,
}

/// What there is to do after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// What else is due.
    Turn,
    /// More reading: answers were handed out, and that is all.
    Reading,
}

impl SharedConnection {
    pub(crate) fn new(queue: &Queue, connection: Connection) -> Self {
        Self { commands: queue.commands(), connection: Mutex::new(connection) }
    }

    /// Queues and drains the queue here and now, unless another thread does that already.
    pub(crate) fn ask(&self, command: Command) {
        self.commands.push(command);
        self.drain();
    }

    /// Drains the queue here and now, and notifies the task for what only it can do. A thread that finds the lock taken leaves
    /// its command to the thread that holds it: both look at the queue after they had, or had not, the lock.
    fn drain(&self) {
        for _ in 0..ROUNDS {
            match self.connection.try_lock() {
                Ok(mut connection) => {
                    let now = Instant::now();
                    self.take_up(&mut connection, now);
                    connection.look(now);
                    if connection.needs_task() {
                        self.commands.notify();
                    }
                }
                Err(TryLockError::WouldBlock) => return,
                // The task finds out by itself, and ends.
                Err(TryLockError::Poisoned(_)) => return self.commands.notify(),
            }
            if self.commands.is_empty() {
                return;
            }
        }
        self.commands.notify();
    }

    /// Hands everything that is queued to the session and writes the frames that come of it.
    pub(crate) fn take_up(&self, connection: &mut Connection, now: Instant) {
        let mut commands = mem::take(&mut connection.spare);
        let release_since = self.commands.take(&mut commands);
        for command in commands.drain(..) {
            connection.exchange.handle_command(command, now);
        }
        connection.spare = commands;
        connection.write(release_since.unwrap_or(now), now);
    }

    /// The connection, for the session's task. `None` after a panic while it was locked: its state is unknown.
    pub(crate) fn connection(&self) -> Option<MutexGuard<'_, Connection>> {
        self.connection.lock().ok()
    }

    /// Takes what has come, for the session's task: what it does then, and whether that was surely all.
    ///
    /// # Errors
    ///
    /// As for [`Connection::read`].
    pub(crate) fn listen(&self) -> rustix::io::Result<(After, bool)> {
        let Some(mut connection) = self.connection() else { return Ok((After::Turn, true)) };
        let read = connection.read(Instant::now());
        let needed = connection.needs_task();
        drop(connection);
        // A thread that found the lock taken meanwhile has left its command in the queue.
        if needed || !self.commands.is_empty() {
            return Ok((After::Turn, read.unwrap_or(true)));
        }
        Ok((After::Reading, read?))
    }

    /// What the task does next. `attended`: it drains the queue soon enough for releases without being notified.
    pub(crate) fn rest(&self, attended: bool) -> Next {
        self.commands.rest(attended)
    }

    /// Waits until the session's task is notified.
    pub(crate) async fn notified(&self) {
        self.commands.notified().await;
    }

    /// For the model.
    #[cfg(shuttle)]
    pub(crate) fn notify(&self) -> &crate::sync::Notify {
        self.commands.notify_of_task()
    }

    /// The task is gone: callers that wait for an answer learn that there is none.
    pub(crate) fn end(&self) {
        self.commands.end();
        let unanswered = self.connection.lock().unwrap_or_else(PoisonError::into_inner).end();
        drop(unanswered);
    }
}

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, not(shuttle)))]
mod tests;
