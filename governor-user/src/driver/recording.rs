//! The recorder of demand as a subscriber, and when what waits for the disk goes there.

use crate::driver::event_loop::{Driver, FLUSH_EVERY};
use crate::process::clock;
use governor_engine::io::{Acquire, Context, EndCause, Output, Parent};
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

    /// Takes an order to the recorder of demand.
    pub(super) fn record_demand(&mut self, order: &Output) {
        match order {
            Output::Began(grant) | Output::Resumed(grant) => {
                self.open_segment(grant.context.at);
                let Context { at, session, .. } = grant.context;
                self.parts.demand.granted(session, grant.request, grant.lease, at);
            }
            Output::Registered { old, new: Some(new), .. } => {
                self.open_segment(new.context.at);
                // One that is suspended does not run.
                if !new.suspended {
                    let pool = self.parts.engine.pool_name(new.context.pool).unwrap_or_default();
                    self.parts.demand.held(*old, new, pool);
                }
            }
            // The end of the session says it for all of its leases.
            Output::Ended { cause: EndCause::SessionGone, .. } => {}
            Output::Ended { context, lease, .. } | Output::Suspended { context, lease, .. } => {
                self.open_segment(context.at);
                self.parts.demand.ended(*lease, context.at);
            }
            Output::SessionEnded { at, session } => {
                self.open_segment(*at);
                self.parts.demand.gone(*session, *at);
            }
            // A lease that moves runs on, and what is refused or waits was recorded when it came.
            Output::Passed { .. }
            | Output::Moved { .. }
            | Output::Registered { new: None, .. }
            | Output::UnknownLease { .. }
            | Output::ClientGone { .. }
            | Output::Parked { .. }
            | Output::Unparked { .. }
            | Output::Refused { .. }
            | Output::Rejected { .. }
            | Output::WouldHave { .. }
            | Output::TierAsk { .. }
            | Output::MemberChanged { .. }
            | Output::LimitsChanged { .. }
            | Output::ModeChanged { .. } => {}
        }
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
