//! Statistics per distinct candidate set: C, T, who holds how many, who waits. Sets are interned, because most requests
//! name the same few; a set nobody refers to is kept for a while and then forgotten, so that a client that names a new
//! set each time costs work and not memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::demand::Demand;
use crate::id::{KeyId, MemberId};
use crate::load::{Holder, Load};
use crate::member::Member;
use crate::park::{Class, Lane, ParkId};

/// Unreferenced sets kept warm per pool.
const IDLE_SETS: usize = 64;

/// A candidate set of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(usize);

impl SetId {
    /// Every member of the pool.
    pub(crate) const EVERYBODY: Self = Self(0);
}

/// One candidate set.
#[derive(Clone, Debug, Default)]
pub(crate) struct CandidateSet {
    /// Sorted, each once.
    pub(crate) members: Vec<MemberId>,
    /// C: ordinary slots of the open members.
    pub(crate) capacity: u32,
    /// What counts in T: leases on open members, and leases on no member.
    pub(crate) load: Load,
    /// What keys want here: what counts in T, and what is parked on candidates that meet these.
    pub(crate) demand: Demand,
    lanes: [Lane; 4],
    references: u32,
}

impl CandidateSet {
    pub(crate) fn lane(&self, class: Class) -> &Lane {
        &self.lanes[class as usize]
    }

    pub(crate) fn contains(&self, member: MemberId) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// Work parked on `other` could come here.
    pub(crate) fn meets(&self, other: &[MemberId]) -> bool {
        self.members.iter().any(|member| other.binary_search(member).is_ok())
    }

    fn has_waiters(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    fn reposition(&mut self, holder: Holder, in_flight: u32) {
        for class in [Class::Reattach, Class::Keyless, Class::Keyed] {
            self.lanes[class as usize].reposition(holder, in_flight);
        }
    }
}

/// The candidate sets of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Sets {
    slots: Vec<Option<CandidateSet>>,
    by_members: BTreeMap<Vec<MemberId>, SetId>,
    /// Unreferenced, longest unused first.
    idle: VecDeque<SetId>,
    waiting: BTreeSet<SetId>,
}

impl Sets {
    pub(crate) fn new() -> Self {
        let everybody = CandidateSet { references: 1, ..CandidateSet::default() };
        Self {
            slots: vec![Some(everybody)],
            by_members: BTreeMap::new(),
            idle: VecDeque::new(),
            waiting: BTreeSet::new(),
        }
    }

    pub(crate) fn get(&self, id: SetId) -> &CandidateSet {
        self.slots[id.0].as_ref().expect("a set is dropped only when nothing refers to it")
    }

    fn get_mut(&mut self, id: SetId) -> &mut CandidateSet {
        self.slots[id.0].as_mut().expect("a set is dropped only when nothing refers to it")
    }

    /// The set of these members, referenced once more. `members` may be unsorted and repeat itself.
    pub(crate) fn intern(&mut self, mut members: Vec<MemberId>, of: &[Member], unplaced: &Load) -> SetId {
        members.sort_unstable();
        members.dedup();
        if let Some(id) = self.by_members.get(&members) {
            let id = *id;
            let set = self.get_mut(id);
            set.references += 1;
            if set.references == 1 {
                self.idle.retain(|idle| *idle != id);
            }
            return id;
        }
        let id = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if id == self.slots.len() {
            self.slots.push(None);
        }
        self.by_members.insert(members.clone(), SetId(id));
        let mut set = CandidateSet { members, references: 1, ..CandidateSet::default() };
        recount(&mut set, of, unplaced);
        self.slots[id] = Some(set);
        self.recount_demand(SetId(id));
        SetId(id)
    }

    /// One more reference to a set that is referenced.
    pub(crate) fn retain(&mut self, id: SetId) {
        self.get_mut(id).references += 1;
    }

    /// One reference less.
    pub(crate) fn release(&mut self, id: SetId) {
        let set = self.get_mut(id);
        set.references -= 1;
        if set.references > 0 {
            return;
        }
        self.idle.push_back(id);
        if self.idle.len() > IDLE_SETS
            && let Some(oldest) = self.idle.pop_front()
            && let Some(set) = self.slots[oldest.0].take()
        {
            self.by_members.remove(&set.members);
        }
    }

    /// Members that came or left change the meaning of "every member".
    pub(crate) fn set_everybody(&mut self, members: Vec<MemberId>) {
        self.get_mut(SetId::EVERYBODY).members = members;
    }

    /// Counts from scratch those sets that hold one of `changed`.
    pub(crate) fn recount(&mut self, changed: &[MemberId], of: &[Member], unplaced: &Load) {
        for set in self.slots.iter_mut().flatten() {
            if changed.iter().any(|member| set.contains(*member)) {
                recount(set, of, unplaced);
            }
        }
        for id in 0..self.slots.len() {
            if self.slots[id].as_ref().is_some_and(|set| changed.iter().any(|member| set.contains(*member))) {
                self.recount_demand(SetId(id));
            }
        }
    }

