//! The conversation (`exchange`) together with the socket it is written to: whoever has it in hand says what there is to
//! say, from any thread and without waiting. Reads nothing; connecting, reading and waiting are the session's task's.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use governor_common::wire::socket::Socket;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

use crate::exchange::{Exchange, Unanswered};
use crate::line::Command;
use crate::signals::Shown;

/// What is behind the line's lock.
pub(crate) struct Talk {
    pub(crate) exchange: Exchange,
    /// `None` while there is no connection.
    socket: Option<Arc<Socket>>,
    /// The connection broke at a write.
    broken: bool,
    page: watch::Receiver<Option<Arc<Shown>>>,
    /// When the task looks by itself.
    pub(crate) alarm: Option<Instant>,
    /// An empty queue with room, to be exchanged for a full one.
    pub(crate) spare: VecDeque<Command>,
}

impl Talk {
    pub(crate) fn new(exchange: Exchange, page: watch::Receiver<Option<Arc<Shown>>>) -> Self {
        Self { exchange, socket: None, broken: false, page, alarm: None, spare: VecDeque::new() }
    }

    /// A connection stands.
    pub(crate) fn connected(&mut self, socket: Arc<Socket>, now: Instant) {
        (self.socket, self.broken) = (Some(socket), false);
        self.exchange.handle_connected(now);
    }

    /// There is none any more.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        (self.socket, self.broken) = (None, false);
        self.exchange.handle_disconnected(now);
    }

    /// Says what there is to say, as far as the socket takes it. `release_since`: when the oldest release came that was
    /// not known before.
    pub(crate) fn write(&mut self, release_since: Instant, now: Instant) {
        let page = &self.page;
        self.exchange.say_releases(|| is_scarce(page), release_since, now);
        let Some(socket) = self.socket.as_ref().filter(|_| !self.broken) else { return };
        let out = self.exchange.poll_output();
        while !out.is_empty() {
            match socket.try_write(out) {
                Ok(written) => out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    debug!(%error, "the connection to the governor broke");
                    self.broken = true;
                    return;
                }
            }
        }
    }

    /// Bytes wait until the socket takes them.
    pub(crate) fn is_writing(&mut self) -> bool {
        !self.exchange.poll_output().is_empty()
    }

    /// A write failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Only the task can go on from here, or it has to look earlier than it would.
    pub(crate) fn needs_task(&mut self) -> bool {
        let earlier = |at: Instant| self.alarm.is_none_or(|alarm| at < alarm);
        let due = [self.exchange.poll_timeout(), self.exchange.lingers_until()];
        self.broken || due.into_iter().flatten().any(earlier) || (self.socket.is_some() && self.is_writing())
    }

    /// Whether slots may be scarce.
    pub(crate) fn is_scarce(&self) -> bool {
        is_scarce(&self.page)
    }

    /// Everyone is gone: the last bytes, and where they go.
    pub(crate) fn hang_up(&mut self, now: Instant) -> Option<(Arc<Socket>, BytesMut)> {
        let socket = self.socket.take()?;
        self.exchange.say_releases(|| true, now, now);
        Some((socket, mem::take(self.exchange.poll_output())))
    }

    /// Nothing is said any more: what is still owed an answer.
    pub(crate) fn end(&mut self) -> Unanswered {
        self.socket = None;
        self.exchange.end()
    }
}

/// Without a page nobody tells that slots are not scarce.
fn is_scarce(page: &watch::Receiver<Option<Arc<Shown>>>) -> bool {
    page.borrow().as_ref().is_none_or(|shown| shown.is_scarce())
}
