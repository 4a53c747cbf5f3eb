//! The guard that holds a slot. Its drop only queues a number: it awaits nothing, needs no runtime and works in panic,
//! at shutdown and on foreign threads. Knows nothing of sockets; `exchange` maps the number to the id the daemon knows.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor_common::wire::KeyHash;
use governor_common::wire::reply::RevokeReason;
use governor_common::wire::request::{HeldLease, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::{Command, Queue};
use crate::error::Refused;

/// A slot, held until this guard is dropped. Dropping only queues; see [`LeaseHandle`] for what it can tell.
#[derive(Debug)]
pub struct Lease {
    handle: LeaseHandle,
}

impl Lease {
    pub(crate) fn new(state: Arc<LeaseState>, queue: Queue) -> Self {
        Self { handle: LeaseHandle { state, queue } }
    }

    /// A view that may outlive the guard, e.g. in a request's extensions. It does not hold the slot.
    #[must_use]
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }
}

impl Deref for Lease {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl Drop for Lease {
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
            _ => None,
        }
    }

    /// The guard was dropped, or the daemon refused to move the lease: it holds no slot any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.over.load(Ordering::Acquire)
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
    pub(crate) pool: Arc<str>,
    pub(crate) key: Option<KeyHash>,
    pub(crate) label: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) waited: Duration,
    pub(crate) fallback: bool,
    pub(crate) granted: Instant,
    pub(crate) id: AtomicU64,
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
    pub(crate) pool: Arc<str>,
    pub(crate) key: Option<KeyHash>,
    pub(crate) label: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) member: Option<Arc<str>>,
    pub(crate) waited: Duration,
    pub(crate) fallback: bool,
    pub(crate) granted: Instant,
}

impl LeaseState {
    pub(crate) fn begin(beginning: Beginning) -> Arc<Self> {
        let Beginning { slot, id, pool, key, label, kind, member, waited, fallback, granted } = beginning;
        Arc::new(Self {
            slot,
            pool,
            key,
            label,
            kind,
            waited,
            fallback,
            granted,
            id: AtomicU64::new(id),
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
    pub(crate) fn held(&self, now: Instant) -> HeldLease {
        let age = now.saturating_duration_since(self.granted);
        HeldLease {
            lease: self.wire_id(),
            pool: self.pool.to_string(),
            key: self.key,
            label: self.label.clone(),
            member: self.member().map(|member| member.to_string()),
            kind: self.kind,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
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
