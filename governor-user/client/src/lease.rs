//! The guard that holds a slot. Its drop only queues a number: it awaits nothing, needs no runtime and works in panic,
//! at shutdown and on foreign threads. Knows nothing of sockets; `exchange` maps the number to the id the daemon knows.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor_common::wire::reply::RevokeReason;
use governor_common::wire::request::{Acquire, HeldLease};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::client::{Command, Governor, Queue};
use crate::error::Refused;

/// A slot, held until this guard is dropped. Dropping only queues; see [`LeaseHandle`] for what it can tell.
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

/// A lease without a slot, kept while its work is idle. Dropping it ends the lease.
#[derive(Debug)]
pub struct Suspended {
    guard: Guard,
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
        &self.state.pool
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
        match self.state.revoked.load(Ordering::Acquire) {
            1 => Some(RevokeReason::Expired),
            2 => Some(RevokeReason::Operator),
            3 => Some(RevokeReason::PoolGone),
            4 => Some(RevokeReason::Unknown),
            5 => Some(RevokeReason::Reclaimed),
            _ => None,
        }
    }

    /// The lease is suspended: it holds no slot until it is resumed.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.suspended.load(Ordering::Acquire)
    }

    /// Waits until the daemon tells that the kernel has closed the client's connection; for ever if it never does, e.g.
    /// because the request named no client. The work may be given up then.
    pub async fn client_gone(&self) {
        // An error would mean that the lease's state is gone, and this handle is part of it.
        drop(self.state.client_gone.subscribe().wait_for(|gone| *gone).await);
    }

    /// The guard was dropped, or the daemon refused to move the lease: it holds no slot any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.over.load(Ordering::Acquire)
    }

    /// Whether this governor gave the lease.
    #[must_use]
    pub fn is_of(&self, governor: &Governor) -> bool {
        self.queue.is_same(governor.queue())
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
            .field("pool", &self.state.pool)
            .field("member", &self.member())
            .field("fallback", &self.state.fallback)
            .field("revoked", &self.revoked())
            .finish_non_exhaustive()
    }
}

/// What guard, handles and `exchange` share about one lease.
pub(crate) struct LeaseState {
    /// Number by which this process knows the lease, never reused.
    pub(crate) slot: u64,
    /// What was asked for, without the bounds of its wait.
    pub(crate) ask: Acquire,
    pub(crate) pool: Arc<str>,
    /// It shares the slot of other work, or needs none: nothing is counted for it.
    pub(crate) free: bool,
    /// The lease whose slot a hop shares.
    pub(crate) shares: Option<u64>,
    pub(crate) waited: Duration,
    pub(crate) fallback: bool,
    pub(crate) granted: Instant,
    pub(crate) id: AtomicU64,
    pub(crate) suspended: AtomicBool,
    pub(crate) client_gone: watch::Sender<bool>,
    member: Mutex<Option<Arc<str>>>,
    /// Milliseconds from `granted` to the last touch.
    touched_ms: AtomicU64,
    tracked: AtomicBool,
    revoked: AtomicU8,
    pub(crate) over: AtomicBool,
}

/// What is known about a lease when it begins.
pub(crate) struct Beginning {
    pub(crate) slot: u64,
    pub(crate) id: u64,
    pub(crate) ask: Acquire,
    pub(crate) free: bool,
    pub(crate) shares: Option<u64>,
    pub(crate) member: Option<Arc<str>>,
    pub(crate) waited: Duration,
    pub(crate) fallback: bool,
    pub(crate) granted: Instant,
}

impl LeaseState {
    pub(crate) fn begin(beginning: Beginning) -> Arc<Self> {
        let Beginning { slot, id, ask, free, shares, member, waited, fallback, granted } = beginning;
        Arc::new(Self {
            slot,
            pool: ask.pool.as_str().into(),
            ask,
            free,
            shares,
            waited,
            fallback,
            granted,
            id: AtomicU64::new(id),
            suspended: AtomicBool::new(false),
            client_gone: watch::Sender::new(false),
            member: Mutex::new(member),
            touched_ms: AtomicU64::new(0),
            tracked: AtomicBool::new(false),
            revoked: AtomicU8::new(0),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn member(&self) -> Option<Arc<str>> {
        // The lock only ever guards a clone or a store, so a poisoned value is whole.
        self.member.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_member(&self, member: Option<Arc<str>>) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = member;
    }

    pub(crate) fn revoke(&self, reason: RevokeReason) {
        let code = match reason {
            RevokeReason::Expired => 1,
            RevokeReason::Operator => 2,
            RevokeReason::PoolGone => 3,
            RevokeReason::Unknown => 4,
            RevokeReason::Reclaimed => 5,
        };
        self.revoked.store(code, Ordering::Release);
    }

    /// Id by which the daemon is told of this lease. One that no daemon granted goes by its slot: daemons never grant
    /// ids whose upper 16 bits, the epoch, are 0.
    pub(crate) fn wire_id(&self) -> u64 {
        match self.id.load(Ordering::Acquire) {
            0 => self.slot,
            id => id,
        }
    }

    /// This lease as a daemon that does not know it is told of it.
    pub(crate) fn held(&self, now: Instant, suspended: bool) -> HeldLease {
        let age = now.saturating_duration_since(self.granted);
        HeldLease {
            lease: self.wire_id(),
            pool: self.pool.to_string(),
            key: self.ask.key,
            label: self.ask.label.clone(),
            org: self.ask.org,
            class: self.ask.class.clone(),
            priority: self.ask.priority,
            traffic: self.ask.traffic.clone(),
            member: self.member().map(|member| member.to_string()),
            kind: self.ask.kind,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
            suspended,
            client: self.ask.client,
            ends_with_client: self.ask.ends_with_client,
            site: self.ask.site.clone(),
        }
    }

    /// Time since bytes last moved; `None` when nobody tracks it.
    pub(crate) fn idle(&self, now: Instant) -> Option<Duration> {
        if !self.tracked.load(Ordering::Relaxed) {
            return None;
        }
        let touched = Duration::from_millis(self.touched_ms.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(self.granted).saturating_sub(touched))
    }

    fn touch(&self) {
        let since = Instant::now().saturating_duration_since(self.granted);
        self.touched_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.tracked.store(true, Ordering::Relaxed);
    }
}
