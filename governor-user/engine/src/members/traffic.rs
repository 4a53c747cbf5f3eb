//! Kinds of traffic of one pool, their sub-capacities and how much of each is in flight (A13). Knows no lease.

use crate::id::TrafficId;
use crate::policy::TrafficPolicy;

/// The kinds of traffic there are and were, stable by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    known: Vec<Kind>,
    /// Those in the policy, in its order.
    pub(crate) order: Vec<TrafficId>,
}

/// One kind.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) policy: TrafficPolicy,
    /// In the policy now.
    present: bool,
    pub(crate) in_flight: u32,
}

impl Traffic {
    /// Takes new kinds. What is in flight goes on counting under its kind.
    pub(crate) fn obey(&mut self, kinds: &[TrafficPolicy]) {
        self.known.iter_mut().for_each(|kind| kind.present = false);
        self.order.clear();
        for policy in kinds {
            let policy = policy.clone();
            let at = self.known.iter().position(|kind| kind.policy.name == policy.name).unwrap_or(self.known.len());
            match self.known.get_mut(at) {
                Some(kind) => (kind.policy, kind.present) = (policy, true),
                None => self.known.push(Kind { policy, present: true, in_flight: 0 }),
            }
            self.order.extend(u32::try_from(at).ok().map(TrafficId));
        }
    }

    /// A kind that is in the policy now.
    pub(crate) fn get(&self, kind: TrafficId) -> Option<&Kind> {
        self.known.get(kind.index()).filter(|kind| kind.present)
    }

    /// A kind a request names, if it is in the policy now.
    pub(crate) fn known_now(&self, kind: Option<TrafficId>) -> Option<TrafficId> {
        kind.filter(|kind| self.get(*kind).is_some())
    }

    /// The kind of this name.
    pub(crate) fn find(&self, name: &str) -> Option<TrafficId> {
        self.order.iter().copied().find(|kind| self.get(*kind).is_some_and(|kind| kind.policy.name == name))
    }

    /// Its sub-capacity, if it has one.
    pub(crate) fn limit(&self, kind: Option<TrafficId>) -> Option<u32> {
        kind.and_then(|kind| self.get(kind)).map(|kind| kind.policy.slots).filter(|slots| *slots > 0)
    }

    /// A kind fills its sub-capacity.
    pub(crate) fn is_full(&self, kind: Option<TrafficId>) -> bool {
        self.limit(kind).is_some_and(|limit| self.in_flight(kind) >= limit)
    }

    /// In flight of a kind.
    pub(crate) fn in_flight(&self, kind: Option<TrafficId>) -> u32 {
        kind.and_then(|kind| self.known.get(kind.index())).map_or(0, |kind| kind.in_flight)
    }

    /// One lease more or less of a kind.
    pub(crate) fn change(&mut self, kind: Option<TrafficId>, change: impl FnOnce(&mut u32)) {
        if let Some(kind) = kind.and_then(|kind| self.known.get_mut(kind.index())) {
            change(&mut kind.in_flight);
        }
    }
}
