//! What the driver tells the recorder of demand, and when what waits for the disk goes there.

use crate::driver::event_loop::{Driver, FLUSH_EVERY};
use crate::process::clock;
use governor_engine::id::{KeyId, LeaseId, OrgId, SessionId};
use governor_engine::io::{Acquire, Grant, Parent};
use governor_engine::time::Instant;

/// Slots of the lease table that recorded demand and the checkpoint each look at in one iteration of the loop.
pub(crate) const LEASES_PER_ITERATION: u32 = 128;

impl Driver {
    pub(crate) fn note_asked(&mut self, ask: &Acquire, pool: &str, now: Instant) {
        // A hop is work that was asked for already.
        if let Some(Parent::Hop(lease)) = ask.parent
            && self.parts.engine.holder(lease) == Some(ask.session)
        {
            return;
        }
        self.open_segment(now);
        self.parts.demand.asked(ask, pool, now);
    }

    pub(crate) fn note_granted(&mut self, grant: &Grant) {
        if let Some(lease) = grant.lease {
            self.open_segment(self.now);
            self.parts.demand.granted(grant.session, grant.request, lease, self.now);
        }
    }

    pub(crate) fn note_held(
        &mut self,
        session: SessionId,
        old: u64,
        new: LeaseId,
        (key, org): (Option<KeyId>, Option<OrgId>),
        now: Instant,
    ) {
        self.open_segment(now);
        self.parts.checkpoint.touch(now);
        let engine = &self.parts.engine;
        let pool = engine.pool_of(new).and_then(|pool| engine.pool_name(pool)).unwrap_or_default();
        self.parts.demand.held(session, old, new, (pool, key, org), now);
    }

    /// A lease runs no longer: it is over, or suspended.
    pub(crate) fn note_ended(&mut self, lease: LeaseId, now: Instant) {
        self.open_segment(now);
        self.parts.demand.ended(lease, now);
        self.parts.checkpoint.touch(now);
    }

    pub(crate) fn note_gone(&mut self, session: SessionId, now: Instant) {
        self.open_segment(now);
        self.parts.demand.gone(session, now);
        self.parts.checkpoint.touch(now);
    }

    pub(crate) fn flush(&mut self, now: Instant) {
        if self.flush_by.is_some_and(|by| by <= now) {
            self.flush_by = None;
            self.parts.archive.flush();
            self.parts.demand.flush();
        } else if self.parts.archive.is_dirty() || self.parts.demand.is_dirty() {
            self.flush_by.get_or_insert_with(|| now.after(FLUSH_EVERY));
        }
    }

    /// A segment stands by itself: it says when it began, and what ran then.
    fn open_segment(&mut self, now: Instant) {
        if self.parts.demand.needs_opening() {
            self.parts.demand.opened(clock::wall_seconds(), now);
        }
    }

    /// Writes some more of what ran when the segment of recorded demand began.
    pub(crate) fn record_running(&mut self) {
        let Some(cursor) = self.parts.demand.opening() else { return };
        let engine = &self.parts.engine;
        let (leases, next) = engine.leases_from(cursor, LEASES_PER_ITERATION);
        let leases = leases.map(|lease| {
            let pool = engine.pool_name(lease.pool).unwrap_or_default();
            (lease, pool)
        });
        self.parts.demand.running(leases, next);
    }
}
