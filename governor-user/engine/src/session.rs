//! Sessions: who holds which leases and whose requests are unanswered.
//!
//! ```text
//!            SessionOpened, or its first request           SessionLost
//!   (none) ────────────────────────────────────▶ open ─────────────────▶ lost
//!                                                 │ ▲                    │ │
//!                                     SessionGone │ └── opened, asks ────┘ │ grace over, SessionGone
//!                                                 ▼                        ▼
//!                                               (none): its leases return in this step
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, Timer};
use crate::id::{LeaseId, RequestId, SessionId};
use crate::park::ParkId;
use crate::time::Instant;

/// A session the engine knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) leases: BTreeSet<LeaseId>,
    /// Unanswered requests: all are parked, the others are answered in the step they come in.
    pub(crate) parked: BTreeMap<RequestId, ParkId>,
    /// When its grace ends, if its connection is lost.
    pub(crate) grace: Option<Instant>,
}

impl Engine {
    /// A session opened, or shows by a request that it is there.
    pub(crate) fn open_session(&mut self, id: SessionId) {
        let session = self.sessions.entry(id).or_default();
        if let Some(grace) = session.grace.take() {
            self.timers.remove(&(grace, Timer::Session(id)));
        }
    }

    /// The connection broke. Nobody is there to take a grant; leases stay for the grace.
    pub(crate) fn lose_session(&mut self, id: SessionId) {
        if self.node.session_grace.is_zero() {
            return self.end_session(id);
        }
        self.drop_requests(id);
        let grace = self.now.after(self.node.session_grace);
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| session.grace.is_none()) {
            session.grace = Some(grace);
            self.timers.insert((grace, Timer::Session(id)));
        }
    }

    /// The process is gone: everything it held returns before anybody is woken.
    pub(crate) fn end_session(&mut self, id: SessionId) {
        self.drop_requests(id);
        let held = self.sessions.get_mut(&id).map(|session| std::mem::take(&mut session.leases)).unwrap_or_default();
        for lease in held {
            self.give_back(lease);
            self.totals.session_gone += 1;
        }
        if let Some(grace) = self.sessions.remove(&id).and_then(|session| session.grace) {
            self.timers.remove(&(grace, Timer::Session(id)));
        }
    }

    /// A request is withdrawn while it waits. Nothing is answered, no lease is touched.
    pub(crate) fn cancel(&mut self, session: SessionId, request: RequestId) {
        let park = self.sessions.get(&session).and_then(|session| session.parked.get(&request)).copied();
        if let Some(park) = park {
            self.vanish(park);
        }
    }

    pub(crate) fn set_bypass(&mut self, on: bool) {
        self.bypass = on;
        for pool in self.order.clone() {
            self.wake(pool);
        }
    }

    fn drop_requests(&mut self, id: SessionId) {
        let parked: Vec<_> =
            self.sessions.get(&id).map(|session| session.parked.values().copied().collect()).unwrap_or_default();
        for park in parked {
            self.vanish(park);
        }
    }

    /// A parked request is no more.
    pub(crate) fn vanish(&mut self, park: ParkId) {
        if let Some(parked) = self.unpark(park) {
            let pool = parked.ask.pool;
            self.pools[pool.index()].sets.release(parked.ask.set);
            self.wake(pool);
        }
    }

    pub(crate) fn is_lost(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.grace.is_some())
    }

    pub(crate) fn is_unanswered(&self, session: SessionId, request: RequestId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.parked.contains_key(&request))
    }

    pub(crate) fn session_leases(&mut self, id: SessionId) -> &mut BTreeSet<LeaseId> {
        &mut self.sessions.entry(id).or_default().leases
    }

    pub(crate) fn note_parked(&mut self, session: SessionId, request: RequestId, park: ParkId) {
        self.sessions.entry(session).or_default().parked.insert(request, park);
    }

    pub(crate) fn forget_parked(&mut self, session: SessionId, request: RequestId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.parked.remove(&request);
        }
    }
}
