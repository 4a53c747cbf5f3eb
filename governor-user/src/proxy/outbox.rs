//! Bytes waiting to go to one proxy. Bounded: a proxy that does not read is disconnected at the bound and never stalls
//! the driver or another session.

use bytes::{Bytes, BytesMut};
use governor_common::wire::codec;
use governor_common::wire::error::EncodeError;
use governor_common::wire::reply::{ErrorCode, Reply};
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes a session may leave unread: some 10,000 grants.
pub const BOUND: usize = 1 << 20;

/// Room for the answers of one turn: some 200 grants.
const ROOM: usize = 8 * 1024;

/// The driver's end.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

/// The session's end.
#[derive(Debug)]
pub struct Drain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ready: Notify,
    /// Somebody may be stuck in a write when the bound is passed.
    cut: Notify,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    descriptor: Option<Arc<OwnedFd>>,
    end: Option<End>,
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

/// Makes both ends.
#[must_use]
pub fn channel() -> (Outbox, Drain) {
    let shared = Arc::new(Shared::default());
    // What is taken leaves room of the same size behind, or comes back to it once it is written.
    shared.state().bytes.reserve(ROOM);
    (Outbox(Arc::clone(&shared)), Drain(shared))
}

impl Outbox {
    /// Queues one frame. After an end it queues nothing.
    pub fn push(&self, reply: &Reply, request: u32) {
        self.queue(request, |bytes| codec::encode_reply(reply, request, bytes));
    }

    /// Queues the frame of a grant: lease, milliseconds waited, member.
    pub fn grant(&self, grant: (u64, u32, Option<&str>), request: u32) {
        self.queue(request, |bytes| codec::encode_grant(grant, request, bytes));
    }

    fn queue(&self, request: u32, encode: impl FnOnce(&mut BytesMut) -> Result<(), EncodeError>) {
        let mut state = self.0.state();
        if state.end.is_some() {
            return;
        }
        let told = !state.bytes.is_empty();
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
        } else if !told {
            // Who takes the bytes takes all of them: it is told of the first.
            self.0.ready.notify_one();
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
                if !state.bytes.is_empty() {
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
        // The lock is held for a copy of bytes only; a panic there leaves them whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_queued_before_a_close_still_goes_out() {
        let (outbox, drain) = channel();
        outbox.push(&Reply::Pong, 7);
        outbox.close();
        outbox.push(&Reply::Pong, 8);
        let mut alone = BytesMut::new();
        codec::encode_reply(&Reply::Pong, 7, &mut alone).unwrap();
        assert_eq!(drain.next().await.unwrap().bytes, alone);
        assert_eq!(drain.next().await.unwrap_err(), End::Closed);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_cut_at_the_bound() {
        let (outbox, drain) = channel();
        for request in 0..u32::try_from(BOUND).unwrap() {
            outbox.push(&Reply::Pong, request);
        }
        assert_eq!(drain.next().await.unwrap_err(), End::SlowReader);
    }
}
