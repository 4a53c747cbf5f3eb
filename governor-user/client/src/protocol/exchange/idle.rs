//! Leases of idle work: the slot goes back, the lease stays, and a slot is asked for again.

use super::{Exchange, Link, Open, Phase, Resumed, SINCE_TWO, millis};
use crate::lease::refused::Refused;
use governor_common::wire::request::Request;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

impl Exchange {
    pub(super) fn suspend(&mut self, slot: u64) {
        let Some(held) = self.held.get_mut(slot).filter(|held| !held.suspended) else { return };
        held.suspended = true;
        self.local.leave(&held.state);
        self.catch_up(slot);
    }

    /// Notifies the daemon that a lease it counts is suspended. A daemon of version 1 keeps the slot taken.
    pub(super) fn catch_up(&mut self, slot: u64) {
        let Some(held) = self.held.get(slot).filter(|held| held.suspended && held.phase == Phase::Counted) else {
            return;
        };
        let lease = held.state.id.load(Ordering::Acquire);
        if self.is_open() && self.version >= SINCE_TWO {
            self.put(&Request::Suspend { lease });
        }
    }

    pub(super) fn resume(&mut self, slot: u64, max_wait: Option<Duration>, reply: Resumed, now: Instant) {
        let Some(held) = self.held.get(slot) else {
            drop(reply.send(Err(Refused::over())));
            return;
        };
        let state = held.state.clone();
        match (self.link, held.phase) {
            (Link::Up, Phase::Counted) if self.version >= SINCE_TWO => {
                let lease = state.id.load(Ordering::Acquire);
                let request = self.put(&Request::Resume { lease, max_wait_ms: max_wait.map(millis) });
                self.open.insert(request, Open::Resume(slot, max_wait, reply));
            }
            (Link::Up, Phase::Counted) => self.resumed(slot, None, reply),
            (_, Phase::Uncounted) if state.free => self.resumed(slot, None, reply),
            (_, Phase::Uncounted | Phase::Ending) => drop(reply.send(Err(Refused::over()))),
            _ if self.away => match self.local.decide(&state.ask.wire, slot, now) {
                Ok(member) => self.resumed(slot, member, reply),
                Err(refused) => drop(reply.send(Err(refused.spread(slot)))),
            },
            _ => self.deferred_resumes.push((slot, max_wait, reply)),
        }
    }

    /// The lease has a slot again.
    pub(super) fn resumed(&mut self, slot: u64, member: Option<Arc<str>>, reply: Resumed) {
        let Some(held) = self.held.get_mut(slot) else { return };
        let state = held.state.clone();
        if member.is_some() {
            state.set_member(member);
        }
        if std::mem::take(&mut held.suspended) {
            self.local.enter(&state);
        }
        state.suspended.store(false, Ordering::Release);
        // A caller that is gone has dropped the guard, which ends the lease.
        drop(reply.send(Ok(())));
    }

    pub(super) fn client_gone(&mut self, lease: u64) {
        if let Some(held) = self.by_id.get(lease).and_then(|slot| self.held.get(*slot)) {
            held.state.lose_client();
        }
    }
}
