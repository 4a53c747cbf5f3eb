//! Bytes of the daemon on their way to the exchange: cut into frames, mostly where they were read to. Knows no socket.

use crate::protocol::exchange::{Broken, Exchange};
use bytes::{Buf, BytesMut};
use governor_common::wire::codec::read_reply;
use governor_common::wire::error::ParseError;
use governor_common::wire::frame::next_frame;
use tokio::time::Instant;
use tracing::{debug, warn};

/// What was read and is no whole frame yet.
#[derive(Debug, Default)]
pub(crate) struct Inbound(BytesMut);

impl Inbound {
    /// Hands every whole frame to the exchange.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the connection must be closed.
    pub(crate) fn hear(&mut self, fresh: &[u8], exchange: &mut Exchange, now: Instant) -> Result<(), Broken> {
        if self.0.is_empty() {
            let left = hear(fresh, exchange, now)?;
            self.0.extend_from_slice(left);
        } else {
            self.0.extend_from_slice(fresh);
            let left = hear(&self.0, exchange, now)?.len();
            self.0.advance(self.0.len() - left);
        }
        Ok(())
    }

    /// A new connection begins with a new frame.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Hands every whole frame at the front of `bytes` to the exchange, and returns what is left.
fn hear<'a>(mut bytes: &'a [u8], exchange: &mut Exchange, now: Instant) -> Result<&'a [u8], Broken> {
    loop {
        let frame = match next_frame(&mut bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(bytes),
            Err(error) => {
                warn!(%error, "the governor's bytes make no sense");
                return Err(Broken::Retry);
            }
        };
        match read_reply(frame) {
            Ok(reply) => exchange.handle_reply(reply, frame.request, now)?,
            // A newer daemon may say what this build need not understand.
            Err(error @ ParseError::Unknown { .. }) => debug!(%error, "skipped a frame"),
            Err(error @ ParseError::Malformed { .. }) => {
                warn!(%error, "the governor's bytes make no sense");
                return Err(Broken::Retry);
            }
        }
    }
}
