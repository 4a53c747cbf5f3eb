//! The guard that holds a slot. Its drop only queues a number: it awaits nothing, needs no runtime and works in panic,
//! at shutdown and on foreign threads. Knows nothing of sockets; `exchange` maps the number to the id the daemon knows.

mod idle;
pub(crate) mod queue;
pub(crate) mod refused;
pub(crate) mod request;
mod state;

pub use idle::{NotResumed, Suspended};
pub(crate) use state::{Beginning, LeaseState};

use crate::lease::queue::{Command, Queue};
use crate::lease::refused::Refused;
use governor_common::wire::reply::RevokeReason;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// A slot, held until this guard is dropped. Dropping only queues; see [`LeaseHandle`] for what can be read from it.
#[derive(Debug)]
pub struct Lease {
    guard: Guard,
}

impl Lease {
    pub(crate) fn new(state: Arc<LeaseState>, queue: Queue) -> Self {
        Self { guard: Guard { handle: LeaseHandle { state, queue } } }
    }

    /// A view that may outlive the guard, e.g. in a request's extensions. It does not hold the slot.
    #[must_use]
    pub fn handle(&self) -> LeaseHandle {
        self.guard.handle.clone()
    }

    /// Gives the slot back for as long as the work is idle and keeps the lease. Only queues, like a drop.
    #[must_use = "dropping what is returned ends the lease"]
    pub fn suspend(self) -> Suspended {
        let state = &self.guard.handle.state;
        state.suspended.store(true, Ordering::Release);
        self.guard.handle.queue.send(Command::Suspend { slot: state.slot });
        Suspended { guard: self.guard }
    }
}

impl Deref for Lease {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.guard.handle
    }
}

/// What ends a lease when it is dropped, suspended or not.
#[derive(Debug)]
struct Guard {
    handle: LeaseHandle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.handle.state.over.store(true, Ordering::Release);
        self.handle.queue.send(Command::Release { slot: self.handle.state.slot });
    }
}

/// A view of a lease that does not hold it.
#[derive(Clone)]
pub struct LeaseHandle {
    state: Arc<LeaseState>,
    queue: Queue,
}

impl LeaseHandle {
    /// The id the daemon knows the lease by now; it changes when the lease is registered with a restarted daemon. 0 for
    /// exempt work and for a lease the fallback gave and no daemon has counted yet.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state.id.load(Ordering::Acquire)
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.state.ask.wire.pool
    }

    /// The member to use; `None` for exempt work, and when the fallback never learnt the pool's members.
    #[must_use]
    pub fn member(&self) -> Option<Arc<str>> {
        self.state.member()
    }

    /// How long the request waited for its slot, the time at the daemon included.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.state.waited
    }

    /// The fallback gave this lease while the daemon was away.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.state.fallback
    }

    /// Why the daemon no longer counts this lease, if so. The work may go on.
    #[must_use]
    pub fn revoked(&self) -> Option<RevokeReason> {
        self.state.revoked()
    }

    /// The lease is suspended: it holds no slot until it is resumed.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.suspended.load(Ordering::Acquire)
    }

    /// Waits until the daemon reports that the kernel has closed the client's connection; for ever if it never does,
    /// e.g. because the request named no client. The work may be given up then.
    pub async fn client_gone(&self) {
        self.state.client_gone().await;
    }

    /// The guard was dropped, or the daemon refused to move the lease: it holds no slot any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.over.load(Ordering::Acquire)
    }

    /// Where it is queued.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The number of the work: of the lease itself, or of the one it shares as a hop.
    pub(crate) fn work(&self) -> u64 {
        self.state.shares.unwrap_or(self.state.slot)
    }

    /// Notes that bytes moved just now, for `governorctl leases --idle`.
    pub fn touch(&self) {
        self.state.touch();
    }

    /// The member refused before the first response byte: moves the lease to another candidate, once, and returns its
    /// name.
    ///
    /// # Errors
    ///
    /// [`Refused`] when no other member has a slot (the lease is then over), when the lease was moved before, or when
    /// it is over.
    pub async fn move_away(&self) -> Result<Arc<str>, Refused> {
        if self.is_over() {
            return Err(Refused::over());
        }
        let (reply, answer) = oneshot::channel();
        self.queue.send(Command::Move { slot: self.state.slot, reply });
        answer.await.unwrap_or_else(|_| Err(Refused::over()))
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id())
            .field("pool", &self.state.ask.wire.pool)
            .field("member", &self.member())
            .field("fallback", &self.state.fallback)
            .field("revoked", &self.revoked())
            .finish_non_exhaustive()
    }
}
