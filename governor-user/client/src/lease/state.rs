//! What guard, handles and `exchange` know of one lease together. Ends nothing by itself.

use crate::lease::request::AcquireRequest;
use governor_common::wire::reply::RevokeReason;
use governor_common::wire::request::HeldLease;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What guard, handles and `exchange` share about one lease.
pub(crate) struct LeaseState {
    /// Number by which this process knows the lease, never reused.
    pub(crate) slot: u64,
    /// What was asked for. The bounds of its wait mean nothing any more.
    pub(crate) ask: Box<AcquireRequest>,
    /// It shares the slot of other work, or needs none: nothing is counted for it.
    pub(crate) free: bool,
    /// The lease whose slot a hop shares.
    pub(crate) shares: Option<u64>,
    pub(crate) waited: Duration,
    pub(crate) fallback: bool,
    pub(crate) granted: Instant,
    pub(crate) id: AtomicU64,
    pub(crate) suspended: AtomicBool,
    client_gone: AtomicBool,
    /// Notifies the tasks that wait for that.
    client_goes: Notify,
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
    pub(crate) ask: Box<AcquireRequest>,
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
            ask,
            free,
            shares,
            waited,
            fallback,
            granted,
            id: AtomicU64::new(id),
            suspended: AtomicBool::new(false),
            client_gone: AtomicBool::new(false),
            client_goes: Notify::new(),
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

    pub(super) fn revoked(&self) -> Option<RevokeReason> {
        match self.revoked.load(Ordering::Acquire) {
            1 => Some(RevokeReason::Expired),
            2 => Some(RevokeReason::Operator),
            3 => Some(RevokeReason::PoolGone),
            4 => Some(RevokeReason::Unknown),
            5 => Some(RevokeReason::Reclaimed),
            _ => None,
        }
    }

    /// Id by which this lease is registered. One that no daemon granted goes by its slot: daemons never grant
    /// ids whose upper 16 bits, the epoch, are 0.
    pub(crate) fn wire_id(&self) -> u64 {
        match self.id.load(Ordering::Acquire) {
            0 => self.slot,
            id => id,
        }
    }

    /// This lease as it is registered with a daemon that does not know it.
    pub(crate) fn held(&self, now: Instant, suspended: bool) -> HeldLease {
        let age = now.saturating_duration_since(self.granted);
        let (ask, name) = (&self.ask.wire, |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned));
        HeldLease {
            lease: self.wire_id(),
            pool: ask.pool.to_string(),
            key: ask.key,
            label: name(&ask.label),
            org: ask.org,
            class: name(&ask.class),
            priority: ask.priority,
            traffic: name(&ask.traffic),
            member: name(&self.member()),
            kind: ask.kind,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
            suspended,
            client: ask.client,
            ends_with_client: ask.ends_with_client,
            site: name(&ask.site),
        }
    }

    /// The kernel closed the client's connection.
    pub(crate) fn lose_client(&self) {
        self.client_gone.store(true, Ordering::Release);
        self.client_goes.notify_waiters();
    }

    /// Waits until then.
    pub(super) async fn client_gone(&self) {
        // It receives every notification from here on, whether it is polled already or not.
        let called = self.client_goes.notified();
        if !self.client_gone.load(Ordering::Acquire) {
            called.await;
        }
    }

    /// Time since bytes last moved; `None` when it is not tracked.
    pub(crate) fn idle(&self, now: Instant) -> Option<Duration> {
        if !self.tracked.load(Ordering::Relaxed) {
            return None;
        }
        let touched = Duration::from_millis(self.touched_ms.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(self.granted).saturating_sub(touched))
    }

    pub(super) fn touch(&self) {
        let since = Instant::now().saturating_duration_since(self.granted);
        self.touched_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.tracked.store(true, Ordering::Relaxed);
    }
}
