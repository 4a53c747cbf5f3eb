//! A timer that is set often and fires seldom. It fires at its time or earlier: what was set for something that needs
//! it no longer stays set, because to set a timer costs a lock and, where it is the runtime's earliest, a system call.

use std::future;
use std::pin::Pin;
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    at: Option<Instant>,
}

impl Timer {
    /// One that is not set.
    pub(crate) fn new(now: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(now)), at: None }
    }

    /// Arms the timer for `by` unless it already fires earlier. `None` leaves it unchanged.
    pub(crate) fn set_by(&mut self, by: Option<Instant>) {
        if let Some(by) = by.filter(|by| self.at.is_none_or(|at| *by < at)) {
            self.sleep.as_mut().reset(by);
            self.at = Some(by);
        }
    }

    /// When it fires.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Waits until it fires; for ever when it is not armed.
    pub(crate) async fn rings(&mut self) {
        if self.at.is_none() {
            return future::pending().await;
        }
        self.sleep.as_mut().await;
        self.at = None;
    }
}
