//! Backpressure for one session: how much of what was read from its socket the driver has not handled yet. Past the bound the
//! session's reader stops reading, so that the rest waits in the socket, where it blocks its sender and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Bytes of one session that wait for the driver at most; one read more may pass the bound.
pub const BOUND: usize = 32 * 1024;

/// A message counts as so many bytes at least: short ones cost more than their bytes.
const LEAST: usize = 512;

/// Shared by the session's reader and the driver.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    room: Notify,
}

impl Gate {
    /// Counts a message of so many bytes on its way to the driver; whether the reader must wait for room afterwards.
    #[must_use]
    pub fn enter(&self, bytes: usize) -> bool {
        let cost = bytes.max(LEAST);
        self.0.waiting.fetch_add(cost, Ordering::AcqRel) + cost > BOUND
    }

    /// The driver has handled a message of so many bytes.
    pub fn leave(&self, bytes: usize) {
        let cost = bytes.max(LEAST);
        let before = self.0.waiting.fetch_sub(cost, Ordering::AcqRel);
        if before > BOUND && before - cost <= BOUND {
            self.0.room.notify_one();
        }
    }

    /// Waits until there is room.
    pub async fn room(&self) {
        while self.0.waiting.load(Ordering::Acquire) > BOUND {
            self.0.room.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_reader_waits_while_the_driver_is_behind() {
        let gate = Gate::default();
        assert!(!gate.enter(BOUND));
        assert!(gate.enter(1), "a short message counts as more");
        assert!(gate.room().now_or_never().is_none());
        gate.leave(1);
        assert!(gate.room().now_or_never().is_some());
        gate.leave(BOUND);
        assert!(!gate.enter(1));
    }
}
