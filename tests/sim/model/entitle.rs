//! What keys and orgs are entitled to: classes, weights, floors, caps and tiers. Each field comes from the first source
//! that has it: the key's override, its own setting or the org's, the class, the default.

use super::Id;
use super::Model;
use super::Unit;
use super::Who;
use super::index;
use governor_engine::id::{ClassId, OrgId};
use governor_engine::policy::Entitlement;

/// One field of an entitlement.
type Field = fn(&Entitlement) -> Option<u32>;

impl Model {
    /// Who has the class: the org, or the key where there is none.
    pub(super) fn class_holder(who: Who) -> Option<Unit> {
        who.org.map(Unit::Org).or_else(|| who.key.map(Unit::Key))
    }

    /// The class that a request is judged by.
    pub(super) fn class(&self, who: Who) -> Option<ClassId> {
        // Who is neither has none, not even the default.
        let named = self.named.get(&Self::class_holder(who)?).copied().flatten();
        named.filter(|class| self.class_policy(*class).is_some()).or_else(|| self.default_class())
    }

    fn default_class(&self) -> Option<ClassId> {
        let name = self.node.default_class.as_ref()?;
        let at = self.classes.iter().position(|(class, present)| *present && class.name == *name)?;
        Some(ClassId(u32::try_from(at).unwrap()))
    }

    fn class_policy(&self, class: ClassId) -> Option<&Entitlement> {
        self.classes.get(index(class.0)).filter(|(_, present)| *present).map(|(class, _)| &class.entitlement)
    }

    fn by_class(&self, unit: Unit, field: Field) -> Option<u32> {
        let who = match unit {
            Unit::Org(org) => Who { org: Some(org), key: None },
            Unit::Key(key) => Who { org: None, key: Some(key) },
        };
        field(self.class_policy(self.class(who)?)?)
    }

    fn of_key(&self, id: Id, in_org: bool, field: Field) -> Option<u32> {
        let key = match id {
            Id::Key(key) => Some(key),
            Id::Anonymous(_) => None,
        };
        let over = key.and_then(|key| self.overrides.get(&key)).and_then(|over| field(&over.entitlement));
        let own = || self.key_policies.iter().find(|k| Some(k.key) == key).and_then(|k| field(&k.entitlement));
        let class = || if in_org { None } else { self.by_class(Unit::Key(id), field) };
        over.or_else(own).or_else(class)
    }

    fn of_org(&self, org: OrgId, field: Field) -> Option<u32> {
        let own = self.org_policies.iter().find(|o| o.org == org).and_then(|o| field(&o.entitlement));
        own.or_else(|| self.by_class(Unit::Org(org), field))
    }

    pub(super) fn weight(&self, unit: Unit, in_org: bool) -> u32 {
        let weight: Field = |entitlement| entitlement.weight;
        match unit {
            Unit::Org(org) => self.of_org(org, weight),
            Unit::Key(key) => self.of_key(key, in_org, weight),
        }
        .unwrap_or(1)
    }

    pub(super) fn floor(&self, unit: Unit, in_org: bool) -> u32 {
        let floor: Field = |entitlement| entitlement.floor;
        match unit {
            Unit::Org(org) => self.of_org(org, floor),
            Unit::Key(key) => self.of_key(key, in_org, floor),
        }
        .unwrap_or(0)
    }

    /// A cap of the key's own.
    pub(super) fn key_cap(&self, key: Id) -> Option<u32> {
        self.of_key(key, true, |entitlement| entitlement.cap)
    }

    /// A cap of the org's own.
    pub(super) fn org_cap(&self, org: OrgId) -> Option<u32> {
        self.org_policies.iter().find(|o| o.org == org).and_then(|o| o.entitlement.cap)
    }

    /// The ceiling of the class, before tiers. 0: none.
    pub(super) fn base_ceiling(&self, who: Who) -> u32 {
        self.class(who).and_then(|class| self.class_policy(class)?.cap).unwrap_or(0)
    }

    /// The ceiling of an org with the tier that was answered: it can only raise.
    pub(super) fn ceiling(&self, who: Who) -> u32 {
        let base = self.base_ceiling(who);
        let tier = who.org.and_then(|org| self.tiers.get(&org)?.answer).filter(|(_, until)| self.now < *until);
        let class = tier.and_then(|(class, _)| class).and_then(|class| self.class_policy(class)?.cap);
        match class {
            _ if base == 0 => 0,
            None => base,
            Some(0) => 0,
            Some(cap) => cap.max(base),
        }
    }
}
