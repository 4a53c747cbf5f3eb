//! Leases whose holder is idle, and work whose client is gone.

use super::Lease;
use super::Model;
use super::Parked;
use super::Task;
use super::index;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::{Output, RejectReason, WaitEnd, Work};
use governor_engine::time::Duration;

impl Model {
    pub(super) fn suspend(&mut self, session: SessionId, id: LeaseId) {
        let moving = self.parked.iter().any(|w| w.task == Task::Move(id));
        match self.leases.iter_mut().find(|l| l.id == id && l.session == session) {
            None => self.say_unknown(session, id),
            Some(lease) if !lease.suspended && !moving => {
                lease.suspended = true;
                let lease = lease.clone();
                let held = self.now.since(lease.granted);
                self.out.push(Output::Suspended { context: self.context_of(&lease), lease: id, held });
                self.slot_is_back(lease.pool);
            }
            Some(_) => {}
        }
    }

    pub(super) fn resume(&mut self, session: SessionId, request: RequestId, id: LeaseId, max_wait: Option<Duration>) {
        if self.parked.iter().any(|w| (w.session, w.request) == (session, request)) {
            return self.reject(session, request, RejectReason::DuplicateRequest);
        }
        let resuming = self.parked.iter().any(|w| w.task == Task::Resume(id));
        let idle = |l: &&Lease| l.id == id && l.session == session && l.suspended && !resuming;
        let Some(lease) = self.leases.iter().find(idle).cloned() else {
            return self.reject(session, request, RejectReason::NoSuchLease);
        };
        self.open_session(session);
        let longest = self.pools[index(lease.pool.0)].policy.max_wait;
        let w = Parked {
            order: 0,
            session,
            request,
            pool: lease.pool,
            who: lease.who,
            priority: lease.priority,
            traffic: lease.traffic,
            kind: lease.kind,
            child: lease.child,
            ends_with_client: lease.ends_with_client,
            candidates: lease.candidates,
            sticky: lease.member,
            arrived: self.now,
            until: self.now.after(longest.min(max_wait.unwrap_or(longest))),
            deadline: None,
            task: Task::Resume(id),
            recorded: false,
        };
        self.begin(w);
    }

    pub(super) fn client_gone(&mut self, session: SessionId, work: Work) {
        match work {
            Work::Request(request) => {
                if let Some(at) = self.parked.iter().position(|w| (w.session, w.request) == (session, request)) {
                    let w = self.parked.remove(at);
                    self.say_unparked(&w, WaitEnd::Gone);
                    self.reject(session, request, RejectReason::ClientGone);
                }
            }
            Work::Lease(id) => {
                let reclaimed = self.now.after(self.node.reclaim_grace);
                let lease = self.leases.iter_mut().find(|l| l.id == id && l.session == session && !l.client_gone);
                if let Some(lease) = lease {
                    lease.client_gone = true;
                    lease.reclaimed = lease.ends_with_client.then_some(reclaimed);
                    let lease = lease.clone();
                    self.out.push(Output::ClientGone { context: self.context_of(&lease), lease: id });
                }
            }
        }
    }
}
