//! What one key or org is entitled to changes while others hold and wait: its class is another, or an operator set
//! something for it. Costs what it holds and awaits, not what all principals do.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::engine::admission::Refusal;
use crate::engine::deadline::Timer;
use crate::id::{ClassId, KeyId, OrgId, PoolId};
use crate::identity::party::{Holder, Name, Parties, PartyId};
use crate::policy::Override;
use crate::waiting::park::{Ask, ParkId, Parked};

impl Engine {
    /// The holder of a request in a pool, referenced once more, whose class is the one its request names. If that
    /// changes what it is entitled to while it holds or awaits something, who waits is woken.
    pub(in crate::engine) fn resolve_holder(
        &mut self,
        pool: PoolId,
        key: Option<KeyId>,
        org: Option<OrgId>,
        class: Option<ClassId>,
    ) -> Holder {
        let anonymous = Name::of_anonymous(self.pools[pool.index()].policy.anonymous, pool);
        let holder = self.parties.hold(key.map(Name::Key).or(anonymous), org);
        let Some(party) = holder.classed() else { return holder };
        let changes = self.parties.would_change(party, class) && self.parties.get(party).counted > 0;
        if changes {
            self.on_other_terms(party, |parties| parties.name_class(party, class));
        } else {
            self.parties.name_class(party, class);
        }
        holder
    }

    /// An operator's setting for a key begins, changes or ends.
    pub(in crate::engine) fn override_key(&mut self, key: KeyId, with: Option<Override>) {
        if with.is_some_and(|with| with.check().is_err()) {
            self.totals.policies_refused += 1;
            return;
        }
        let with = with.filter(|with| with.until.is_none_or(|until| until > self.now));
        let overrides = &mut self.parties.settings.overrides;
        let before = match with {
            Some(with) => overrides.insert(key, with),
            None => overrides.remove(&key),
        };
        if let Some(until) = before.and_then(|before| before.until) {
            self.timers.remove(&(until, Timer::Override(key)));
        }
        if let Some(until) = with.and_then(|with| with.until) {
            self.timers.insert((until, Timer::Override(key)));
        }
        let Some(party) = self.parties.find_key(key) else { return };
        self.on_other_terms(party, |parties| parties.entitle_again(party));
        if with.is_some_and(|with| with.suspend) {
            self.shed_suspended(party);
        }
    }

    /// Takes a party's demand and its requests out of the order they stand in, changes what it is entitled to, and puts
    /// them in again.
    fn on_other_terms(&mut self, party: PartyId, change: impl FnOnce(&mut Parties)) {
        // Queues are a key's, so all that may share one with these go too, lest they end up behind each other in
        // another order. Who moves, or has no key, stands on no terms.
        let concerned = |key: PartyId| key == party || self.parties.get(key).in_many_orgs;
        let waiting = self.waiting_of(|ask| {
            let of_party = |key| ask.holder.org == Some(party) || concerned(key);
            !ask.moves() && ask.holder.key.is_some_and(of_party)
        });
        for (_, slot) in &waiting {
            let ask = &self.parked[*slot].ask;
            self.pools[ask.pool.index()].sets.leave_queue(*slot, ask, &self.parties);
        }
        let terms = self.parties.get(party).entitled.terms;
        change(&mut self.parties);
        let again = self.parties.get(party).entitled.terms;
        self.pools.iter_mut().for_each(|pool| pool.sets.change_terms(party, terms, again));
        for (park, slot) in waiting {
            let ask = &self.parked[slot].ask;
            self.pools[ask.pool.index()].sets.queue(slot, park, ask, &self.parties);
        }
        self.wake_all();
    }

    /// Refuses what waits of a key that is suspended now, in order of arrival. A request that moves holds its lease.
    fn shed_suspended(&mut self, party: PartyId) {
        let waiting = self.waiting_of(|ask| ask.holder.key == Some(party) && !ask.moves());
        let gone: Vec<_> = waiting.into_iter().filter_map(|(_, slot)| self.unpark(slot)).collect();
        for Parked { ask, .. } in gone {
            self.wake(ask.pool);
            let refusal = self.suspended(ask.holder);
            self.refuse_parked(ask, refusal);
        }
    }

    /// Refuses what waits, in order of arrival. A request that moves holds its lease.
    pub(in crate::engine) fn shed_waiting(&mut self, refusal: Refusal) {
        let waiting = self.waiting_of(|ask| !ask.moves());
        let gone: Vec<_> = waiting.into_iter().filter_map(|(_, slot)| self.unpark(slot)).collect();
        for Parked { ask, .. } in gone {
            self.wake(ask.pool);
            self.refuse_parked(ask, refusal);
        }
    }

    /// Parked requests in order of arrival.
    fn waiting_of(&self, whose: impl Fn(&Ask) -> bool) -> Vec<(ParkId, Slot)> {
        let waiting = self.parked.iter().filter(|(_, parked)| whose(&parked.ask));
        let mut waiting: Vec<_> = waiting.map(|(slot, parked)| (parked.id, slot)).collect();
        waiting.sort_unstable();
        waiting
    }
}
