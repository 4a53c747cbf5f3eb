//! What parked requests are ordered by, and the order in which they came.

use crate::collections::chain::{Chain, Links};
use crate::collections::slots::Slot;
use crate::id::TrafficId;
use crate::identity::entitle::Terms;
use crate::identity::party::PartyId;
use crate::waiting::park::{Door, ParkId};
use std::cmp::Ordering;

/// What those of a lane have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneKey {
    pub(crate) door: Door,
    pub(crate) traffic: Option<TrafficId>,
    pub(crate) terms: Terms,
}

/// Whose request stands in a lane, and what it is ordered by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stand {
    /// Whom the share is for: the org or the key; `None` without a key.
    pub(crate) unit: Option<PartyId>,
    pub(crate) of_unit: Rank,
    pub(crate) key: Option<PartyId>,
    pub(crate) of_key: Rank,
}

/// Priority of a waiter, its usage relative to its entitlement: below its floor first, then by in flight / weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rank {
    pub(crate) in_flight: u32,
    pub(crate) terms: Terms,
}

impl Rank {
    fn is_below_floor(self) -> bool {
        self.in_flight < self.terms.floor
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let part = |of: &Self, by: &Self| u64::from(of.in_flight) * u64::from(by.terms.weight);
        other.is_below_floor().cmp(&self.is_below_floor()).then_with(|| part(self, other).cmp(&part(other, self)))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

/// The one of a lane that would go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) unit: Option<PartyId>,
    pub(crate) key: Option<PartyId>,
    pub(crate) rank: Rank,
    pub(crate) park: ParkId,
    /// Where it is parked.
    pub(crate) slot: Slot,
}

/// Who stands where, for all lanes of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standings {
    pub(crate) links: Links,
    /// Arrival, by slot.
    arrivals: Vec<ParkId>,
    /// A key's newest request goes first.
    pub(crate) newest_first: bool,
}

impl Standings {
    pub(crate) fn append(&mut self, chain: &mut Chain, slot: Slot, park: ParkId) {
        self.links.append(chain, slot);
        if self.arrivals.len() <= slot as usize {
            self.arrivals.resize(slot as usize + 1, ParkId::default());
        }
        self.arrivals[slot as usize] = park;
    }

    /// The request of a queue that goes first. Those that move go in order of arrival always.
    pub(crate) fn head(&self, door: Door, waiting: Chain) -> Option<(ParkId, Slot)> {
        let newest = self.newest_first && door != Door::Move;
        let slot = if newest { waiting.last() } else { waiting.first() }?;
        Some((self.arrivals[slot as usize], slot))
    }
}
