//! What the library counts, for the proxy's own metrics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the library has done and holds. Totals count from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// A session with the daemon is open.
    pub connected: bool,
    /// Live leases.
    pub leases: u32,
    /// Requests without an answer yet.
    pub waiting: u32,
    /// Commands queued and not yet taken up.
    pub queued: u32,
    /// Sessions opened after the first.
    pub reconnects_total: u64,
    /// Leases given by the fallback.
    pub fallback_grants_total: u64,
    /// Requests refused by the fallback.
    pub fallback_refusals_total: u64,
    /// Leases registered again after a reconnect.
    pub registered_total: u64,
    /// Leases revoked by the daemon.
    pub revoked_total: u64,
    /// POSTs that a layer let pass without a slot because no route lists them.
    pub unlisted_total: u64,
}

/// The live form of [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) tickets: AtomicU64,
    pub(crate) leases: AtomicU32,
    pub(crate) waiting: AtomicU32,
    pub(crate) queued: AtomicU32,
    pub(crate) reconnects: AtomicU64,
    pub(crate) fallback_grants: AtomicU64,
    pub(crate) fallback_refusals: AtomicU64,
    pub(crate) registered: AtomicU64,
    pub(crate) revoked: AtomicU64,
    pub(crate) unlisted: AtomicU64,
}

impl Counters {
    /// As they are now.
    pub(crate) fn read(&self, connected: bool) -> Stats {
        Stats {
            connected,
            leases: self.leases.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
            reconnects_total: self.reconnects.load(Ordering::Relaxed),
            fallback_grants_total: self.fallback_grants.load(Ordering::Relaxed),
            fallback_refusals_total: self.fallback_refusals.load(Ordering::Relaxed),
            registered_total: self.registered.load(Ordering::Relaxed),
            revoked_total: self.revoked.load(Ordering::Relaxed),
            unlisted_total: self.unlisted.load(Ordering::Relaxed),
        }
    }
}
