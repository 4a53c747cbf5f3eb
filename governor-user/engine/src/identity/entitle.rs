//! What a key or an org is entitled to: the first source that says something wins. An operator's override, the settings
//! of the key or org, the class, the default. Knows no requests.

use crate::id::{KeyId, OrgId};
use crate::identity::party::Name;
use crate::policy::{Entitlement, KeyPolicy, OrgPolicy, Override};
use std::collections::BTreeMap;

/// What decides how much of a congested pool a principal may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Terms {
    pub(crate) weight: u32,
    /// As configured; where floors exceed what there is to share they are scaled.
    pub(crate) floor: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { weight: 1, floor: 0 }
    }
}

/// What a party is entitled to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entitled {
    pub(crate) terms: Terms,
    /// The same for a key within an org: that has no class.
    pub(crate) within: Terms,
    cap: u32,
    has_cap: bool,
    /// The ceiling of its class; 0 is no limit.
    pub(crate) ceiling: u32,
    /// An operator suspended it.
    pub(crate) suspended: bool,
}

impl Entitled {
    /// A cap of its own, which stands in for the class's ceiling; 0 is no limit.
    pub(crate) fn cap(&self) -> Option<u32> {
        self.has_cap.then_some(self.cap)
    }
}

/// Settings by name, and overrides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    keys: BTreeMap<KeyId, Entitlement>,
    orgs: BTreeMap<OrgId, Entitlement>,
    pub(crate) overrides: BTreeMap<KeyId, Override>,
}

impl Settings {
    /// Takes the settings of a new policy. Overrides stay.
    pub(crate) fn obey(&mut self, keys: &[KeyPolicy], orgs: &[OrgPolicy]) {
        self.keys = keys.iter().map(|key| (key.key, key.entitlement)).collect();
        self.orgs = orgs.iter().map(|org| (org.org, org.entitlement)).collect();
    }

    /// What a party of a class is entitled to.
    pub(crate) fn entitle(&self, name: Name, class: Entitlement) -> Entitled {
        let (own, over) = match name {
            Name::Key(key) => (self.keys.get(&key).copied().unwrap_or_default(), self.overrides.get(&key)),
            Name::Anonymous(_) => (Entitlement::default(), None),
            Name::Org(org) => (self.orgs.get(&org).copied().unwrap_or_default(), None),
        };
        let first = over.map(|over| over.entitlement).unwrap_or_default();
        let (weight, floor) = (first.weight.or(own.weight), first.floor.or(own.floor));
        Entitled {
            terms: Terms { weight: weight.or(class.weight).unwrap_or(1), floor: floor.or(class.floor).unwrap_or(0) },
            within: Terms { weight: weight.unwrap_or(1), floor: floor.unwrap_or(0) },
            cap: first.cap.or(own.cap).unwrap_or(0),
            has_cap: first.cap.or(own.cap).is_some(),
            ceiling: class.cap.unwrap_or(0),
            suspended: over.is_some_and(|over| over.suspend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_that_says_something_wins_field_by_field() {
        let entitlement = |weight, floor, cap| Entitlement { weight, floor, cap };
        let key = KeyId(1);
        let mut settings = Settings::default();
        settings.obey(&[KeyPolicy { key, entitlement: entitlement(Some(3), None, Some(7)) }], &[]);
        let class = entitlement(Some(2), Some(5), Some(100));

        let plain = settings.entitle(Name::Key(key), class);
        assert_eq!((plain.terms, plain.cap(), plain.ceiling), (Terms { weight: 3, floor: 5 }, Some(7), 100));

        let over = Override { entitlement: entitlement(None, Some(0), None), suspend: true, until: None };
        settings.overrides.insert(key, over);
        let overridden = settings.entitle(Name::Key(key), class);
        assert_eq!((overridden.terms, overridden.cap()), (Terms { weight: 3, floor: 0 }, Some(7)));
        assert!(overridden.suspended);

        let other = settings.entitle(Name::Key(KeyId(2)), Entitlement::default());
        assert_eq!((other.terms, other.cap(), other.ceiling), (Terms::default(), None, 0));
    }
}
