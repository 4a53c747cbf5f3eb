//! Live leases: begun, renewed, moved, registered, given back.

use super::{Exchange, Held, Link, Moved, Open, Phase, Waiting, millis};
use crate::lease::refused::Refused;
use crate::lease::request::Parent;
use crate::lease::{Beginning, Lease, LeaseState};
use governor_common::wire::codec::{HELD_PER_FRAME, RENEWALS_PER_FRAME};
use governor_common::wire::reply::RevokeReason;
use governor_common::wire::request::{HeldLease, Kind, Renewal, Request};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;
use tracing::info;

impl Exchange {
    /// Makes the lease that answers a request.
    pub(super) fn begin(&mut self, ticket: u64, id: u64, member: Option<Arc<str>>, fallback: bool, now: Instant) {
        let Some(Waiting { ask, reply, since, .. }) = self.waiting.remove(ticket) else { return };
        let Some(queue) = self.queue.upgrade() else {
            // No handle is left that could hold it.
            if id != 0 {
                self.releases.push(id);
            }
            return;
        };
        self.next_slot += 1;
        let (kind, parent) = (ask.wire.kind, ask.parent);
        // A hop whose work is over by now was given a slot of its own, and an id with it.
        let shares = parent.filter(|parent| id == 0 && self.is_hop_of_live(*parent)).map(Parent::slot);
        let free = kind == Kind::Exempt || shares.is_some();
        let shared = shares.and_then(|slot| self.held.get(slot)).and_then(|held| held.state.member());
        let member = member.or(shared);
        let state = LeaseState::begin(Beginning {
            slot: self.next_slot,
            id,
            ask,
            free,
            shares,
            member,
            waited: now.saturating_duration_since(since),
            fallback,
            granted: now,
        });
        let phase = match fallback {
            _ if free => Phase::Uncounted,
            true => Phase::Unregistered,
            false if id == 0 => Phase::Uncounted,
            false => Phase::Counted,
        };
        if phase == Phase::Counted {
            self.by_id.insert(id, state.slot);
        }
        self.local.enter(&state);
        self.held.insert(state.slot, Held { state: state.clone(), phase, moved: false, suspended: false });
        // A caller that is gone drops the answer, and with it the lease, which queues its release.
        drop(reply.send(Ok(Lease::new(state, queue))));
    }

    pub(super) fn release(&mut self, slot: u64) {
        let Some(held) = self.held.get_mut(slot) else { return };
        if held.phase == Phase::Ending {
            return;
        }
        if !held.suspended {
            self.local.leave(&held.state);
        }
        if held.phase == Phase::Registering {
            held.phase = Phase::Ending;
            return;
        }
        if held.phase == Phase::Counted {
            let id = held.state.id.load(Ordering::Acquire);
            self.by_id.remove(id);
            self.releases.push(id);
        }
        self.held.remove(slot);
    }

