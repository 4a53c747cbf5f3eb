//! A lease without a slot: held while its work is idle, until it is resumed or dropped.

use super::{Guard, Lease, LeaseHandle};
use crate::lease::queue::Command;
use crate::lease::refused::Refused;
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lease without a slot, kept while its work is idle. Dropping it ends the lease.
#[derive(Debug)]
pub struct Suspended {
    pub(super) guard: Guard,
}

impl Suspended {
    /// A view of the lease.
    #[must_use]
    pub fn handle(&self) -> LeaseHandle {
        self.guard.handle.clone()
    }

    /// Asks for a slot again and waits, parked if need be, for at most `max_wait` or the pool's own bound. The member may
    /// be another than before. Dropping the future ends the lease.
    ///
    /// # Errors
    ///
    /// [`NotResumed`]: no slot now; it holds the lease, suspended as before.
    pub async fn resume(self, max_wait: Option<Duration>) -> Result<Lease, NotResumed> {
        let (reply, answer) = oneshot::channel();
        let handle = &self.guard.handle;
        handle.queue.send(Command::Resume { slot: handle.state.slot, max_wait, reply });
        match answer.await.unwrap_or_else(|_| Err(Refused::over())) {
            Ok(()) => Ok(Lease { guard: self.guard }),
            Err(refused) => Err(NotResumed { refused, suspended: self }),
        }
    }
}

/// A suspended lease that got no slot. It is still held.
#[derive(Debug)]
pub struct NotResumed {
    refused: Refused,
    suspended: Suspended,
}

impl NotResumed {
    /// Why.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The lease, to try again or to drop.
    #[must_use]
    pub fn into_suspended(self) -> Suspended {
        self.suspended
    }
}

impl fmt::Display for NotResumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not resumed: {}", self.refused)
    }
}

impl std::error::Error for NotResumed {}
