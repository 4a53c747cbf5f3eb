//! Where in the proxies slots are asked for, as numbers: leases that are lost are counted by them. Bounded, because proxies
//! choose the names.

use governor_engine::id::SiteId;
use std::collections::BTreeMap;

/// Names kept apart; what comes after them is one.
const BOUND: u16 = 256;

/// Characters of a name at most.
const LONGEST: usize = 64;

/// What stands for all names after the bound.
const OTHERS: SiteId = SiteId(BOUND + 1);

/// The names.
#[derive(Debug, Default)]
pub struct Sites {
    ids: BTreeMap<String, SiteId>,
    /// The names in the order of their numbers.
    order: Vec<String>,
}

impl Sites {
    /// The number of a name.
    pub fn id(&mut self, name: Option<&str>) -> SiteId {
        let Some(name) = name else { return SiteId::default() };
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: String = name.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        if name.is_empty() {
            return SiteId::default();
        }
        let next = u16::try_from(self.ids.len()).ok().filter(|known| *known < BOUND).map(|known| SiteId(known + 1));
        match next {
            Some(next) => *self.ids.entry(name).or_insert_with_key(|name| {
                self.order.push(name.clone());
                next
            }),
            None => self.ids.get(&name).copied().unwrap_or(OTHERS),
        }
    }

    /// The name of a number; `None` for requests that name no site.
    #[must_use]
    pub fn name(&self, id: SiteId) -> Option<String> {
        if id == OTHERS {
            return Some("other".to_owned());
        }
        let index = usize::from(id.0).checked_sub(1)?;
        self.order.get(index).cloned()
    }

    /// The names by number; requests that name no site have none.
    #[must_use]
    pub fn names(&self) -> BTreeMap<SiteId, String> {
        let mut names: BTreeMap<_, _> = self.ids.iter().map(|(name, id)| (*id, name.clone())).collect();
        names.insert(OTHERS, "other".to_owned());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_printable_and_bounded() {
        let mut sites = Sites::default();
        let chat = sites.id(Some("src/chat.rs:4\u{1b}2"));
        assert_eq!((chat, sites.id(Some("src/chat.rs:42"))), (SiteId(1), SiteId(1)));
        assert_eq!((sites.id(None), sites.id(Some("\n"))), (SiteId(0), SiteId(0)));
        for n in 0..1000 {
            sites.id(Some(&format!("{n}")));
        }
        assert_eq!(sites.id(Some("src/chat.rs:42")), chat);
        assert_eq!(sites.id(Some("one more")), OTHERS);
        assert_eq!((sites.names().len(), sites.names()[&OTHERS].as_str()), (257, "other"));
    }
}
