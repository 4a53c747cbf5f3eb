//! The stream of a session: cut into frames, each parsed once, and turns between sessions: how many frames of one session the
//! loop handles in an iteration, and what waits for the next. A session with more than that goes on in round robin, so that
//! another session's frame waits for a bounded number of frames of each session before it.

use crate::driver::Driver;
use crate::transport::outbox::End;
use bytes::{Bytes, BytesMut};
use governor_common::wire::codec::read_request;
use governor_common::wire::error::FrameError;
use governor_common::wire::frame::{FrameRef, next_frame};
use governor_common::wire::reply::Reply;
use governor_engine::id::SessionId;
use governor_engine::io::Input;
use governor_engine::time::{Duration, Instant};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Frames of one session in an iteration at most. A proxy that asks 16 at a time and releases as many needs half.
pub const FRAMES_PER_TURN: u32 = 64;

/// A frame counts once more for each so many bytes: lists of leases are long.
const BYTES_PER_FRAME: usize = 512;

/// What of one session waits for its next turn, and what is left of this one.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The iteration that `left` is of.
    iteration: u64,
    left: u32,
    /// What was not handled yet, with the size of the message it came in.
    waiting: VecDeque<(Bytes, usize)>,
    /// The beginning of a frame whose rest has not come: shorter than the longest frame.
    begun: BytesMut,
    /// A length out of bounds was found in the stream: the session is being closed, and what still comes is not looked at.
    is_broken: bool,
    /// The connection is over: handled when nothing waits any more.
    lost: Option<(String, oneshot::Sender<Duration>)>,
}

impl Turn {
    /// What was begun and these bytes, if that is at least one frame or can be none; else nothing, and all of it is begun. So
    /// each byte of a long frame is copied once, however short the pieces are that it comes in.
    fn whole(&mut self, bytes: Bytes) -> Bytes {
        if self.begun.is_empty() {
            return bytes;
        }
        self.begun.extend_from_slice(&bytes);
        match next_frame(&mut &self.begun[..]) {
            Ok(None) => Bytes::new(),
            Ok(Some(_)) | Err(_) => std::mem::take(&mut self.begun).freeze(),
        }
    }
}

