//! The order in which parked requests deserve a slot, within one lane: those of one candidate set that are alike in all
//! that decides whether they can go, but for how much is held already.
//!
//! ```text
//!   lane ── units (the org, or the key) by in flight, then by how long the one they would send has waited
//!             └─ keys of a unit: below its floor first, then in flight / weight, then likewise
//!                  └─ requests of a key: oldest first; newest first while the node is overloaded
//! ```
//!
//! All units of a lane have the same weight and floor. So the share test depends on their counts alone, the first of a
//! lane is eligible if any request in it is, and no wake looks further than the first.

use crate::collections::chain::Chain;
use crate::collections::heap::{Heap, Place};
use crate::collections::slots::{Slot, Slots};
use crate::collections::table::Table;
use crate::identity::party::PartyId;
use crate::waiting::park::ParkId;
use crate::waiting::stand::{Head, LaneKey, Rank, Stand, Standings};

/// Parked requests of one candidate set that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    units: Slots<Unit>,
    by_unit: Table<Option<PartyId>, Slot>,
    order: Heap<(u32, ParkId)>,
    keys: Slots<Queue>,
    by_key: Table<(Option<PartyId>, Option<PartyId>), Slot>,
    /// Emptied orders of units that are gone, for the next ones.
    spare: Vec<Heap<(Rank, ParkId)>>,
}

#[derive(Clone, Debug)]
struct Unit {
    party: Option<PartyId>,
    in_flight: u32,
    order: Heap<(Rank, ParkId)>,
    place: Place,
}

/// The requests of one key of one unit, oldest first.
#[derive(Clone, Debug)]
struct Queue {
    unit: Slot,
    party: Option<PartyId>,
    rank: Rank,
    waiting: Chain,
    place: Place,
}

