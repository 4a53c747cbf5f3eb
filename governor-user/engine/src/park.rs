//! Parked requests and the order in which they deserve a slot. Knows who is next in each lane; whether the next one
//! may go is judged elsewhere, again on every wake.
//!
//! Requests that are alike in everything but their key share a lane: same candidate set, same class. Within a lane the
//! one with the least in flight is next, then the one that waits longest. Because the share test depends only on the
//! key's count, the head of a lane is eligible if anybody in it is, and no wake looks further than the heads.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::MemberId;
use crate::id::{LeaseId, PoolId, RequestId, SessionId};
use crate::io::Kind;
use crate::load::Holder;
use crate::set::SetId;
use crate::time::Instant;

/// Position in arrival order, never reused: also the last tie-break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParkId(pub(crate) u64);

/// What decides which rules a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Holds a lease already and looks for another member: goes first.
    Move,
    /// No share test, may use the reserve.
    Reattach,
    /// Ordinary without a key: no share test.
    Keyless,
    /// Ordinary: share test, then member slots.
    Keyed,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Move, Self::Reattach, Self::Keyless, Self::Keyed];
}

/// A request the engine has understood, on its way to an answer.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) pool: PoolId,
    pub(crate) holder: Holder,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) set: SetId,
    pub(crate) sticky: Option<MemberId>,
    pub(crate) arrived: Instant,
    /// The end of its wait: arrival plus the longest park, or the client's deadline.
    pub(crate) until: Instant,
    pub(crate) deadline: Option<Instant>,
    /// The lease that moves, for [`Class::Move`].
    pub(crate) lease: Option<LeaseId>,
}

/// An [`Ask`] that waits.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(crate) ask: Ask,
    /// Observe mode has its record of this request.
    pub(crate) recorded: bool,
}

/// Parked requests of one candidate set and class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    queues: BTreeMap<Holder, Queue>,
    /// (in flight, head of the queue, holder): the first is the most deserving.
    order: BTreeSet<(u32, ParkId, Holder)>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    in_flight: u32,
    waiting: BTreeSet<ParkId>,
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The most deserving: in flight of its holder, and its id.
    pub(crate) fn head(&self) -> Option<(u32, ParkId, Holder)> {
        self.order.first().copied()
    }

    pub(crate) fn insert(&mut self, id: ParkId, holder: Holder, in_flight: u32) {
        self.edit(holder, |queue| {
            queue.in_flight = in_flight;
            queue.waiting.insert(id);
        });
    }

    pub(crate) fn remove(&mut self, id: ParkId, holder: Holder) {
        self.edit(holder, |queue| {
            queue.waiting.remove(&id);
        });
    }

    /// The holder's count over the candidate set changed.
    pub(crate) fn reposition(&mut self, holder: Holder, in_flight: u32) {
        if self.queues.contains_key(&holder) {
            self.edit(holder, |queue| queue.in_flight = in_flight);
        }
    }

    /// Every holder's count may have changed.
    pub(crate) fn reposition_all(&mut self, in_flight: impl Fn(Holder) -> u32) {
        self.order.clear();
        for (holder, queue) in &mut self.queues {
            queue.in_flight = in_flight(*holder);
            self.order.extend(queue.waiting.first().map(|id| (queue.in_flight, *id, *holder)));
        }
    }

    /// All that wait here, with the count they are ordered by. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ParkId, Holder, u32)> + '_ {
        self.queues.iter().flat_map(|(holder, queue)| queue.waiting.iter().map(|id| (*id, *holder, queue.in_flight)))
    }

    /// `order` lists exactly the heads. For checks.
    pub(crate) fn is_consistent(&self) -> bool {
        let heads: BTreeSet<_> = self
            .queues
            .iter()
            .filter_map(|(holder, queue)| queue.waiting.first().map(|id| (queue.in_flight, *id, *holder)))
            .collect();
        heads == self.order && heads.len() == self.queues.len()
    }

    /// Keeps `order` in step with one queue's change.
    fn edit(&mut self, holder: Holder, change: impl FnOnce(&mut Queue)) {
        let queue = self.queues.entry(holder).or_default();
        if let Some(head) = queue.waiting.first() {
            self.order.remove(&(queue.in_flight, *head, holder));
        }
        change(queue);
        if let Some(head) = queue.waiting.first() {
            self.order.insert((queue.in_flight, *head, holder));
        } else {
            self.queues.remove(&holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KeyId;

    const A: Holder = Some(KeyId(1));
    const B: Holder = Some(KeyId(2));

    #[test]
    fn least_in_flight_goes_first_then_longest_waiting() {
        let mut lane = Lane::default();
        lane.insert(ParkId(1), A, 3);
        lane.insert(ParkId(2), B, 3);
        lane.insert(ParkId(3), B, 3);
        assert_eq!(lane.head(), Some((3, ParkId(1), A)));

        lane.reposition(B, 2);
        assert_eq!(lane.head(), Some((2, ParkId(2), B)));

        lane.remove(ParkId(2), B);
        assert_eq!(lane.head(), Some((2, ParkId(3), B)));

        lane.remove(ParkId(3), B);
        lane.remove(ParkId(1), A);
        assert!(lane.is_empty() && lane.head().is_none() && lane.is_consistent());
    }
}