    /// Counts every set from scratch.
    pub(crate) fn recount_all(&mut self, of: &[Member], unplaced: &Load) {
        for set in self.slots.iter_mut().flatten() {
            recount(set, of, unplaced);
        }
        for id in 0..self.slots.len() {
            if self.slots[id].is_some() {
                self.recount_demand(SetId(id));
            }
        }
    }

    /// Counts from scratch what keys want in one set.
    fn recount_demand(&mut self, id: SetId) {
        let mut demand = std::mem::take(&mut self.get_mut(id).demand);
        demand.clear();
        self.wanted(self.get(id), |key| demand.add(key));
        self.get_mut(id).demand = demand;
    }

    /// Every request, in flight or parked, by which a key wants something in a set.
    pub(crate) fn wanted(&self, set: &CandidateSet, mut one: impl FnMut(KeyId)) {
        set.load.each(&mut one);
        for other in self.waiting().filter(|other| set.meets(&other.members)) {
            for class in [Class::Reattach, Class::Keyless, Class::Keyed] {
                other.lane(class).iter().filter_map(|(_, holder, _)| holder).for_each(&mut one);
            }
        }
    }

    /// A request that waits on `id` came or left. One that moves is in flight already.
    fn change_demand(&mut self, id: SetId, class: Class, holder: Holder, wanted: fn(&mut Demand, KeyId)) {
        let Some(key) = holder.filter(|_| class != Class::Move) else { return };
        let members = std::mem::take(&mut self.get_mut(id).members);
        for (index, set) in self.slots.iter_mut().enumerate() {
            if let Some(set) = set.as_mut().filter(|set| (index == id.0 && !members.is_empty()) || set.meets(&members))
            {
                wanted(&mut set.demand, key);
            }
        }
        self.get_mut(id).members = members;
    }

    /// A count changed on `member`, or on no member.
    pub(crate) fn change(
        &mut self,
        member: Option<MemberId>,
        holder: Holder,
        change: impl Fn(&mut Load) -> u32,
        wanted: fn(&mut Demand, KeyId),
    ) {
        for set in self.slots.iter_mut().flatten() {
            if member.is_none_or(|member| set.contains(member)) {
                let in_flight = change(&mut set.load);
                set.reposition(holder, in_flight);
                if let Some(key) = holder {
                    wanted(&mut set.demand, key);
                }
            }
        }
    }

    pub(crate) fn park(&mut self, id: SetId, class: Class, park: ParkId, holder: Holder) {
        let set = self.get_mut(id);
        // Those that move are served in order of arrival: their key was judged when the lease was granted.
        let in_flight = if class == Class::Move { 0 } else { set.load.of(holder) };
        set.lanes[class as usize].insert(park, holder, in_flight);
        self.waiting.insert(id);
        self.change_demand(id, class, holder, Demand::add);
    }

    pub(crate) fn unpark(&mut self, id: SetId, class: Class, park: ParkId, holder: Holder) {
        let set = self.get_mut(id);
        set.lanes[class as usize].remove(park, holder);
        if !set.has_waiters() {
            self.waiting.remove(&id);
        }
        self.change_demand(id, class, holder, Demand::remove);
    }

    /// Sets in which somebody waits, in order of their ids.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &CandidateSet> {
        self.waiting.iter().map(|id| self.get(*id))
    }

    /// All sets. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SetId, &CandidateSet)> {
        self.slots.iter().enumerate().filter_map(|(id, set)| set.as_ref().map(|set| (SetId(id), set)))
    }

    /// A set's references. For checks.
    pub(crate) fn references(&self, id: SetId) -> u32 {
        self.get(id).references
    }
}

fn recount(set: &mut CandidateSet, of: &[Member], unplaced: &Load) {
    set.capacity = 0;
    set.load = unplaced.clone();
    for member in set.members.iter().filter_map(|id| of.get(id.index())).filter(|member| member.open) {
        set.capacity = set.capacity.saturating_add(member.ordinary_slots());
        set.load.merge(&member.load);
    }
    let load = &set.load;
    for class in [Class::Reattach, Class::Keyless, Class::Keyed] {
        set.lanes[class as usize].reposition_all(|holder| load.of(holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_nobody_refers_to_is_forgotten_in_the_end_and_not_before() {
        let mut sets = Sets::new();
        let unplaced = Load::default();
        let held = sets.intern(vec![MemberId(7), MemberId(7), MemberId(3)], &[], &unplaced);
        assert_eq!(sets.get(held).members, [MemberId(3), MemberId(7)]);
        for n in 0..1000 {
            let id = sets.intern(vec![MemberId(n + 10)], &[], &unplaced);
            sets.release(id);
        }
        assert!(sets.iter().count() <= IDLE_SETS + 3);
        assert_eq!(sets.intern(vec![MemberId(3), MemberId(7)], &[], &unplaced), held);
    }
}