impl Driver {
    /// Takes more of a session's stream: as many frames as its turn allows now, the rest in later iterations.
    pub(crate) fn take_bytes(&mut self, session: SessionId, bytes: Bytes, now: Instant) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let size = bytes.len();
        if !state.turn.waiting.is_empty() {
            state.turn.waiting.push_back((bytes, size));
        } else if let Some(rest) = self.handle_bytes(session, bytes, now) {
            if let Some(state) = self.sessions.get_mut(&session) {
                state.turn.waiting.push_back((rest, size));
                self.waiting.push_back(session);
            }
        } else {
            self.left_gate(session, size);
        }
    }

    /// Handles more of each session that waits.
    pub(crate) fn serve_waiting(&mut self, now: Instant) {
        self.iteration += 1;
        for _ in 0..self.waiting.len() {
            let Some(session) = self.waiting.pop_front() else { return };
            while let Some((bytes, size)) = self.next_waiting(session) {
                if let Some(rest) = self.handle_bytes(session, bytes, now) {
                    if let Some(state) = self.sessions.get_mut(&session) {
                        state.turn.waiting.push_front((rest, size));
                        self.waiting.push_back(session);
                    }
                    break;
                }
                self.left_gate(session, size);
            }
            self.end_waiting(session, now);
        }
    }

    /// Whether some session has bytes that wait for their turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The connection of a session is over: after what waits.
    pub(crate) fn lose(&mut self, session: SessionId, why: String, grace: oneshot::Sender<Duration>, now: Instant) {
        if let Some(state) = self.sessions.get_mut(&session)
            && !state.turn.waiting.is_empty()
        {
            state.turn.lost = Some((why, grace));
            return;
        }
        self.lost_connection(session, &why, grace, now);
    }

    fn next_waiting(&mut self, session: SessionId) -> Option<(Bytes, usize)> {
        self.sessions.get_mut(&session)?.turn.waiting.pop_front()
    }

    fn end_waiting(&mut self, session: SessionId, now: Instant) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if state.turn.waiting.is_empty()
            && let Some((why, grace)) = state.turn.lost.take()
        {
            self.lost_connection(session, &why, grace, now);
        }
    }

    /// Handles frames as far as the session's turn goes; gives back what is left for its next one. A beginning of a frame stays
    /// with the session.
    fn handle_bytes(&mut self, session: SessionId, bytes: Bytes, now: Instant) -> Option<Bytes> {
        let iteration = self.iteration;
        let turn = &mut self.sessions.get_mut(&session)?.turn;
        if turn.is_broken {
            return None;
        }
        if turn.iteration != iteration {
            (turn.iteration, turn.left) = (iteration, FRAMES_PER_TURN);
        }
        let mut left = turn.left;
        let mut bytes = turn.whole(bytes);
        let mut rest = &bytes[..];
        let mut end = Ok(());
        while left > 0 {
            match next_frame(&mut rest) {
                Ok(Some(frame)) => {
                    let more = u32::try_from(frame.body.len() / BYTES_PER_FRAME).unwrap_or(u32::MAX);
                    left = left.saturating_sub(more.saturating_add(1));
                    self.handle_frame(session, frame, now);
                }
                Ok(None) => break,
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        let unread = rest.len();
        if let Err(error) = end {
            self.break_off(session, error);
            return None;
        }
        let turn = &mut self.sessions.get_mut(&session)?.turn;
        turn.left = left;
        if left == 0 && unread > 0 {
            return Some(bytes.split_off(bytes.len() - unread));
        }
        // One read at most: what was begun before it is a whole frame by now, or all of it is in `begun` already.
        turn.begun.extend_from_slice(bytes.get(bytes.len() - unread..).unwrap_or_default());
        None
    }

    /// A frame that is not understood is answered, and the session lives on.
    fn handle_frame(&mut self, session: SessionId, frame: FrameRef<'_>, now: Instant) {
        match read_request(frame) {
            Ok(request) => self.request(session, frame.request, request, now),
            Err(error) => {
                let reply = Reply::Error { code: error.code(), message: error.to_string() };
                self.send(session, error.request(), &reply);
            }
        }
        self.deliver();
    }

    /// Ends a session whose stream can be cut into no more frames, after what was said to it.
    fn break_off(&mut self, session: SessionId, error: FrameError) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        state.turn.is_broken = true;
        if let Some(outbox) = &state.outbox {
            outbox.close(End::BadStream(error));
        }
    }

    fn left_gate(&self, session: SessionId, size: usize) {
        if let Some(outbox) = self.sessions.get(&session).and_then(|state| state.outbox.as_ref()) {
            outbox.gate().leave(size);
        }
    }

    fn lost_connection(&mut self, session: SessionId, why: &str, grace: oneshot::Sender<Duration>, now: Instant) {
        self.limits_stale = true;
        // Without leases there is nothing to wait for, and the session's task need not watch the process.
        let holds = self.parts.engine.leases_of(session) > 0;
        let wait = if holds { self.parts.policy.node.session_grace } else { Duration::ZERO };
        // A session task that is gone watches no process.
        grace.send(wait).ok();
        let Some(state) = self.sessions.get_mut(&session) else { return };
        state.outbox = None;
        self.log_session(session, why);
        self.lost.insert(session);
        self.parts.engine.handle_input(Input::SessionLost { session }, now);
    }

    fn log_session(&mut self, session: SessionId, why: &str) {
        if let Some(left_out) = self.session_log.allow(std::time::Instant::now()) {
            tracing::info!(session = session.0, reason = why, left_out, "session ended");
        }
    }
}
