//! How many slots of each candidate set a unit can use: S of the fair-share rule. One whose work names members can use
//! no more than those have, however much of it waits, and must not keep the slots of others empty. Knows no rule and no
//! queue.

use crate::fairness::set::CandidateSet;
use crate::fairness::sets::{PoolLedger, Sets};
use crate::id::SetId;
use crate::identity::party::{Holder, Parties, PartyId};
use crate::members::member::Member;

impl Sets {
    /// A lease that runs, or a parked request that wants something, names `set`. Counted in it is already.
    pub(crate) fn begin_use(&mut self, holder: Holder, set: SetId, members: &[Member], parties: &Parties) {
        if let Some(unit) = self.scoped(holder)
            && self.scopes.begin(unit, set)
        {
            self.reach_again(unit, |_| true, members, parties);
        }
    }

    /// One of them is over.
    pub(crate) fn end_use(&mut self, holder: Holder, set: SetId, members: &[Member], parties: &Parties) {
        if let Some(unit) = self.scoped(holder)
            && self.scopes.end(unit, set)
        {
            self.reach_again(unit, |_| true, members, parties);
        }
    }

    /// Whose scope is kept.
    fn scoped(&self, holder: Holder) -> Option<PartyId> {
        holder.unit(true).filter(|_| self.keeps_scopes())
    }

    fn keeps_scopes(&self) -> bool {
        self.by_org && self.has_named()
    }

    /// Some work named members, and its set is still known.
    pub(crate) fn has_named(&self) -> bool {
        self.slots.len() > 1
    }

    /// How many slots of the sets concerned a unit can use: of members that are open, and that it names.
    fn reach_again(&mut self, unit: PartyId, concerned: impl Fn(SetId) -> bool, members: &[Member], parties: &Parties) {
        let mut named = std::mem::take(&mut self.named);
        named.clear();
        let confined = self.scopes.confined(unit);
        let is_confined = confined.is_some();
        for set in confined.into_iter().flatten() {
            named.extend_from_slice(&self.slots[set.0].members);
        }
        named.sort_unstable();
        named.dedup();
        let slots = |set: &CandidateSet| {
            let usable = set.members.iter().filter(|id| named.binary_search(id).is_ok());
            let open = usable.filter_map(|id| members.get(id.index())).filter(|member| member.open);
            open.map(Member::ordinary_slots).fold(0, u32::saturating_add)
        };
        for (slot, set) in self.slots.iter_mut() {
            if concerned(SetId(slot)) {
                set.set_reach(unit, |set| if is_confined { slots(set) } else { u32::MAX }, parties);
            }
        }
        self.named = named;
    }

    /// Makes scopes anew.
    pub(crate) fn recount_scopes(&mut self, from: PoolLedger<'_>) {
        self.scopes.clear();
        if self.keeps_scopes() {
            for (unit, set) in from.uses() {
                self.scopes.begin(unit, set);
            }
        }
    }

    /// Recounts what each principal can use of these sets, in order of their ids.
    pub(crate) fn recount_reach(&mut self, concerned: &[SetId], from: PoolLedger<'_>) {
        if !self.keeps_scopes() {
            return;
        }
        let mut confined: Vec<PartyId> = from.uses().map(|(unit, _)| unit).collect();
        confined.retain(|unit| self.scopes.confined(*unit).is_some());
        confined.sort_unstable();
        confined.dedup();
        for unit in confined {
            self.reach_again(unit, |id| concerned.binary_search(&id).is_ok(), from.members, from.ledger.parties);
        }
    }
}
