//! Bytes waiting to go to one proxy. The driver writes them itself as far as the socket takes them at once: to wake the
//! session for that would cost more than the write. What is left is the session's to write. Bounded: a proxy that does
//! not read is disconnected at the bound and never stalls the driver or another session.

use super::gate::Gate;
use bytes::{Buf, Bytes, BytesMut};
use governor_common::wire::codec;
use governor_common::wire::error::{EncodeError, FrameError};
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_common::wire::socket::Socket;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes a session may leave unread: some 10,000 grants.
pub const BOUND: usize = 1 << 20;

/// Bytes that all sessions together may leave unread. Beyond, a session that leaves more than [`SMALL`] unread is
/// disconnected, so that all of them leave at most this and, each, `SMALL` and a frame.
pub const TOTAL: usize = 64 << 20;

/// Bytes that a session may leave unread however many all sessions leave.
pub const SMALL: usize = 32 * 1024;

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

/// Bytes that all sessions together leave unread. Those of an iteration that the sockets take at once are not counted.
#[derive(Clone, Debug, Default)]
pub struct Unread(Arc<AtomicUsize>);

#[derive(Debug)]
struct Shared {
    socket: Arc<Socket>,
    gate: Gate,
    unread: Unread,
    state: Mutex<State>,
    /// There is something for the session to do.
    ready: Notify,
    /// The session's task may be stuck in a write when the bound is passed.
    cut: Notify,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    descriptor: Option<Arc<OwnedFd>>,
    end: Option<End>,
    /// The session is writing what it took: what is queued comes after that.
    is_writing: bool,
    /// Bytes of this session in [`Unread`]: those the session writes, and those queued behind what the socket did not
    /// take.
    counted: usize,
    /// Bytes the session is writing.
    writing: usize,
    /// The newest limits, while something before them is unread: older ones are worth nothing.
    limits: Option<Bytes>,
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
    /// What the proxy sends can be cut into no frames.
    BadStream(FrameError),
    /// The proxy left [`BOUND`] bytes unread, or too many of what all sessions may.
    SlowReader,
}

/// Makes both ends of what goes to this socket.
#[must_use]
pub fn channel(socket: Arc<Socket>, unread: Unread) -> (Outbox, Drain) {
    let state = Mutex::new(State { bytes: BytesMut::with_capacity(ROOM), ..State::default() });
    let (ready, cut, gate) = (Notify::default(), Notify::default(), Gate::default());
    let shared = Arc::new(Shared { socket, gate, unread, state, ready, cut });
    (Outbox(Arc::clone(&shared)), Drain(shared))
}

