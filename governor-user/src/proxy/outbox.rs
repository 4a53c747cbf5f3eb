//! Bytes waiting to go to one proxy. The driver writes them itself as far as the socket takes them at once: to wake the
//! session for that would cost more than the write. What is left is the session's to write. Bounded: a proxy that does
//! not read is disconnected at the bound and never stalls the driver or another session.

use bytes::{Buf, Bytes, BytesMut};
use governor_common::wire::codec;
use governor_common::wire::error::EncodeError;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_common::wire::socket::Socket;
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes a session may leave unread: some 10,000 grants.
pub const BOUND: usize = 1 << 20;

/// Room for the answers of one turn: some 200 grants.
const ROOM: usize = 8 * 1024;

/// Room that is kept for the next turn at most.
const MOST_ROOM: usize = 8 * ROOM;

/// The driver's end.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

/// The session's end.
#[derive(Debug)]
pub struct Drain(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: Arc<Socket>,
    state: Mutex<State>,
    /// There is something for the session to do.
    ready: Notify,
    /// Somebody may be stuck in a write when the bound is passed.
    cut: Notify,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    descriptor: Option<Arc<OwnedFd>>,
    end: Option<End>,
    /// The session is writing what it took: what is queued comes after that.
    is_writing: bool,
}

/// What is to be written next.
#[derive(Debug)]
pub struct Batch {
    /// At least one byte.
    pub bytes: Bytes,
    /// Travels with the first of them.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// Why nothing more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The daemon is done with this session.
    Closed,
    /// The proxy left [`BOUND`] bytes unread.
    SlowReader,
}

/// Makes both ends of what goes to this socket.
#[must_use]
pub fn channel(socket: Arc<Socket>) -> (Outbox, Drain) {
    let state = State { bytes: BytesMut::with_capacity(ROOM), ..State::default() };
    let shared =
        Arc::new(Shared { socket, state: Mutex::new(state), ready: Notify::default(), cut: Notify::default() });
    (Outbox(Arc::clone(&shared)), Drain(shared))
}

impl Outbox {
    /// Queues one frame; says whether it is the first of what [`Self::flush`] is to be called for. After an end it queues
    /// nothing.
    #[must_use]
    pub fn push(&self, reply: &Reply, request: u32) -> bool {
        self.queue(request, |bytes| codec::encode_reply(reply, request, bytes))
    }

    /// Queues the frame of a grant: lease, milliseconds waited, member.
    #[must_use]
    pub fn grant(&self, grant: (u64, u32, Option<&str>), request: u32) -> bool {
        self.queue(request, |bytes| codec::encode_grant(grant, request, bytes))
    }

    fn queue(&self, request: u32, encode: impl FnOnce(&mut BytesMut) -> Result<(), EncodeError>) -> bool {
        let mut state = self.0.state();
        if state.end.is_some() {
            return false;
        }
        let first = state.bytes.is_empty();
        if let Err(error) = encode(&mut state.bytes) {
            // Only a list the daemon made can be too long: the proxy is told that something is missing.
            tracing::error!(%error, "a reply does not fit a frame");
            let message = "the answer does not fit a frame".to_owned();
            codec::encode_reply(&Reply::Error { code: ErrorCode::Malformed, message }, request, &mut state.bytes).ok();
        }
        if state.bytes.len() > BOUND {
            state.end = Some(End::SlowReader);
            self.0.cut.notify_one();
            self.0.ready.notify_one();
        }
        first
    }

    /// Writes what is queued as far as there is room, and leaves the rest to the session. Never waits.
    pub fn flush(&self) {
        let mut state = self.0.state();
        // The session comes back for what is queued when it has written what it took.
        if state.is_writing || state.bytes.is_empty() {
            return;
        }
        // A socket that failed does so for the session as well, which ends by it.
        let written = match state.descriptor {
            None => self.0.socket.try_write(&state.bytes).unwrap_or(0),
            Some(_) => 0,
        };
        if written < state.bytes.len() {
            state.bytes.advance(written);
            self.0.ready.notify_one();
        } else if state.bytes.capacity() > MOST_ROOM {
            state.bytes = BytesMut::with_capacity(ROOM);
        } else {
            state.bytes.clear();
        }
    }

    /// Sends a descriptor with the next bytes, which are those of the next frame or come before it.
    pub fn attach(&self, descriptor: Arc<OwnedFd>) {
        self.0.state().descriptor = Some(descriptor);
    }

    /// Ends the session after what is queued.
    pub fn close(&self) {
        self.0.state().end.get_or_insert(End::Closed);
        self.0.ready.notify_one();
    }
}