    pub(super) fn revoke(&mut self, lease: u64, reason: RevokeReason) {
        let Some(slot) = self.by_id.remove(lease) else { return };
        let Some(held) = self.held.get_mut(slot) else { return };
        if held.phase == Phase::Ending {
            self.held.remove(slot);
            return;
        }
        info!(lease, ?reason, "a lease was revoked");
        held.phase = Phase::Uncounted;
        held.state.revoke(reason);
        self.queue.counters().revoked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn renew(&mut self, now: Instant) {
        let counted = self.held.in_order(|held| held.phase == Phase::Counted);
        let states = counted.into_iter().filter_map(|slot| Some(&self.held.get(slot)?.state));
        let renewals: Vec<Renewal> = states
            .map(|state| Renewal { lease: state.id.load(Ordering::Acquire), idle_ms: state.idle(now).map(millis) })
            .collect();
        for leases in renewals.chunks(RENEWALS_PER_FRAME) {
            self.put(&Request::Renew { leases: leases.to_vec() });
        }
    }

    pub(super) fn move_away(&mut self, slot: u64, reply: Moved, now: Instant) {
        let Some(held) = self.held.get_mut(slot) else {
            drop(reply.send(Err(Refused::over())));
            return;
        };
        if held.moved {
            drop(reply.send(Err(Refused::rejected("a lease moves only once".to_owned()))));
            return;
        }
        let state = held.state.clone();
        match (self.link, held.phase) {
            (Link::Up, Phase::Counted) => {
                held.moved = true;
                let request = self.put(&Request::Move { lease: state.id.load(Ordering::Acquire) });
                self.open.insert(request, Open::Move(slot, reply));
            }
            (_, Phase::Uncounted | Phase::Ending) => drop(reply.send(Err(Refused::over()))),
            _ if self.away => {
                held.moved = true;
                let other = self.local.other_member(&state, slot, now);
                if let Some(to) = &other {
                    self.local.move_to(&state, to.clone());
                }
                drop(reply.send(other.ok_or_else(Refused::over)));
            }
            _ => self.deferred_moves.push((slot, reply)),
        }
    }

    /// Registers every lease that the daemon does not count for this session.
    pub(super) fn register(&mut self, now: Instant) {
        let unregistered = self.held.in_order(|held| held.phase == Phase::Unregistered);
        let leases: Vec<(u64, HeldLease)> = unregistered
            .into_iter()
            .filter_map(|slot| {
                let held = self.held.get_mut(slot)?;
                held.phase = Phase::Registering;
                Some((slot, held.state.held(now, held.suspended)))
            })
            .collect();
        for chunk in leases.chunks(HELD_PER_FRAME) {
            for (slot, lease) in chunk {
                self.by_id.insert(lease.lease, *slot);
            }
            let (slots, leases) = chunk.iter().cloned().unzip();
            let request = self.put(&Request::Register { leases });
            self.open.insert(request, Open::Register(slots));
        }
    }

    pub(super) fn registered(&mut self, request: u32, leases: &[(u64, u64)], now: Instant) {
        let Some(Open::Register(slots)) = self.take_open(request, |open| matches!(open, Open::Register(_))) else {
            return;
        };
        let ids: BTreeMap<u64, u64> = leases.iter().copied().collect();
        for slot in slots {
            let Some(held) = self.held.get_mut(slot) else { continue };
            let old = held.state.wire_id();
            self.by_id.remove(old);
            let new = ids.get(&old).copied().filter(|id| *id != 0);
            match (new, held.phase) {
                (Some(new), Phase::Ending) => {
                    self.releases.push(new);
                    self.held.remove(slot);
                }
                (None, Phase::Ending) => {
                    self.held.remove(slot);
                }
                (Some(new), _) => {
                    held.phase = Phase::Counted;
                    held.state.id.store(new, Ordering::Release);
                    self.by_id.insert(new, slot);
                    self.queue.counters().registered.fetch_add(1, Ordering::Relaxed);
                    self.catch_up(slot);
                }
                (None, _) => {
                    held.phase = Phase::Uncounted;
                    held.state.revoke(RevokeReason::PoolGone);
                }
            }
        }
        self.take_up_deferred(now);
        // Those whose parent had no id yet.
        self.send_unsent(now);
    }

    /// Says what had to wait until the daemon knew the lease, or decides it without the daemon.
    pub(super) fn take_up_deferred(&mut self, now: Instant) {
        for (slot, reply) in mem::take(&mut self.deferred_moves) {
            self.move_away(slot, reply, now);
        }
        for (slot, max_wait, reply) in mem::take(&mut self.deferred_resumes) {
            self.resume(slot, max_wait, reply, now);
        }
    }

    fn take_open(&mut self, request: u32, is: impl FnOnce(&Open) -> bool) -> Option<Open> {
        if self.open.get(request).is_some_and(is) { self.open.remove(request) } else { None }
    }
}
