//! Work that the holder of another lease causes (A25), and work whose client is gone (C3).

use crate::engine::Engine;
use crate::id::{LeaseId, SessionId};
use crate::io::{Acquire, Output, Parent, RejectReason, Work};
use crate::leases::lease::Moment;

impl Engine {
    /// Whether the lease that is named as a parent is one: live, holding a slot, of the same session and org.
    pub(in crate::engine) fn is_parent(&self, parent: Parent, acquire: &Acquire) -> bool {
        let (Parent::Child(id) | Parent::Hop(id)) = parent;
        self.lease(id).is_some_and(|lease| {
            lease.session == acquire.session && !lease.suspended && self.parties.org_of(lease.holder) == acquire.org
        })
    }

    /// The kernel closed a client's socket.
    pub(in crate::engine) fn client_gone(&mut self, session: SessionId, work: Work) {
        match work {
            Work::Request(request) => match self.parked_slot(session, request) {
                Some(slot) => self.reject_parked(slot, RejectReason::ClientGone),
                None => self.totals.unknown += 1,
            },
            Work::Lease(lease) => self.outlive_client(session, lease),
        }
    }

    /// Notifies a lease's holder, once, and gives it the grace to end a lease that ends with its client.
    fn outlive_client(&mut self, session: SessionId, id: LeaseId) {
        let reclaimed = self.now.after(self.node.reclaim_grace);
        let Some(lease) = self.held(session, id) else {
            self.totals.unknown += 1;
            return;
        };
        if lease.client_gone {
            return;
        }
        lease.client_gone = true;
        if lease.ends_with_client {
            lease.reclaimed = Moment::from(Some(reclaimed));
            self.reset_end(id);
        }
        if let Some(lease) = self.lease(id) {
            let context = self.context_of(lease);
            self.announce(Output::ClientGone { context, lease: id });
        }
    }
}