impl Drain {
    /// The next bytes to write, or the end.
    ///
    /// # Errors
    /// Nothing more will come, and why.
    pub async fn next(&self) -> Result<Batch, End> {
        loop {
            {
                let mut state = self.0.state();
                if state.end == Some(End::SlowReader) {
                    return Err(End::SlowReader);
                }
                state.is_writing = !state.bytes.is_empty();
                if state.is_writing {
                    let (bytes, descriptor) = (state.bytes.split().freeze(), state.descriptor.take());
                    return Ok(Batch { bytes, descriptor });
                }
                if let Some(end) = state.end {
                    return Err(end);
                }
            }
            self.0.ready.notified().await;
        }
    }

    /// Ends when the proxy has left too much unread: what is being written will not go through either.
    pub async fn cut(&self) {
        while self.0.state().end != Some(End::SlowReader) {
            self.0.cut.notified().await;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The lock is held to copy bytes or to try to write them; a panic there leaves them whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    fn connected() -> (Outbox, Drain, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (outbox, drain) = channel(Arc::new(Socket::new(ours).unwrap()));
        (outbox, drain, theirs)
    }

    fn say(outbox: &Outbox, request: u32) -> bool {
        outbox.push(&Reply::Pong, request)
    }

    fn frame(request: u32) -> BytesMut {
        let mut bytes = BytesMut::new();
        codec::encode_reply(&Reply::Pong, request, &mut bytes).unwrap();
        bytes
    }

    /// What there is to read now.
    fn heard(mut theirs: &UnixStream) -> Vec<u8> {
        let mut all = Vec::new();
        assert_eq!(theirs.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::WouldBlock);
        all
    }

    #[tokio::test]
    async fn the_answers_of_a_turn_are_written_together_and_leave_the_session_alone() {
        let (outbox, drain, theirs) = connected();
        for turn in 0..3 {
            assert_eq!([say(&outbox, turn), say(&outbox, 7)], [true, false]);
            assert_eq!(heard(&theirs), b"", "the turn is not over");
            outbox.flush();
            assert_eq!(heard(&theirs), [frame(turn), frame(7)].concat());
            assert!(drain.next().now_or_never().is_none(), "nothing is left to do");
        }
    }

    #[tokio::test]
    async fn what_finds_no_room_is_left_to_the_session_and_nothing_overtakes_it() {
        let (outbox, drain, theirs) = connected();
        let mut told = Vec::new();
        let mut tell = |request| {
            say(&outbox, request);
            outbox.flush();
            told.extend_from_slice(&frame(request));
        };
        let mut request = 0;
        let batch = loop {
            tell(request);
            request += 1;
            if let Some(batch) = drain.next().now_or_never() {
                break batch.unwrap();
            }
        };
        let mut read = heard(&theirs);
        // There is room again, but not yet for this.
        tell(request);
        assert_eq!(heard(&theirs), b"");
        read.extend_from_slice(&batch.bytes);
        read.extend_from_slice(&drain.next().await.unwrap().bytes);
        assert!(drain.next().now_or_never().is_none(), "all is written");
        tell(request + 1);
        read.extend(heard(&theirs));
        assert!(read == told, "{} of {} bytes, or in another order", read.len(), told.len());
    }

    #[tokio::test]
    async fn a_descriptor_is_left_to_the_session_with_all_that_comes_with_it() {
        let (outbox, drain, theirs) = connected();
        outbox.attach(Arc::new(theirs.try_clone().unwrap().into()));
        assert!(say(&outbox, 1));
        outbox.flush();
        assert!(!say(&outbox, 2));
        outbox.flush();
        assert_eq!(heard(&theirs), b"");
        let batch = drain.next().await.unwrap();
        assert!(batch.descriptor.is_some());
        assert_eq!(batch.bytes, [frame(1), frame(2)].concat());
    }

    #[tokio::test]
    async fn a_socket_that_failed_is_left_to_the_session() {
        let (outbox, drain, theirs) = connected();
        drop(theirs);
        assert!(say(&outbox, 1));
        outbox.flush();
        assert_eq!(drain.next().await.unwrap().bytes, frame(1));
    }

    #[tokio::test]
    async fn what_is_queued_before_a_close_still_goes_out() {
        let (outbox, drain, _theirs) = connected();
        assert!(say(&outbox, 7));
        outbox.close();
        assert!(!say(&outbox, 8));
        assert_eq!(drain.next().await.unwrap().bytes, frame(7));
        assert_eq!(drain.next().await.unwrap_err(), End::Closed);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_cut_at_the_bound() {
        let (outbox, drain, _theirs) = connected();
        for request in 0..u32::try_from(BOUND).unwrap() {
            say(&outbox, request);
            outbox.flush();
        }
        drain.cut().await;
        assert_eq!(drain.next().await.unwrap_err(), End::SlowReader);
    }
}
