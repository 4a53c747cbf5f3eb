//! Which candidate sets a unit's work names: those of its running leases and of its parked requests that want
//! something, and how many name each. Knows no member, no slot and no count of what is wanted.

use crate::collections::table::Table;
use crate::id::SetId;
use crate::identity::party::PartyId;

/// Emptied lists kept at hand, so that a unit that comes and goes allocates nothing.
const SPARE: usize = 64;

/// What every unit of a pool names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scopes {
    of: Table<PartyId, Scope>,
    spare: Vec<Vec<(SetId, u32)>>,
}

/// What one unit names.
#[derive(Clone, Debug, Default)]
struct Scope {
    /// How much of its work may run on every member.
    anywhere: u32,
    /// How much of it on the members of which set. No set twice, none with 0.
    named: Vec<(SetId, u32)>,
}

impl Scope {
    fn is_confined(&self) -> bool {
        self.anywhere == 0 && !self.named.is_empty()
    }
}

impl Scopes {
    /// The sets a unit is confined to; `None` if some of its work may run anywhere, or if it has none.
    pub(crate) fn confined(&self, unit: PartyId) -> Option<impl Iterator<Item = SetId>> {
        let scope = self.of.get(&unit).filter(|scope| scope.is_confined())?;
        Some(scope.named.iter().map(|(set, _)| *set))
    }

    /// One lease or request more that names `set`. Whether the unit is confined, or was.
    pub(crate) fn begin(&mut self, unit: PartyId, set: SetId) -> bool {
        let scope = self.of.entry(unit);
        let was = scope.is_confined();
        if set == SetId::EVERYBODY {
            scope.anywhere += 1;
        } else if let Some((_, uses)) = scope.named.iter_mut().find(|(named, _)| *named == set) {
            *uses += 1;
        } else {
            if scope.named.capacity() == 0 {
                scope.named = self.spare.pop().unwrap_or_default();
            }
            scope.named.push((set, 1));
        }
        was || scope.is_confined()
    }

    /// One less. Whether the unit is confined, or was.
    pub(crate) fn end(&mut self, unit: PartyId, set: SetId) -> bool {
        let Some(scope) = self.of.get_mut(&unit) else {
            debug_assert!(false, "what ends has begun");
            return false;
        };
        let was = scope.is_confined();
        if set == SetId::EVERYBODY {
            scope.anywhere -= 1;
        } else if let Some(at) = scope.named.iter().position(|(named, _)| *named == set) {
            scope.named[at].1 -= 1;
            if scope.named[at].1 == 0 {
                scope.named.swap_remove(at);
            }
        }
        let is = scope.is_confined();
        if scope.anywhere == 0
            && scope.named.is_empty()
            && let Some(scope) = self.of.remove(&unit)
            && scope.named.capacity() > 0
            && self.spare.len() < SPARE
        {
            self.spare.push(scope.named);
        }
        was || is
    }

    /// No request names candidates.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KeyId;
    use crate::identity::party::{Name, Parties};

    #[test]
    fn a_unit_is_confined_while_all_its_work_names_members() {
        let unit = Parties::default().hold(Some(Name::Key(KeyId(1))), None).key.unwrap();
        let mut scopes = Scopes::default();
        let confined = |scopes: &Scopes| scopes.confined(unit).map(|sets| sets.collect::<Vec<_>>());
        assert!(!scopes.begin(unit, SetId::EVERYBODY));
        assert!(!scopes.begin(unit, SetId(1)));
        assert_eq!(confined(&scopes), None, "what may run anywhere confines nobody");
        assert!(scopes.end(unit, SetId::EVERYBODY));
        assert!(scopes.begin(unit, SetId(2)) && scopes.begin(unit, SetId(2)));
        assert_eq!(confined(&scopes), Some(vec![SetId(1), SetId(2)]));
        assert!(scopes.end(unit, SetId(1)) && scopes.end(unit, SetId(2)));
        assert_eq!(confined(&scopes), Some(vec![SetId(2)]));
        assert!(scopes.end(unit, SetId(2)), "it was confined until now");
        assert_eq!((confined(&scopes), scopes.of.len(), scopes.spare.len()), (None, 0, 1));
    }
}
