//! The candidate sets of one pool. Sets are interned, because most requests name the same few; an unreferenced set is
//! kept for a while and then forgotten, so that a client that names a new set each time costs work and not memory.
//! Carries every change of a count to the sets it concerns.

use crate::collections::slots::{Slot, Slots};
use crate::fairness::scope::Scopes;
use crate::fairness::set::CandidateSet;
use crate::id::SetId;
use crate::id::{MemberId, PoolId};
use crate::identity::entitle::Terms;
use crate::identity::party::{Holder, Parties, PartyId};
use crate::leases::lease::Lease;
use crate::members::member::Member;
use crate::members::traffic::Traffic;
use crate::waiting::park::{Ask, Door, ParkId, Parked};
use crate::waiting::stand::Standings;
use std::collections::{BTreeMap, VecDeque};

/// Unreferenced sets kept warm per pool.
const IDLE_SETS: usize = 64;

/// The candidate sets of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Sets {
    pub(crate) slots: Slots<CandidateSet>,
    by_members: BTreeMap<Vec<MemberId>, SetId>,
    /// Unreferenced, longest unused first.
    idle: VecDeque<SetId>,
    /// Sets in which a request waits, by id.
    waiting: Vec<SetId>,
    /// Kept from the first named set on, where what units want counts: before it all work may run anywhere.
    pub(crate) scopes: Scopes,
    /// Room for the members that one unit names.
    pub(crate) named: Vec<MemberId>,
    pub(crate) standings: Standings,
    /// Shares are for orgs, and what they want counts: the rule is `max-min`.
    pub(crate) by_org: bool,
}

/// Everything counts are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger<'a> {
    pub(crate) leases: &'a Slots<Lease>,
    pub(crate) parked: &'a Slots<Parked>,
    pub(crate) parties: &'a Parties,
}

/// The part of it that is one pool's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLedger<'a> {
    pub(crate) ledger: Ledger<'a>,
    pub(crate) pool: PoolId,
    pub(crate) members: &'a [Member],
    pub(crate) traffic: &'a Traffic,
}

impl<'a> PoolLedger<'a> {
    /// Leases that hold a slot.
    fn running(self) -> impl Iterator<Item = &'a Lease> {
        let all = self.ledger.leases.iter().map(|(_, lease)| lease);
        all.filter(move |lease| lease.pool == self.pool && !lease.suspended)
    }

    /// Parked requests in order of arrival.
    pub(crate) fn waiting(self) -> Vec<(ParkId, Slot, &'a Ask)> {
        let all = self.ledger.parked.iter().filter(|(_, parked)| parked.ask.pool == self.pool);
        let mut waiting: Vec<_> = all.map(|(slot, parked)| (parked.id, slot, &parked.ask)).collect();
        waiting.sort_unstable_by_key(|(park, ..)| *park);
        waiting
    }

    /// Who names which set, once for each running lease and each parked request that wants something.
    pub(crate) fn uses(self) -> impl Iterator<Item = (PartyId, SetId)> {
        let leases = self.running().map(|lease| (lease.holder, lease.set));
        let parked = self.ledger.parked.iter().map(|(_, parked)| &parked.ask);
        let parked = parked.filter(move |ask| ask.pool == self.pool && wants(ask, self.traffic));
        let uses = leases.chain(parked.map(|ask| (ask.holder, ask.set)));
        uses.filter_map(|(holder, set)| Some((holder.unit(true)?, set)))
    }

    fn counts_in(self, lease: &Lease, set: &CandidateSet) -> bool {
        lease.member.is_none_or(|member| set.contains(member) && self.members[member.index()].open)
    }
}

/// A parked request by which its key wants something. One that moves is in flight already; one whose traffic has a
/// sub-capacity could use no more than that, and would only keep slots empty that others could use.
pub(crate) fn wants(ask: &Ask, traffic: &Traffic) -> bool {
    ask.holder.key.is_some() && !ask.moves() && traffic.limit(ask.traffic).is_none()
}

impl Sets {
    pub(crate) fn new() -> Self {
        let mut slots = Slots::default();
        slots.insert(CandidateSet::of(Vec::new()));
        Self {
            slots,
            by_members: BTreeMap::new(),
            idle: VecDeque::new(),
            waiting: Vec::new(),
            scopes: Scopes::default(),
            named: Vec::new(),
            standings: Standings::default(),
            by_org: false,
        }
    }

