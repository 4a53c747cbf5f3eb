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

use crate::collections::chain::Chain;
use crate::collections::slots::{Slot, Slots};
use crate::collections::table::{InOrder, Table};
use crate::deadline::Timer;
use crate::engine::Engine;
use crate::id::{LeaseId, RequestId, SessionId};
use crate::time::Instant;

/// A session the engine knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// Its leases, in the order it came to hold them.
    pub(crate) leases: Chain,
    pub(crate) held: u32,
    /// Unanswered requests: all are parked, the others are answered in the step they come in.
    pub(crate) parked: Chain,
    pub(crate) waiting: u32,
    /// When its grace ends, if its connection is lost.
    pub(crate) grace: Option<Instant>,
}

/// The sessions the engine knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    known: Slots<(SessionId, Session)>,
    by_id: Table<SessionId, Slot, InOrder>,
}

impl Sessions {
    pub(crate) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.by_id.get(id).map(|slot| &self.known[*slot].1)
    }

    pub(crate) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.by_id.get(id).map(|slot| &mut self.known[*slot].1)
    }

    /// A session, made if there is none.
    pub(crate) fn entry(&mut self, id: SessionId) -> &mut Session {
        let slot = match self.by_id.get(&id) {
            Some(slot) => *slot,
            None => {
                let slot = self.known.insert((id, Session::default()));
                self.by_id.insert(id, slot);
                slot
            }
        };
        &mut self.known[slot].1
    }

    pub(crate) fn remove(&mut self, id: &SessionId) -> Option<Session> {
        let slot = self.by_id.remove(id)?;
        self.known.remove(slot).map(|(_, session)| session)
    }

    /// All. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.known.iter().map(|(_, (id, session))| (*id, session))
    }
}

impl Engine {
    /// A session opened, or shows by a request that it is there.
    pub(crate) fn open_session(&mut self, id: SessionId) {
        let session = self.sessions.entry(id);
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
        let Some(session) = self.sessions.get(&id) else { return };
        let mut held: Vec<LeaseId> = self.lease_links.iter(session.leases).map(|slot| self.leases[slot].id).collect();
        held.sort_unstable();
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
        if let Some(slot) = self.parked_slot(session, request) {
            self.vanish(slot);
        }
    }

    pub(crate) fn set_bypass(&mut self, on: bool) {
        self.bypass = on;
        self.wake_all();
    }

    /// An operator drains the node, or ends that. What waits for a slot it does not hold yet is refused.
    pub(crate) fn set_draining(&mut self, on: bool) {
        self.draining = on;
        if on {
            self.shed_waiting(Self::draining_refusal());
        }
    }

    fn drop_requests(&mut self, id: SessionId) {
        while let Some(slot) = self.sessions.get(&id).and_then(|session| session.parked.first()) {
            self.vanish(slot);
        }
    }

    pub(crate) fn is_lost(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.grace.is_some())
    }

    pub(crate) fn is_unanswered(&self, session: SessionId, request: RequestId) -> bool {
        self.parked_slot(session, request).is_some()
    }

    /// Where a session's request waits.
    pub(crate) fn parked_slot(&self, session: SessionId, request: RequestId) -> Option<Slot> {
        self.requests.get(&(session, request)).copied()
    }

    /// A lease becomes a session's.
    pub(crate) fn hold(&mut self, id: SessionId, lease: Slot) {
        let session = self.sessions.entry(id);
        self.lease_links.append(&mut session.leases, lease);
        session.held += 1;
    }

    /// A lease is a session's no longer.
    pub(crate) fn let_go(&mut self, id: SessionId, lease: Slot) {
        if let Some(session) = self.sessions.get_mut(&id) {
            self.lease_links.remove(&mut session.leases, lease);
            session.held -= 1;
        }
    }
}