impl Outbox {
    /// Queues one frame; says whether it is the first of what [`Self::flush`] is to be called for. After an end it
    /// queues nothing.
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
            // Only a list the daemon made can be too long: the proxy is notified that something is missing.
            tracing::error!(%error, "a reply does not fit a frame");
            let message = "the answer does not fit a frame".to_owned();
            codec::encode_reply(&Reply::Error { code: ErrorCode::Malformed, message }, request, &mut state.bytes).ok();
        }
        if state.is_behind() {
            self.0.count(&mut state);
        }
        if state.bytes.len() > BOUND {
            self.0.cut_off(&mut state);
        }
        first
    }

    /// Queues frames that replace what was published before: at most one of them waits behind what the proxy leaves
    /// unread. The same answer as of [`Self::push`].
    #[must_use]
    pub fn publish(&self, limits: &Bytes) -> bool {
        let mut state = self.0.state();
        if state.end.is_some() {
            return false;
        }
        if state.is_behind() {
            state.limits = Some(limits.clone());
            return false;
        }
        let first = state.bytes.is_empty();
        state.bytes.extend_from_slice(limits);
        first
    }

    /// How far the driver is behind what the proxy sends.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Writes what is queued as far as there is room, and leaves the rest to the session. Never waits.
    pub fn flush(&self) {
        let mut state = self.0.state();
        if state.bytes.is_empty() {
            return;
        }
        // The session comes back for what is queued when it has written what it took.
        if state.is_writing {
            self.0.count(&mut state);
            return;
        }
        // A socket that failed does so for the session as well, which ends by it.
        let written = match state.descriptor {
            None => self.0.socket.try_write(&state.bytes).unwrap_or(0),
            Some(_) => 0,
        };
        if written < state.bytes.len() {
            state.bytes.advance(written);
            self.0.count(&mut state);
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
    pub fn close(&self, why: End) {
        self.0.state().end.get_or_insert(why);
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
                // What it took before is written.
                state.writing = 0;
                let bytes = match state.bytes.is_empty() {
                    false => {
                        state.writing = state.bytes.len();
                        Some(state.bytes.split().freeze())
                    }
                    true => state.limits.take(),
                };
                state.is_writing = bytes.is_some();
                self.0.count(&mut state);
                if let Some(bytes) = bytes {
                    return Ok(Batch { bytes, descriptor: state.descriptor.take() });
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

impl State {
    /// Something is queued that the socket did not take at once.
    fn is_behind(&self) -> bool {
        self.is_writing || self.counted > 0
    }
}

impl Shared {
    /// Brings what all sessions leave unread up to date, and cuts this one off when that is too much.
    fn count(&self, state: &mut State) {
        let now = state.bytes.len() + state.writing;
        let unread = &self.unread.0;
        let before = std::mem::replace(&mut state.counted, now);
        let total = if now >= before {
            unread.fetch_add(now - before, Ordering::Relaxed) + (now - before)
        } else {
            unread.fetch_sub(before - now, Ordering::Relaxed) - (before - now)
        };
        if total > TOTAL && now > SMALL {
            self.cut_off(state);
        }
    }

    fn cut_off(&self, state: &mut State) {
        state.end = Some(End::SlowReader);
        self.cut.notify_one();
        self.ready.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The lock is held to copy bytes or to try to write them; a panic there leaves them whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let counted = self.state().counted;
        self.unread.0.fetch_sub(counted, Ordering::Relaxed);
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
        let (outbox, drain) = channel(Arc::new(Socket::new(ours).unwrap()), Unread::default());
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
        outbox.close(End::Closed);
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

    #[tokio::test]
    async fn limits_that_are_not_read_replace_each_other() {
        let (outbox, drain, theirs) = connected();
        let limits = |n: u8| Bytes::from(vec![n; 8]);
        assert!(outbox.publish(&limits(1)));
        outbox.flush();
        assert_eq!(heard(&theirs), [1; 8]);
        let mut request = 0;
        let batch = loop {
            say(&outbox, request);
            outbox.flush();
            request += 1;
            if let Some(batch) = drain.next().now_or_never() {
                break batch.unwrap();
            }
        };
        for n in 2..9 {
            assert!(!outbox.publish(&limits(n)));
        }
        assert!(!batch.bytes.is_empty());
        assert_eq!(drain.next().await.unwrap().bytes, limits(8), "one is left, the newest");
        assert!(drain.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn all_sessions_together_leave_a_bounded_amount_unread() {
        let unread = Unread::default();
        let open = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (outbox, drain) = channel(Arc::new(Socket::new(ours).unwrap()), unread.clone());
            (outbox, drain, theirs)
        };
        let all: Vec<_> = (0..2 * TOTAL / BOUND).map(|_| open()).collect();
        let long = Reply::Registered { leases: vec![(1, 1); SMALL / 16] };
        for (outbox, ..) in &all {
            // As much as one session may leave unread, besides what its socket takes.
            for _ in 0..(BOUND + (200 << 10)) / SMALL {
                assert!(outbox.push(&long, 1) || outbox.0.state().is_behind());
                outbox.flush();
            }
        }
        let cut = all.iter().filter(|(outbox, ..)| outbox.0.state().end == Some(End::SlowReader)).count();
        let left = unread.0.load(Ordering::Relaxed);
        assert!(cut > 0 && left <= TOTAL + all.len() * (2 * SMALL + 64), "{cut} cut, {left} bytes left");
        drop(all);
        assert_eq!(unread.0.load(Ordering::Relaxed), 0);
    }
}