    pub(crate) fn get(&self, id: SetId) -> &CandidateSet {
        &self.slots[id.0]
    }

    /// The set of these members, referenced once more. `members` may be unsorted and repeat itself.
    pub(crate) fn intern(&mut self, mut members: Vec<MemberId>, from: PoolLedger<'_>) -> SetId {
        members.sort_unstable();
        members.dedup();
        if let Some(id) = self.by_members.get(&members) {
            let id = *id;
            let set = &mut self.slots[id.0];
            set.references += 1;
            if set.references == 1 {
                self.idle.retain(|idle| *idle != id);
            }
            return id;
        }
        let is_first = !self.has_named();
        let set = CandidateSet::of(members.clone());
        let id = SetId(self.slots.insert(set));
        self.by_members.insert(members, id);
        if is_first {
            self.recount_scopes(from);
        }
        self.recount(|other, _| other == id, from);
        id
    }

    /// One more reference to a set that is referenced.
    pub(crate) fn retain(&mut self, id: SetId) {
        self.slots[id.0].references += 1;
    }

    /// One reference less.
    pub(crate) fn release(&mut self, id: SetId) {
        let set = &mut self.slots[id.0];
        set.references -= 1;
        if set.references > 0 {
            return;
        }
        self.idle.push_back(id);
        if self.idle.len() > IDLE_SETS
            && let Some(oldest) = self.idle.pop_front()
            && let Some(set) = self.slots.remove(oldest.0)
        {
            self.by_members.remove(&set.members);
        }
    }

    /// Members that came or left change the meaning of "every member".
    pub(crate) fn set_everybody(&mut self, members: Vec<MemberId>) {
        self.slots[SetId::EVERYBODY.0].members = members;
    }

    /// A lease came on `member`, or on no member, that takes requests.
    pub(crate) fn enter(&mut self, member: Option<MemberId>, holder: Holder, ordinary: bool, parties: &Parties) {
        let by_org = self.by_org;
        self.change(member, holder, parties, |set| set.enter(holder, ordinary, by_org, parties));
    }

    /// A lease went from there.
    pub(crate) fn leave(&mut self, member: Option<MemberId>, holder: Holder, ordinary: bool, parties: &Parties) {
        let by_org = self.by_org;
        self.change(member, holder, parties, |set| set.leave(holder, ordinary, by_org, parties));
    }

    fn change(
        &mut self,
        member: Option<MemberId>,
        holder: Holder,
        parties: &Parties,
        change: impl Fn(&mut CandidateSet),
    ) {
        for (_, set) in self.slots.iter_mut() {
            if member.is_none_or(|member| set.contains(member)) {
                change(set);
                if !set.has_waiters() {
                    continue;
                }
                if holder.key.is_some_and(|key| parties.get(key).in_many_orgs) {
                    set.reorder(&self.standings, self.by_org);
                } else {
                    let stand = set.stand(Door::Keyed, holder, self.by_org, parties);
                    set.reposition(&self.standings, &stand);
                }
            }
        }
    }

    /// A request begins to wait.
    pub(crate) fn park(&mut self, slot: Slot, park: ParkId, ask: &Ask, traffic: &Traffic, parties: &Parties) {
        self.queue(slot, park, ask, parties);
        self.change_demand(ask, traffic, |set, unit| set.want(unit, parties));
    }

    /// A request waits no longer.
    pub(crate) fn unpark(&mut self, slot: Slot, ask: &Ask, traffic: &Traffic, parties: &Parties) {
        self.leave_queue(slot, ask, parties);
        self.change_demand(ask, traffic, |set, unit| set.unwant(unit, parties));
    }

    /// Takes a parked request out of the order; what it wants is wanted still.
    pub(crate) fn leave_queue(&mut self, slot: Slot, ask: &Ask, parties: &Parties) {
        let set = &mut self.slots[ask.set.0];
        let stand = set.stand(ask.door, ask.holder, self.by_org, parties);
        set.unpark(&mut self.standings, slot, ask, stand);
        if !set.has_waiters() {
            self.waiting.retain(|waiting| *waiting != ask.set);
        }
    }

