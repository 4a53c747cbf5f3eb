//! Sessions open, are lost and end, and with them what they hold and wait for.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::engine::deadline::Timer;
use crate::id::{LeaseId, RequestId, SessionId};
use crate::io::{EndCause, Output, WaitEnd};

impl Engine {
    /// A session opened, or shows by a request that it is there.
    pub(in crate::engine) fn open_session(&mut self, id: SessionId) {
        let session = self.sessions.entry(id);
        if let Some(grace) = session.grace.take() {
            self.timers.remove(&(grace, Timer::Session(id)));
        }
    }

    /// The connection broke. No peer is there to take a grant; leases stay for the grace.
    pub(in crate::engine) fn lose_session(&mut self, id: SessionId) {
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

    /// The process is gone: everything it held returns before any waiter is woken.
    pub(in crate::engine) fn end_session(&mut self, id: SessionId) {
        self.drop_requests(id);
        let Some(session) = self.sessions.get(&id) else { return };
        let mut held: Vec<LeaseId> = self.lease_links.iter(session.leases).map(|slot| self.leases[slot].id).collect();
        held.sort_unstable();
        for lease in held {
            self.give_back(lease, EndCause::SessionGone);
            self.totals.session_gone += 1;
        }
        if let Some(grace) = self.sessions.remove(&id).and_then(|session| session.grace) {
            self.timers.remove(&(grace, Timer::Session(id)));
        }
        self.announce(Output::SessionEnded { at: self.now, session: id });
    }

    /// A request is withdrawn while it waits. Nothing is answered, no lease is touched.
    pub(in crate::engine) fn cancel(&mut self, session: SessionId, request: RequestId) {
        if let Some(slot) = self.parked_slot(session, request) {
            self.vanish(slot, WaitEnd::Cancelled);
        }
    }

    fn drop_requests(&mut self, id: SessionId) {
        while let Some(slot) = self.sessions.get(&id).and_then(|session| session.parked.first()) {
            self.vanish(slot, WaitEnd::Gone);
        }
    }

    pub(in crate::engine) fn is_lost(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.grace.is_some())
    }

    pub(in crate::engine) fn is_unanswered(&self, session: SessionId, request: RequestId) -> bool {
        self.parked_slot(session, request).is_some()
    }

    /// Where a session's request waits.
    pub(in crate::engine) fn parked_slot(&self, session: SessionId, request: RequestId) -> Option<Slot> {
        self.requests.get(&(session, request)).copied()
    }

    /// A lease becomes a session's.
    pub(in crate::engine) fn hold(&mut self, id: SessionId, lease: Slot) {
        let session = self.sessions.entry(id);
        self.lease_links.append(&mut session.leases, lease);
        session.held += 1;
    }

    /// A lease is a session's no longer.
    pub(in crate::engine) fn let_go(&mut self, id: SessionId, lease: Slot) {
        if let Some(session) = self.sessions.get_mut(&id) {
            self.lease_links.remove(&mut session.leases, lease);
            session.held -= 1;
        }
    }
}
