//! What time alone brings about: leases and waits that end, graces, cool-downs and overrides that are over. Whatever is
//! due is served before a fact is heard, each in a step of its own.

use crate::engine::Engine;
use crate::id::{KeyId, LeaseId, PoolId, SessionId};
use crate::sets::Ledger;
use crate::slots::Slot;
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
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((at, due)) = self.next_due().filter(|(at, _)| *at <= self.now) {
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

    /// The deadline that is next.
    pub(crate) fn next_due(&self) -> Option<(Instant, Due)> {
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
                self.wake(pool);
            }
            Timer::Override(key) => self.override_key(key, None),
        }
    }
}
