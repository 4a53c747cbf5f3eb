//! Who holds and asks: the keys and orgs that have a lease or a request on the node, each by a small number, with how
//! many of their requests count and what they are entitled to. One that has nothing left is forgotten. Requests without
//! a key share one identity a pool, which is a key in all but its name. Knows nothing else of pools.

use crate::collections::slots::{Slot, Slots};
use crate::collections::table::Table;
use crate::id::{ClassId, KeyId, OrgId, PoolId};
use crate::identity::class::Classes;
use crate::identity::entitle::{Entitled, Settings, Terms};
use crate::policy::Anonymous;
use std::num::NonZeroU32;

/// A key or an org.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartyId(NonZeroU32);

impl PartyId {
    fn of(slot: Slot) -> Self {
        Self(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(self) -> Slot {
        self.0.get() - 1
    }
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    pub(crate) key: Option<PartyId>,
    pub(crate) org: Option<PartyId>,
}

impl Holder {
    /// Who a share is for: the key, or its org where orgs share. `None` for requests without a key that bypass the
    /// share.
    pub(crate) fn unit(self, by_org: bool) -> Option<PartyId> {
        self.key.map(|key| self.org.filter(|_| by_org).unwrap_or(key))
    }

    /// Who a class is of: the org, or the key where there is no org.
    pub(crate) fn classed(self) -> Option<PartyId> {
        self.org.or(self.key)
    }

    fn parties(self) -> impl Iterator<Item = PartyId> {
        self.key.into_iter().chain(self.org)
    }
}

/// What a party is called outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Key(KeyId),
    /// The requests of a pool that name no key.
    Anonymous(PoolId),
    Org(OrgId),
}

/// A [`Name`] without its number.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Key,
    Anonymous,
    Org,
}

/// One key or org. There may be a hundred thousand: it fills one cache line.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    id: u128,
    kind: Kind,
    /// As its last request named it.
    pub(crate) class: Option<ClassId>,
    /// Requests in flight and parked, in all pools; one that moves counts once.
    pub(crate) counted: u32,
    pub(crate) entitled: Entitled,
    /// Leases, suspended ones too, and requests.
    references: u32,
    /// The org that a key's first request named, or that it named none.
    first_org: Option<PartyId>,
    /// Other requests of the key named another.
    pub(crate) in_many_orgs: bool,
}

impl Name {
    /// What the requests of a pool that name no key are known by, under the pool's rule for them.
    pub(crate) fn of_anonymous(rule: Anonymous, pool: PoolId) -> Option<Self> {
        match rule {
            Anonymous::Judge => Some(Self::Anonymous(pool)),
            Anonymous::Bypass => None,
        }
    }
}

impl Party {
    pub(crate) fn name(&self) -> Name {
        match self.kind {
            Kind::Key => Name::Key(KeyId(self.id)),
            Kind::Anonymous => Name::Anonymous(PoolId(u32::try_from(self.id).unwrap_or(u32::MAX))),
            Kind::Org => Name::Org(OrgId(self.id)),
        }
    }
}

/// The parties.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parties {
    known: Slots<Party>,
    keys: Table<KeyId, Slot>,
    anonymous: Table<PoolId, Slot>,
    orgs: Table<OrgId, Slot>,
    pub(crate) settings: Settings,
    pub(crate) classes: Classes,
}

impl Parties {
    pub(crate) fn get(&self, party: PartyId) -> &Party {
        &self.known[party.slot()]
    }

    pub(crate) fn find_key(&self, key: KeyId) -> Option<PartyId> {
        self.keys.get(&key).copied().map(PartyId::of)
    }

    /// What a holder's key is called.
    pub(crate) fn key_of(&self, holder: Holder) -> Option<KeyId> {
        match self.get(holder.key?).name() {
            Name::Key(key) => Some(key),
            Name::Anonymous(_) | Name::Org(_) => None,
        }
    }

    /// What a holder's org is called.
    pub(crate) fn org_of(&self, holder: Holder) -> Option<OrgId> {
        match self.get(holder.org?).name() {
            Name::Org(org) => Some(org),
            Name::Key(_) | Name::Anonymous(_) => None,
        }
    }

    /// The terms of one of a holder's parties.
    pub(crate) fn terms(&self, holder: Holder, party: Option<PartyId>) -> Terms {
        let Some(entitled) = party.map(|party| self.get(party).entitled) else { return Terms::default() };
        if holder.org.is_some() && party == holder.key { entitled.within } else { entitled.terms }
    }

    /// The class a holder is judged by.
    pub(crate) fn class_of(&self, holder: Holder) -> Option<ClassId> {
        holder.classed().and_then(|party| self.classes.resolve(self.get(party).class))
    }

    /// The holder of these names, referenced once more. `key` names a key, or the requests of a pool that name none.
    pub(crate) fn hold(&mut self, key: Option<Name>, org: Option<OrgId>) -> Holder {
        let key = key.map(|key| self.find_or_add(key));
        let org = org.map(|org| self.find_or_add(Name::Org(org)));
        if let Some(key) = key {
            let known = &mut self.known[key.slot()];
            if known.references == 0 {
                known.first_org = org;
            }
            known.in_many_orgs |= known.first_org != org;
        }
        let holder = Holder { key, org };
        self.retain(holder);
        holder
    }

    /// One more reference to a holder that is referenced.
    pub(crate) fn retain(&mut self, holder: Holder) {
        holder.parties().for_each(|party| self.known[party.slot()].references += 1);
    }

