//! One candidate set: C, T, who holds and wants how many over its members, who waits for them. Counts change by one
//! lease or one parked request at a time, and an entry is gone when it reaches 0. Knows no limits.

use crate::collections::slots::Slot;
use crate::collections::table::Table;
use crate::fairness::demand::Demand;
use crate::id::MemberId;
use crate::identity::entitle::Terms;
use crate::identity::party::{Holder, Parties, PartyId};
use crate::waiting::lane::Lane;
use crate::waiting::park::{Ask, Door, ParkId};
use crate::waiting::stand::{LaneKey, Rank, Stand, Standings};

/// Empty lanes are kept for reuse up to this many.
const IDLE_LANES: usize = 8;

/// What one party has over a candidate set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// In flight of a key.
    pub(crate) in_flight: u32,
    /// In flight of whom shares are for: of an org, of a key's requests without one. Kept where shares are for orgs.
    pub(crate) held: u32,
    /// The same and parked: d.
    pub(crate) wanted: u32,
    /// S: ordinary slots, here, of the open members that its leases and parked requests name. `u32::MAX` where one of
    /// them may run anywhere.
    pub(crate) reach: u32,
}

impl Default for Counts {
    fn default() -> Self {
        Self { in_flight: 0, held: 0, wanted: 0, reach: u32::MAX }
    }
}

impl Counts {
    /// What it wants of what it could use: min(d, S), but at least what it holds, which is real even where its members
    /// shrank or closed.
    pub(crate) fn demand(self) -> u32 {
        self.wanted.min(self.reach.max(self.held))
    }

    fn is_nothing(self) -> bool {
        (self.in_flight, self.held, self.wanted) == (0, 0, 0)
    }
}

/// One candidate set.
#[derive(Clone, Debug, Default)]
pub(crate) struct CandidateSet {
    /// Sorted, each once.
    pub(crate) members: Vec<MemberId>,
    /// C: ordinary slots of the open members.
    pub(crate) capacity: u32,
    /// T: leases on open members, and leases on no member.
    pub(crate) total: u32,
    /// Of those, the ones that went through the ordinary door.
    pub(crate) ordinary: u32,
    /// Of those, the ones without a key.
    pub(crate) keyless: u32,
    /// Keys with at least one.
    pub(crate) active_keys: u32,
    of: Table<PartyId, Counts>,
    /// Demand of all principals that could be used here: what counts in T, and what is parked on candidates that meet
    /// these, up to what the slots here that it may run on can hold.
    pub(crate) demand: Demand,
    lanes: Vec<Lane>,
    pub(crate) references: u32,
}

impl CandidateSet {
    /// The set of these members, referenced once, with nothing counted yet.
    pub(crate) fn of(members: Vec<MemberId>) -> Self {
        Self { members, references: 1, ..Self::default() }
    }

    pub(crate) fn contains(&self, member: MemberId) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// Work parked on `other` could come here.
    pub(crate) fn meets(&self, other: &[MemberId]) -> bool {
        self.members.iter().any(|member| other.binary_search(member).is_ok())
    }

    pub(crate) fn counts(&self, party: PartyId) -> Counts {
        self.of.get(&party).copied().unwrap_or_default()
    }

    /// In flight of a key, or of all without one.
    pub(crate) fn in_flight(&self, key: Option<PartyId>) -> u32 {
        key.map_or(self.keyless, |key| self.counts(key).in_flight)
    }

    /// In flight of whom a share is for.
    pub(crate) fn held(&self, unit: Option<PartyId>, by_org: bool) -> u32 {
        unit.map_or(self.keyless, |unit| if by_org { self.counts(unit).held } else { self.counts(unit).in_flight })
    }

    /// Parties that have anything here. For checks.
    pub(crate) fn parties(&self) -> usize {
        self.of.len()
    }

