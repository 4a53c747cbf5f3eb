//! The session (`protocol::exchange`) together with its socket: the thread that holds its lock writes what is queued and reads
//! what has come, without waiting. Connecting, greeting and waiting are left to the session's task.

mod inbound;
mod speculative_read;

use crate::lease::queue::Command;
use crate::protocol::exchange::{Broken, Exchange, Unanswered};
use crate::signals::Shown;
use bytes::{Buf, BytesMut};
use governor_common::wire::socket::Socket;
use inbound::Inbound;
use rustix::io::Errno;
use speculative_read::SpeculativeRead;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

/// Room for one read.
const READ_CHUNK: usize = 16 * 1024;

/// What is behind the lock of the shared connection.
pub(crate) struct Connection {
    pub(crate) exchange: Exchange,
    /// `None` while there is no connection.
    socket: Option<Arc<Socket>>,
    /// The connection cannot go on; the task closes it.
    broken: Option<Broken>,
    /// Where reads go.
    chunk: Box<[u8]>,
    inbound: Inbound,
    speculative_read: SpeculativeRead,
    page: watch::Receiver<Option<Arc<Shown>>>,
    /// When the task looks by itself.
    pub(crate) alarm: Option<Instant>,
    /// An empty queue with room, to be exchanged for a full one.
    pub(crate) spare: VecDeque<Command>,
}

impl Connection {
    pub(crate) fn new(exchange: Exchange, page: watch::Receiver<Option<Arc<Shown>>>) -> Self {
        Self {
            exchange,
            socket: None,
            broken: None,
            chunk: vec![0; READ_CHUNK].into(),
            inbound: Inbound::default(),
            speculative_read: SpeculativeRead::new(),
            page,
            alarm: None,
            spare: VecDeque::new(),
        }
    }

    /// A connection stands.
    pub(crate) fn connected(&mut self, socket: Arc<Socket>, now: Instant) {
        (self.socket, self.broken) = (Some(socket), None);
        self.inbound.clear();
        self.exchange.handle_connected(now);
    }

    /// There is none any more.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        (self.socket, self.broken) = (None, None);
        self.exchange.handle_disconnected(now);
    }

    /// Says what there is to say, as far as the socket takes it. `release_since`: when the oldest release came that was
    /// not known before.
    pub(crate) fn write(&mut self, release_since: Instant, now: Instant) {
        let page = &self.page;
        self.exchange.say_releases(|| is_scarce(page), release_since, now);
        let Some(socket) = self.socket.as_ref().filter(|_| self.broken.is_none()) else { return };
        let out = self.exchange.poll_output();
        while !out.is_empty() {
            match socket.try_write(out) {
                Ok(written) => out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    debug!(%error, "the connection to the governor broke");
                    self.broken = Some(Broken::Retry);
                    return;
                }
            }
        }
    }

    /// Takes what has come, and says whether that was surely all.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: nothing has come. `EINTR`: it is not known. What else goes wrong breaks the connection.
    pub(crate) fn read(&mut self, now: Instant) -> rustix::io::Result<bool> {
        let Some(socket) = self.socket.as_ref().filter(|_| self.broken.is_none()) else { return Ok(true) };
        let error = match socket.try_read(&mut self.chunk) {
            Ok(count @ 1..) => {
                let all = count < self.chunk.len();
                let fresh = self.chunk.get(..count).unwrap_or_default();
                self.broken = self.inbound.hear(fresh, &mut self.exchange, now).err();
                // An answer that no caller waits for any more is given back at once.
                self.write(now, now);
                return Ok(all);
            }
            Ok(0) => ErrorKind::UnexpectedEof.into(),
            Err(error @ (Errno::AGAIN | Errno::INTR)) => return Err(error),
            Err(error) => io::Error::from(error),
        };
        debug!(%error, "the connection to the governor broke");
        self.broken = Some(Broken::Retry);
        Ok(true)
    }

    /// Takes what came with the greeting.
    pub(crate) fn hear(&mut self, fresh: &[u8], now: Instant) {
        self.broken = self.inbound.hear(fresh, &mut self.exchange, now).err();
        self.write(now, now);
    }

    /// After a question: takes its answer, if it is there already.
    pub(crate) fn look(&mut self, now: Instant) {
        if self.exchange.is_asking() && self.speculative_read.looks() {
            let something = self.read(now).is_ok();
            self.speculative_read.found(something);
        }
    }

    /// Bytes wait until the socket takes them.
    pub(crate) fn is_writing(&mut self) -> bool {
        !self.exchange.poll_output().is_empty()
    }

    /// Why the connection cannot go on, if so.
    pub(crate) fn broken(&self) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), Err)
    }

    /// Only the task can go on from here, or it has to look earlier than it would.
    pub(crate) fn needs_task(&mut self) -> bool {
        let earlier = |at: Instant| self.alarm.is_none_or(|alarm| at < alarm);
        let due = [self.exchange.poll_timeout(), self.exchange.lingers_until()];
        self.broken.is_some() || due.into_iter().flatten().any(earlier) || (self.socket.is_some() && self.is_writing())
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

/// Without a page slots count as scarce.
fn is_scarce(page: &watch::Receiver<Option<Arc<Shown>>>) -> bool {
    page.borrow().as_ref().is_none_or(|shown| shown.is_scarce())
}