    /// One reference less.
    pub(crate) fn release(&mut self, holder: Holder) {
        for party in holder.parties() {
            let known = &mut self.known[party.slot()];
            known.references -= 1;
            if known.references > 0 {
                continue;
            }
            debug_assert_eq!(known.counted, 0, "who has nothing counts nowhere");
            match known.name() {
                Name::Key(key) => self.keys.remove(&key),
                Name::Anonymous(pool) => self.anonymous.remove(&pool),
                Name::Org(org) => self.orgs.remove(&org),
            };
            self.known.remove(party.slot());
        }
    }

    /// A request of a holder counts from now on.
    pub(crate) fn count(&mut self, holder: Holder) {
        holder.parties().for_each(|party| self.known[party.slot()].counted += 1);
    }

    /// A request of a holder counts no longer.
    pub(crate) fn discount(&mut self, holder: Holder) {
        holder.parties().for_each(|party| self.known[party.slot()].counted -= 1);
    }

    /// The holder goes on under another name of its key, or without one; it is referenced and counted as often as
    /// before.
    pub(crate) fn rename(&mut self, before: Holder, key: Option<Name>, counts: bool) -> Holder {
        let org = self.org_of(before);
        let after = self.hold(key, org);
        if counts {
            self.count(after);
            self.discount(before);
        }
        self.release(before);
        after
    }

    /// Whether naming `class` would change the terms of a party that is known and whose class it is.
    pub(crate) fn would_change(&self, party: PartyId, class: Option<ClassId>) -> bool {
        let known = self.get(party);
        if known.class == class {
            return false;
        }
        let again = self.entitle(known.name(), class);
        (again.terms, again.within) != (known.entitled.terms, known.entitled.within)
    }

    /// A request named the class of a party.
    pub(crate) fn name_class(&mut self, party: PartyId, class: Option<ClassId>) {
        let known = self.get(party);
        if known.class != class {
            let entitled = self.entitle(known.name(), class);
            let known = &mut self.known[party.slot()];
            (known.class, known.entitled) = (class, entitled);
        }
    }

    /// What every party is entitled to, settings or classes having changed.
    pub(crate) fn entitle_all(&mut self) {
        for slot in self.known.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.entitle_again(PartyId::of(slot));
        }
    }

    /// What one party is entitled to, its settings having changed.
    pub(crate) fn entitle_again(&mut self, party: PartyId) {
        let known = self.get(party);
        let entitled = self.entitle(known.name(), known.class);
        self.known[party.slot()].entitled = entitled;
    }

    /// Every party. For views and checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartyId, &Party)> {
        self.known.iter().map(|(slot, party)| (PartyId::of(slot), party))
    }

    /// A party's references. For checks.
    pub(crate) fn references(&self, party: PartyId) -> u32 {
        self.get(party).references
    }

    /// Every principal is entitled to what is set. For checks.
    pub(crate) fn entitled_again(&self) -> bool {
        self.known.iter().all(|(_, party)| self.entitle(party.name(), party.class) == party.entitled)
    }

    fn find_or_add(&mut self, name: Name) -> PartyId {
        let known = match name {
            Name::Key(key) => self.keys.get(&key),
            Name::Anonymous(pool) => self.anonymous.get(&pool),
            Name::Org(org) => self.orgs.get(&org),
        };
        known.copied().map_or_else(|| self.add(name), PartyId::of)
    }

    fn add(&mut self, name: Name) -> PartyId {
        let entitled = self.entitle(name, None);
        let (id, kind) = match name {
            Name::Key(key) => (key.0, Kind::Key),
            Name::Anonymous(pool) => (pool.0.into(), Kind::Anonymous),
            Name::Org(org) => (org.0, Kind::Org),
        };
        let party =
            Party { id, kind, class: None, counted: 0, entitled, references: 0, first_org: None, in_many_orgs: false };
        let slot = self.known.insert(party);
        match name {
            Name::Key(key) => self.keys.insert(key, slot),
            Name::Anonymous(pool) => self.anonymous.insert(pool, slot),
            Name::Org(org) => self.orgs.insert(org, slot),
        }
        PartyId::of(slot)
    }

    fn entitle(&self, name: Name, class: Option<ClassId>) -> Entitled {
        let class = self.classes.resolve(class);
        self.settings.entitle(name, self.classes.entitlement(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_is_known_as_long_as_somebody_refers_to_it() {
        let mut parties = Parties::default();
        let (key, org) = (Some(Name::Key(KeyId(1))), Some(OrgId(9)));
        let first = parties.hold(key, org);
        let second = parties.hold(key, None);
        assert_eq!(first.key, second.key);
        parties.count(first);
        assert_eq!(parties.get(first.org.unwrap()).counted, 1);
        parties.discount(first);
        parties.release(first);
        assert_eq!((parties.iter().count(), parties.find_key(KeyId(1))), (1, second.key));
        parties.release(second);
        assert_eq!(parties.iter().count(), 0);
    }
    #[test]
    fn requests_without_a_key_are_known_apart_from_every_key() {
        let mut parties = Parties::default();
        let hold = |parties: &mut Parties, name| parties.hold(Some(name), None).key;
        let anonymous = hold(&mut parties, Name::Anonymous(PoolId(7)));
        assert_eq!(hold(&mut parties, Name::Anonymous(PoolId(7))), anonymous);
        assert_ne!(hold(&mut parties, Name::Anonymous(PoolId(8))), anonymous);
        assert_ne!(hold(&mut parties, Name::Key(KeyId(7))), anonymous, "whatever number a key has");
        assert_eq!(parties.key_of(Holder { key: anonymous, org: None }), None);
    }
}