impl Lane {
    pub(crate) fn new(key: LaneKey) -> Self {
        Self {
            key,
            units: Slots::default(),
            by_unit: Table::default(),
            order: Heap::default(),
            keys: Slots::default(),
            by_key: Table::default(),
            spare: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The most deserving.
    pub(crate) fn head(&self, standings: &Standings) -> Option<Head> {
        let ((in_flight, park), slot) = self.order.first()?;
        let unit = &self.units[slot];
        let (_, queue) = unit.order.first().expect("a unit without requests is gone");
        let queue = &self.keys[queue];
        let (_, slot) = standings.head(self.key.door, queue.waiting).expect("a queue without requests is gone");
        Some(Head { unit: unit.party, key: queue.party, rank: Rank { in_flight, terms: self.key.terms }, park, slot })
    }

    /// A request begins to wait.
    pub(crate) fn insert(&mut self, standings: &mut Standings, slot: Slot, park: ParkId, stand: Stand) {
        let unit = self.by_unit.get(&stand.unit).copied().unwrap_or_else(|| {
            let order = self.spare.pop().unwrap_or_default();
            let unit =
                self.units.insert(Unit { party: stand.unit, in_flight: stand.of_unit.in_flight, order, place: 0 });
            self.by_unit.insert(stand.unit, unit);
            unit
        });
        match self.by_key.get(&(stand.unit, stand.key)).copied() {
            Some(queue) => {
                standings.append(&mut self.keys[queue].waiting, slot, park);
                self.reorder_queue(standings, queue);
            }
            None => {
                let mut queue =
                    Queue { unit, party: stand.key, rank: stand.of_key, waiting: Chain::default(), place: 0 };
                standings.append(&mut queue.waiting, slot, park);
                let rank = queue.rank;
                let queue = self.keys.insert(queue);
                self.by_key.insert((stand.unit, stand.key), queue);
                let keys = &mut self.keys;
                self.units[unit].order.insert((rank, park), queue, |queue, place| keys[queue].place = place);
                self.reorder_unit(unit);
            }
        }
    }

    /// A request waits no longer.
    pub(crate) fn remove(
        &mut self,
        standings: &mut Standings,
        slot: Slot,
        unit: Option<PartyId>,
        key: Option<PartyId>,
    ) {
        let Some(queue) = self.by_key.get(&(unit, key)).copied() else {
            debug_assert!(false, "a request leaves the lane it stands in");
            return;
        };
        standings.links.remove(&mut self.keys[queue].waiting, slot);
        if self.keys[queue].waiting.first().is_some() {
            return self.reorder_queue(standings, queue);
        }
        self.by_key.remove(&(unit, key));
        let Some(Queue { unit: at, place, .. }) = self.keys.remove(queue) else { return };
        let keys = &mut self.keys;
        self.units[at].order.remove(place, |queue, place| keys[queue].place = place);
        if self.units[at].order.first().is_some() {
            return self.reorder_unit(at);
        }
        self.by_unit.remove(&unit);
        if let Some(gone) = self.units.remove(at) {
            let units = &mut self.units;
            self.order.remove(gone.place, |unit, place| units[unit].place = place);
            self.spare.push(gone.order);
        }
    }

    /// How much a unit and one of its keys hold changed.
    pub(crate) fn reposition(&mut self, standings: &Standings, stand: &Stand) {
        if let Some(queue) = self.by_key.get(&(stand.unit, stand.key)).copied() {
            self.keys[queue].rank.in_flight = stand.of_key.in_flight;
            self.reorder_queue(standings, queue);
        }
        if let Some(unit) = self.by_unit.get(&stand.unit).copied() {
            self.units[unit].in_flight = stand.of_unit.in_flight;
            self.reorder_unit(unit);
        }
    }

    /// Any principal's count or the order within queues may have changed. `held` and
    /// `in_flight` say what a unit and a key hold now.
    pub(crate) fn reorder(
        &mut self,
        standings: &Standings,
        held: impl Fn(Option<PartyId>) -> u32,
        in_flight: impl Fn(Option<PartyId>) -> u32,
    ) {
        for queue in self.keys.iter().map(|(queue, _)| queue).collect::<Vec<_>>() {
            let unit = self.keys[queue].unit;
            let (party, key) = (self.units[unit].party, self.keys[queue].party);
            self.units[unit].in_flight = held(party);
            self.keys[queue].rank.in_flight = if party == key { held(party) } else { in_flight(key) };
            self.reorder_queue(standings, queue);
        }
    }

    /// All that wait here: slot, unit, key, and the ranks they are ordered by. For recounts and checks.
    pub(crate) fn iter<'a>(&'a self, standings: &'a Standings) -> impl Iterator<Item = (Slot, Stand)> + 'a {
        self.keys.iter().flat_map(move |(_, queue)| {
            let unit = &self.units[queue.unit];
            let of_unit = Rank { in_flight: unit.in_flight, terms: self.key.terms };
            let stand = Stand { unit: unit.party, of_unit, key: queue.party, of_key: queue.rank };
            standings.links.iter(queue.waiting).map(move |slot| (slot, stand))
        })
    }

    /// Every order lists exactly those it should, at their ranks. For checks.
    pub(crate) fn is_consistent(&self, standings: &Standings) -> bool {
        let queues = self.keys.iter().all(|(slot, queue)| {
            let ranked = self.units[queue.unit].order.iter().nth(queue.place as usize);
            let head = standings.head(self.key.door, queue.waiting).map(|(park, _)| park);
            ranked.is_some_and(|((rank, park), owner)| (rank, Some(park), owner) == (queue.rank, head, slot))
        });
        let units = self.units.iter().all(|(slot, unit)| {
            let ranked = self.order.iter().nth(unit.place as usize);
            let park = unit.order.first().map(|((_, park), _)| park);
            ranked.is_some_and(|((held, first), owner)| (held, Some(first), owner) == (unit.in_flight, park, slot))
        });
        let listed: usize = self.units.iter().map(|(_, unit)| unit.order.iter().count()).sum();
        queues && units && listed == self.keys.len() && self.order.iter().count() == self.units.len()
    }

    fn reorder_queue(&mut self, standings: &Standings, queue: Slot) {
        let Queue { unit, rank, place, .. } = self.keys[queue];
        if let Some((park, _)) = standings.head(self.key.door, self.keys[queue].waiting) {
            let keys = &mut self.keys;
            self.units[unit].order.rerank(place, (rank, park), |queue, place| keys[queue].place = place);
        }
        self.reorder_unit(unit);
    }

    /// Puts a unit where its count and its first request belong; one that just came has no place yet.
    fn reorder_unit(&mut self, slot: Slot) {
        let unit = &self.units[slot];
        let Some(((_, park), _)) = unit.order.first() else { return };
        let (rank, place) = ((unit.in_flight, park), unit.place);
        let stands = self.order.iter().nth(place as usize).is_some_and(|(_, owner)| owner == slot);
        let units = &mut self.units;
        if stands {
            self.order.rerank(place, rank, |unit, place| units[unit].place = place);
        } else {
            self.order.insert(rank, slot, |unit, place| units[unit].place = place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{KeyId, OrgId};
    use crate::identity::entitle::Terms;
    use crate::identity::party::{Holder, Name, Parties};
    use crate::waiting::park::Door;

    const PLAIN: Terms = Terms { weight: 1, floor: 0 };

    struct World {
        lane: Lane,
        standings: Standings,
    }

    impl World {
        fn new() -> Self {
            let key = LaneKey { door: Door::Keyed, traffic: None, terms: PLAIN };
            Self { lane: Lane::new(key), standings: Standings::default() }
        }

        fn park(&mut self, slot: Slot, holder: Holder, unit_held: u32, key_held: u32, terms: Terms) {
            let stand = Stand {
                unit: holder.unit(true),
                of_unit: Rank { in_flight: unit_held, terms: PLAIN },
                key: holder.key,
                of_key: Rank { in_flight: key_held, terms },
            };
            self.lane.insert(&mut self.standings, slot, ParkId(slot.into()), stand);
            assert!(self.lane.is_consistent(&self.standings));
        }

        fn next(&mut self) -> Option<Slot> {
            let head = self.lane.head(&self.standings)?;
            let (_, stand) = self.lane.iter(&self.standings).find(|(slot, _)| *slot == head.slot)?;
            self.lane.remove(&mut self.standings, head.slot, stand.unit, stand.key);
            assert!(self.lane.is_consistent(&self.standings));
            Some(head.slot)
        }

        fn order(mut self) -> Vec<Slot> {
            std::iter::from_fn(|| self.next()).collect()
        }
    }

    fn holders() -> [Holder; 4] {
        let mut parties = Parties::default();
        let mut hold = |key, org: Option<u128>| parties.hold(Some(Name::Key(KeyId(key))), org.map(OrgId));
        [hold(1, None), hold(2, None), hold(3, Some(9)), hold(4, Some(9))]
    }

    #[test]
    fn least_in_flight_goes_first_then_longest_waiting() {
        let [a, b, ..] = holders();
        let mut world = World::new();
        world.park(1, a, 3, 3, PLAIN);
        world.park(2, b, 3, 3, PLAIN);
        world.park(3, b, 3, 3, PLAIN);
        assert_eq!(world.lane.head(&world.standings).map(|head| head.slot), Some(1));
        let two = Rank { in_flight: 2, terms: PLAIN };
        let stand = Stand { unit: b.key, of_unit: two, key: b.key, of_key: two };
        world.lane.reposition(&world.standings, &stand);
        assert_eq!(world.order(), [2, 3, 1]);
    }

    #[test]
    fn within_an_org_the_key_below_its_floor_goes_first_then_the_one_with_least_for_its_weight() {
        let [a, _, heavy, light] = holders();
        let mut world = World::new();
        world.park(1, heavy, 5, 4, Terms { weight: 8, floor: 0 });
        world.park(2, light, 5, 1, Terms { weight: 1, floor: 0 });
        world.park(3, a, 6, 6, PLAIN);
        assert_eq!(world.order(), [1, 2, 3]);

        let [_, _, heavy, light] = holders();
        let mut world = World::new();
        world.park(1, heavy, 5, 4, Terms { weight: 8, floor: 0 });
        world.park(2, light, 5, 1, Terms { weight: 1, floor: 2 });
        assert_eq!(world.order(), [2, 1]);
    }

    #[test]
    fn the_newest_of_a_key_goes_first_while_the_node_is_overloaded() {
        let [a, b, ..] = holders();
        let mut world = World::new();
        world.standings.newest_first = true;
        world.park(1, a, 0, 0, PLAIN);
        world.park(2, a, 0, 0, PLAIN);
        world.park(3, b, 1, 1, PLAIN);
        world.park(4, b, 1, 1, PLAIN);
        assert_eq!(world.order(), [2, 1, 4, 3]);
    }
}
