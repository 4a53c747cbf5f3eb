//! Requests on their way: sent, withdrawn, answered, or decided without the daemon.

use super::{Exchange, Link, Open, Phase, SINCE_TWO, Waiting, millis};
use crate::lease::refused::Refused;
use crate::lease::request::{Parent, Wire};
use governor_common::wire::codec::{MAX_CANDIDATES, encode_acquire};
use governor_common::wire::error::EncodeError;
use governor_common::wire::reply::{Grant, Shed};
use governor_common::wire::request::{self, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tracing::debug;

impl Exchange {
    /// Sends a request, or has the fallback decide it, or lets it wait.
    pub(super) fn advance(&mut self, ticket: u64, now: Instant) {
        if self.link == Link::Up {
            self.send_acquire(ticket, now);
        } else if self.away {
            self.fall_back(ticket, now);
        }
    }

    /// Sends, in order of arrival, what no frame of this connection carries.
    pub(super) fn send_unsent(&mut self, now: Instant) {
        for ticket in self.waiting.in_order(|waiting| waiting.request.is_none()) {
            self.send_acquire(ticket, now);
        }
    }

    fn send_acquire(&mut self, ticket: u64, now: Instant) {
        let Some(waiting) = self.waiting.get(ticket) else { return };
        let parent = match waiting.ask.parent {
            None => None,
            // The daemon would take it for new work.
            Some(parent) if self.version < SINCE_TWO && self.is_hop_of_live(parent) => {
                return self.begin_hop(ticket, now);
            }
            Some(parent) => match self.held.get(parent.slot()).map(|held| (held.phase, held)) {
                Some((Phase::Counted, held)) => Some(parent.wire(held.state.wire_id())),
                // It goes when the parent's id is known.
                Some((Phase::Unregistered | Phase::Registering, _)) => return,
                Some((Phase::Uncounted, _)) if self.is_hop_of_live(parent) => {
                    return self.begin_hop(ticket, now);
                }
                Some((Phase::Ending | Phase::Uncounted, _)) | None => None,
            },
        };
        let request = self.request_id();
        let Some(waiting) = self.waiting.get_mut(ticket) else { return };
        match encode_acquire(waiting.wire(parent, now, self.max_wait), request, &mut self.out) {
            Ok(()) => {
                self.open.insert(request, Open::Acquire(ticket));
                waiting.request = Some(request);
                waiting.sent = true;
            }
            Err(EncodeError { length }) => {
                let refused = format!(
                    "the names of the request's members take {length} bytes, at most {MAX_CANDIDATES}: name fewer members"
                );
                self.turn_away(ticket, Refused::rejected(refused));
            }
        }
    }

    /// Whether this is one more hop of work that holds a lease, or needs none.
    pub(super) fn is_hop_of_live(&self, parent: Parent) -> bool {
        let Parent::Hop { slot } = parent else { return false };
        self.held.get(slot).is_some_and(|held| match held.phase {
            Phase::Counted | Phase::Unregistered | Phase::Registering => true,
            Phase::Uncounted => held.state.free,
            Phase::Ending => false,
        })
    }

    /// Shares the lease without a request to the daemon.
    fn begin_hop(&mut self, ticket: u64, now: Instant) {
        self.begin(ticket, 0, None, false, now);
    }

    pub(super) fn cancel(&mut self, ticket: u64) {
        // A ticket that does not wait was answered: if with a lease, that was dropped with the answer.
        let Some(Waiting { request: Some(request), .. }) = self.waiting.remove(ticket) else { return };
        self.open.remove(request);
        self.put(&Request::Cancel { request });
    }

    pub(super) fn fall_back(&mut self, ticket: u64, now: Instant) {
        let Some(waiting) = self.waiting.get(ticket) else { return };
        if waiting.ask.parent.is_some_and(|parent| self.is_hop_of_live(parent)) {
            return self.begin_hop(ticket, now);
        }
        let verdict = self.local.decide(&waiting.ask.wire, self.next_slot, now);
        if let Some(request) = waiting.request {
            // Only a daemon that drains or is stalled has it yet.
            self.open.remove(request);
            self.put(&Request::Cancel { request });
        }
        let counters = self.queue.counters();
        match verdict {
            Ok(member) => {
                counters.fallback_grants.fetch_add(1, Ordering::Relaxed);
                self.begin(ticket, 0, member, true, now);
            }
            Err(refused) => {
                let before = counters.fallback_refusals.fetch_add(1, Ordering::Relaxed);
                self.turn_away(ticket, refused.spread(before));
            }
        }
    }

    fn turn_away(&mut self, ticket: u64, refused: Refused) {
        if let Some(waiting) = self.waiting.remove(ticket) {
            // A caller that is gone does not receive it.
            drop(waiting.reply.send(Err(refused)));
        }
    }

    pub(super) fn grant(&mut self, request: u32, grant: Grant<Arc<str>>, now: Instant) {
        let member = grant.member;
        match self.open.remove(request) {
            Some(Open::Acquire(ticket)) => self.begin(ticket, grant.lease, member, false, now),
            Some(Open::Move(slot, reply)) => {
                let Some(held) = self.held.get(slot) else { return };
                if let Some(to) = &member {
                    self.local.move_to(&held.state, to.clone());
                }
                drop(reply.send(member.ok_or_else(Refused::over)));
            }
            Some(Open::Resume(slot, _, reply)) => self.resumed(slot, member, reply),
            // It crossed a Cancel on the wire.
            Some(Open::Register(_)) | None => {
                if grant.lease != 0 {
                    debug!(lease = grant.lease, "giving back a grant nobody waits for");
                    self.releases.push(grant.lease);
                }
            }
        }
    }

    pub(super) fn shed(&mut self, request: u32, shed: Shed) {
        if let Some(Open::Move(slot, _)) = self.open.get(request) {
            // The daemon took the slot back; the guard's own release would come too late to mean anything.
            if let Some(held) = self.held.get_mut(*slot) {
                held.phase = Phase::Uncounted;
                held.state.over.store(true, Ordering::Release);
                self.by_id.remove(held.state.id.load(Ordering::Acquire));
            }
        }
        self.refuse(request, Refused::shed(shed));
    }

    pub(super) fn refuse(&mut self, request: u32, refused: Refused) {
        match self.open.remove(request) {
            Some(Open::Acquire(ticket)) => self.turn_away(ticket, refused),
            Some(Open::Move(_, reply)) => drop(reply.send(Err(refused))),
            Some(Open::Resume(_, _, reply)) => drop(reply.send(Err(refused))),
            Some(Open::Register(slots)) => {
                for slot in slots {
                    if self.held.get(slot).is_some_and(|held| held.phase == Phase::Ending) {
                        self.held.remove(slot);
                    } else if let Some(held) = self.held.get_mut(slot) {
                        held.phase = Phase::Uncounted;
                    }
                }
            }
            None => {}
        }
    }
}

impl Waiting {
    /// What to say on the wire: bounds shrink by the time already spent. A request that named no wait gets the pool's
    /// own the first time, and what is left of the client's bound when it is said again.
    fn wire(&mut self, parent: Option<request::Parent>, now: Instant, max_wait: Duration) -> &Wire {
        let spent = now.saturating_duration_since(self.since);
        let max_wait = self.ask.max_wait.or_else(|| self.sent.then_some(max_wait));
        let wire = &mut self.ask.wire;
        wire.parent = parent;
        wire.max_wait_ms = max_wait.map(|wait| millis(wait.saturating_sub(spent)));
        wire.deadline_ms = self.ask.deadline.map(|deadline| millis(deadline.saturating_sub(spent)));
        wire
    }

    /// When it has waited as long as its caller allows.
    pub(super) fn expiry(&self) -> Option<Instant> {
        let shorter = [self.ask.max_wait, self.ask.deadline].into_iter().flatten().min();
        shorter.and_then(|bound| self.since.checked_add(bound))
    }

    pub(super) fn expired(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| now >= expiry)
    }
}