    /// Lanes in which a request waits.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| !lane.is_empty())
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.lanes().next().is_some()
    }

    /// One lease more. `by_org`: shares are for orgs, and what they want counts.
    pub(crate) fn enter(&mut self, holder: Holder, ordinary: bool, by_org: bool, parties: &Parties) {
        self.total += 1;
        self.ordinary += u32::from(ordinary);
        let Some(key) = holder.key else {
            self.keyless += 1;
            return;
        };
        let of_key = self.of.entry(key);
        of_key.in_flight += 1;
        self.active_keys += u32::from(of_key.in_flight == 1);
        if by_org {
            let unit = holder.org.unwrap_or(key);
            self.change_demand(unit, parties, |of| (of.held, of.wanted) = (of.held + 1, of.wanted + 1));
        }
    }

    /// One lease less.
    pub(crate) fn leave(&mut self, holder: Holder, ordinary: bool, by_org: bool, parties: &Parties) {
        self.total -= 1;
        self.ordinary -= u32::from(ordinary);
        let Some(key) = holder.key else {
            self.keyless -= 1;
            return;
        };
        if by_org {
            let unit = holder.org.unwrap_or(key);
            self.change_demand(unit, parties, |of| (of.held, of.wanted) = (of.held - 1, of.wanted - 1));
        }
        let left = self.change(key, |of| of.in_flight -= 1);
        self.active_keys -= u32::from(left.in_flight == 0);
    }

    /// A party wants one more.
    pub(crate) fn want(&mut self, unit: PartyId, parties: &Parties) {
        self.change_demand(unit, parties, |of| of.wanted += 1);
    }

    /// A party wants one less.
    pub(crate) fn unwant(&mut self, unit: PartyId, parties: &Parties) {
        self.change_demand(unit, parties, |of| of.wanted -= 1);
    }

    /// A party that has something here can use `reach` slots here.
    pub(crate) fn set_reach(&mut self, unit: PartyId, reach: impl FnOnce(&Self) -> u32, parties: &Parties) {
        let Some(before) = self.of.get(&unit).map(|of| of.reach) else { return };
        let reach = reach(self);
        if reach != before {
            self.change_demand(unit, parties, |of| of.reach = reach);
        }
    }

    /// What a party wants is wanted on other terms.
    pub(crate) fn change_terms(&mut self, party: PartyId, from: Terms, to: Terms) {
        let wanted = self.counts(party).demand();
        (1..=wanted).rev().for_each(|n| self.demand.remove(from, n));
        (1..=wanted).for_each(|n| self.demand.add(to, n));
    }

    /// Changes what a party has or reaches, and what is wanted of it with that.
    fn change_demand(&mut self, unit: PartyId, parties: &Parties, change: impl FnOnce(&mut Counts)) {
        let of = self.of.entry(unit);
        let before = of.demand();
        change(of);
        let (after, is_nothing) = (of.demand(), of.is_nothing());
        if is_nothing {
            self.of.remove(&unit);
        }
        let terms = parties.get(unit).entitled.terms;
        (after + 1..=before).rev().for_each(|n| self.demand.remove(terms, n));
        (before + 1..=after).for_each(|n| self.demand.add(terms, n));
    }

    fn change(&mut self, party: PartyId, change: impl FnOnce(&mut Counts)) -> Counts {
        let Some(of) = self.of.get_mut(&party) else {
            debug_assert!(false, "what is counted out was counted in");
            return Counts::default();
        };
        change(of);
        let left = *of;
        if left.is_nothing() {
            self.of.remove(&party);
        }
        left
    }

    /// Nothing is held or wanted.
    pub(crate) fn clear_counts(&mut self) {
        (self.total, self.ordinary, self.keyless, self.active_keys) = (0, 0, 0, 0);
        self.of.clear();
        self.demand.clear();
    }

    /// No request waits.
    pub(crate) fn clear_lanes(&mut self) {
        self.lanes.clear();
    }

    /// A request begins to wait.
    pub(crate) fn park(&mut self, standings: &mut Standings, slot: Slot, park: ParkId, ask: &Ask, stand: Stand) {
        let key = lane_key(ask, &stand);
        let at = self.lanes.iter().position(|lane| lane.key == key).unwrap_or_else(|| {
            self.lanes.push(Lane::new(key));
            self.lanes.len() - 1
        });
        self.lanes[at].insert(standings, slot, park, stand);
    }

    /// A request waits no longer.
    pub(crate) fn unpark(&mut self, standings: &mut Standings, slot: Slot, ask: &Ask, stand: Stand) {
        let key = lane_key(ask, &stand);
        let Some(at) = self.lanes.iter().position(|lane| lane.key == key) else {
            debug_assert!(false, "a parked request stands in a lane");
            return;
        };
        self.lanes[at].remove(standings, slot, stand.unit, stand.key);
        if self.lanes.len() > IDLE_LANES && self.lanes[at].is_empty() {
            self.lanes.swap_remove(at);
        }
    }

    /// What a holder has changed: those of its requests that wait move up or down.
    pub(crate) fn reposition(&mut self, standings: &Standings, stand: &Stand) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.key.door != Door::Move) {
            lane.reposition(standings, stand);
        }
    }

    /// Any principal's count or the order within queues may have changed.
    pub(crate) fn reorder(&mut self, standings: &Standings, by_org: bool) {
        let mut lanes = std::mem::take(&mut self.lanes);
        for lane in &mut lanes {
            if lane.key.door != Door::Move {
                lane.reorder(standings, |unit| self.held(unit, by_org), |key| self.in_flight(key));
            }
        }
        self.lanes = lanes;
    }

    /// How a holder stands here. Those that move are served in order of arrival: they were judged when their lease was
    /// granted.
    pub(crate) fn stand(&self, door: Door, holder: Holder, by_org: bool, parties: &Parties) -> Stand {
        if door == Door::Move {
            return Stand::default();
        }
        let terms = |party: Option<PartyId>| {
            let terms = parties.terms(holder, party);
            // Floors are part of one rule; weights order who waits under each.
            if by_org { terms } else { Terms { floor: 0, ..terms } }
        };
        let (key, unit) = (holder.key, holder.unit(by_org));
        let of_unit = Rank { in_flight: self.held(unit, by_org), terms: terms(unit) };
        let of_key = if unit == key { of_unit } else { Rank { in_flight: self.in_flight(key), terms: terms(key) } };
        Stand { unit, of_unit, key, of_key }
    }
}

fn lane_key(ask: &Ask, stand: &Stand) -> LaneKey {
    let traffic = match ask.door {
        Door::Keyless | Door::Keyed => ask.traffic,
        Door::Move | Door::Reattach | Door::Child => None,
    };
    LaneKey { door: ask.door, traffic, terms: stand.of_unit.terms }
}
