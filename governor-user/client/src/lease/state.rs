//! What guard, handles and `exchange` know of one lease together. Ends nothing by itself.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor_common::wire::reply::RevokeReason;
use governor_common::wire::request::{Acquire, HeldLease};
use tokio::sync::watch;
use tokio::time::Instant;

/// What guard, handles and `exchange` share about one lease.
pub(crate) struct LeaseState {
    /// Number by which this process knows the lease, never reused.
    pub(crate) slot: u64,
    /// What was asked for. The bounds of its wait mean nothing any more.
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

    pub(super) fn touch(&self) {
        let since = Instant::now().saturating_duration_since(self.granted);
        self.touched_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.tracked.store(true, Ordering::Relaxed);
    }
}