    /// What a party wants is wanted on other terms.
    pub(crate) fn change_terms(&mut self, party: PartyId, from: Terms, to: Terms) {
        self.slots.iter_mut().for_each(|(_, set)| set.change_terms(party, from, to));
    }

    /// Puts a parked request where it belongs in the order.
    pub(crate) fn queue(&mut self, slot: Slot, park: ParkId, ask: &Ask, parties: &Parties) {
        let set = &mut self.slots[ask.set.0];
        let stand = set.stand(ask.door, ask.holder, self.by_org, parties);
        set.park(&mut self.standings, slot, park, ask, stand);
        if let Err(at) = self.waiting.binary_search(&ask.set) {
            self.waiting.insert(at, ask.set);
        }
    }

    fn change_demand(&mut self, ask: &Ask, traffic: &Traffic, change: impl Fn(&mut CandidateSet, PartyId)) {
        let Some(unit) = ask.holder.unit(true).filter(|_| self.by_org && wants(ask, traffic)) else { return };
        let members = std::mem::take(&mut self.slots[ask.set.0].members);
        for (slot, set) in self.slots.iter_mut() {
            if (slot == ask.set.0 && !members.is_empty()) || set.meets(&members) {
                change(set, unit);
            }
        }
        self.slots[ask.set.0].members = members;
    }

    /// Counts from scratch those sets that hold one of `changed`.
    pub(crate) fn recount_members(&mut self, changed: &[MemberId], from: PoolLedger<'_>) {
        self.recount(|_, set| changed.iter().any(|member| set.contains(*member)), from);
    }

    /// Rebuilds everything: the rule, the members or an entitlement changed.
    pub(crate) fn rebuild(&mut self, by_org: bool, from: PoolLedger<'_>) {
        self.by_org = by_org;
        self.slots.iter_mut().for_each(|(_, set)| set.clear_lanes());
        self.waiting.clear();
        self.recount_scopes(from);
        self.recount(|_, _| true, from);
        for (park, slot, ask) in from.waiting() {
            self.queue(slot, park, ask, from.ledger.parties);
        }
    }

    /// Who is served first of a key changed.
    pub(crate) fn serve_newest_first(&mut self, newest_first: bool) {
        if self.standings.newest_first != newest_first {
            self.standings.newest_first = newest_first;
            for (_, set) in self.slots.iter_mut() {
                set.reorder(&self.standings, self.by_org);
            }
        }
    }

    fn recount(&mut self, concerned: impl Fn(SetId, &CandidateSet) -> bool, from: PoolLedger<'_>) {
        let (by_org, parties) = (self.by_org, from.ledger.parties);
        let all = self.slots.iter().map(|(slot, set)| (SetId(slot), set));
        let concerned: Vec<SetId> = all.filter(|(id, set)| concerned(*id, set)).map(|(id, _)| id).collect();
        let wanting = from.ledger.parked.iter().map(|(_, parked)| &parked.ask);
        let wanting = wanting.filter(|ask| ask.pool == from.pool && by_org && wants(ask, from.traffic));
        let wanting: Vec<_> = wanting.filter_map(|ask| Some((ask.set, ask.holder.unit(true)?))).collect();
        for id in &concerned {
            let mut set = std::mem::take(&mut self.slots[id.0]);
            set.clear_counts();
            let open = set.members.iter().filter_map(|id| from.members.get(id.index())).filter(|member| member.open);
            set.capacity = open.map(Member::ordinary_slots).fold(0, u32::saturating_add);
            for lease in from.running() {
                if from.counts_in(lease, &set) {
                    set.enter(lease.holder, lease.is_ordinary(), by_org, parties);
                }
            }
            for (on, unit) in &wanting {
                let meets = if on == id { !set.members.is_empty() } else { set.meets(&self.slots[on.0].members) };
                if meets {
                    set.want(*unit, parties);
                }
            }
            set.reorder(&self.standings, by_org);
            self.slots[id.0] = set;
        }
        self.recount_reach(&concerned, from);
    }

    /// Sets in which a request waits, in order of their ids.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &CandidateSet> {
        self.waiting.iter().map(|id| self.get(*id))
    }

    /// All sets. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SetId, &CandidateSet)> {
        self.slots.iter().map(|(slot, set)| (SetId(slot), set))
    }
}
