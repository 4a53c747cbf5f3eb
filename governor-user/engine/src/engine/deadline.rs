//! What time alone brings about: leases and waits that end, graces, cool-downs and overrides that are over. Whatever is
//! due is served before an input is handled, each in a step of its own.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::fairness::sets::Ledger;
use crate::id::{KeyId, LeaseId, PoolId, SessionId};
use crate::time::Instant;

/// What a deadline is for that is neither a lease's nor a parked request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A lost session's grace.
    Session(SessionId),
    /// A cool-down in a pool.
    Pool(PoolId),
    /// The end of a key's override.
    Override(KeyId),
}

/// The deadline that is next. At one instant, whatever gives slots back comes before whatever gives up waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Lease(LeaseId),
    Timer(Timer),
    Park(Slot),
}

impl Engine {
    /// Serves every deadline due by `now`, in order.
    pub(in crate::engine) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.next_at().is_some_and(|at| at <= self.now)
            && let Some((at, due)) = self.next_due()
        {
            match due {
                Due::Lease(lease) => self.expire(lease),
                Due::Timer(timer) => {
                    self.timers.remove(&(at, timer));
                    self.serve(timer);
                }
                Due::Park(slot) => self.give_up(slot),
            }
            self.settle();
        }
    }

    /// When the next deadline is: asked for with every fact.
    pub(in crate::engine) fn next_at(&self) -> Option<Instant> {
        let lease = self.lease_ends.first().map(|((at, _), _)| at);
        let timer = self.timers.first().map(|(at, _)| *at);
        let park = self.park_ends.first().map(|((at, _), _)| at);
        let sooner = |one: Option<Instant>, other: Option<Instant>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        sooner(sooner(lease, timer), park)
    }

    /// The deadline that is next.
    fn next_due(&self) -> Option<(Instant, Due)> {
        let lease = self.lease_ends.first().map(|((at, lease), _)| (at, Due::Lease(lease)));
        let timer = self.timers.first().map(|(at, timer)| (*at, Due::Timer(*timer)));
        let park = self.park_ends.first().map(|((at, _), slot)| (at, Due::Park(slot)));
        [lease, timer, park].into_iter().flatten().min()
    }

    fn serve(&mut self, timer: Timer) {
        match timer {
            Timer::Session(session) => self.end_session(session),
            Timer::Pool(pool) => {
                self.pool_timers[pool.index()] = None;
                let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
                self.pools[pool.index()].refresh(self.now, ledger);
                self.announce_members(pool, None);
                self.wake(pool);
            }
            Timer::Override(key) => self.override_key(key, None),
        }
    }
}
