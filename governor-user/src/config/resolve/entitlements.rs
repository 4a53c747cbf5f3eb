//! Classes, orgs and keys, and the guarantees no pool can keep.

use super::Names;
use super::pools::capacity;
use crate::config::schema::{Class, Entry, Key, Node, Org, Reader, chosen, section_path};
use governor_engine::id::{KeyId, OrgId};
use governor_engine::policy::{ClassPolicy, Entitlement, FairShare, KeyPolicy, OrgPolicy, Policy, PoolPolicy};
use std::collections::{BTreeMap, BTreeSet};

/// The classes, built-in ones among them.
pub(super) fn classes(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<ClassPolicy> {
    chosen(Class::PATH, &[], names)
        .map(|name| {
            let Class { weight, floor, cap } = Class::read(reader, &[name]);
            ClassPolicy { name: name.clone(), entitlement: entitlement(reader, &weight, &floor, &cap) }
        })
        .collect()
}

/// The orgs that have settings of their own.
pub(super) fn orgs(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<OrgPolicy> {
    let mut seen = BTreeMap::new();
    chosen(Org::PATH, &[], names)
        .filter_map(|name| {
            let Org { id, weight, floor, cap } = Org::read(reader, &[name]);
            let org = OrgId(identity(reader, &id, section_path(Org::PATH, &[name]), &mut seen)?);
            Some(OrgPolicy { org, entitlement: entitlement(reader, &weight, &floor, &cap) })
        })
        .collect()
}

/// The keys that have settings of their own.
pub(super) fn keys(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<KeyPolicy> {
    let mut seen = BTreeMap::new();
    chosen(Key::PATH, &[], names)
        .filter_map(|name| {
            let Key { id, weight, floor, cap } = Key::read(reader, &[name]);
            let key = KeyId(identity(reader, &id, section_path(Key::PATH, &[name]), &mut seen)?);
            Some(KeyPolicy { key, entitlement: entitlement(reader, &weight, &floor, &cap) })
        })
        .collect()
}

/// What the operator calls them.
pub(super) fn names(reader: &Reader<'_>, names: &BTreeSet<Vec<String>>) -> Names {
    let orgs = chosen(Org::PATH, &[], names)
        .filter_map(|name| Some((OrgId(Org::read(reader, &[name]).id.value?), name.clone())));
    let keys = chosen(Key::PATH, &[], names)
        .filter_map(|name| Some((KeyId(Key::read(reader, &[name]).id.value?), name.clone())));
    Names { orgs: orgs.collect(), keys: keys.collect() }
}

/// Guarantees that cannot hold: in a pool that keeps floors, none is above its capacity, nor are all of them together.
pub(super) fn check(
    reader: &mut Reader<'_>,
    names: &BTreeSet<Vec<String>>,
    (policy, node): (&Policy, &Node<'_>),
    warnings: &mut Vec<String>,
) {
    if let Some(class) =
        policy.node.default_class.as_ref().filter(|name| !policy.classes.iter().any(|c| c.name == **name))
    {
        let known: Vec<&str> = policy.classes.iter().map(|class| class.name.as_str()).collect();
        reader.problem(&node.default_class, format!("no class is named \"{class}\"; there are {}", known.join(", ")));
    }
    let classes = chosen(Class::PATH, &[], names).map(|name| (Of::Class, Class::read(reader, &[name]).floor));
    let orgs = chosen(Org::PATH, &[], names).map(|name| (Of::Org, Org::read(reader, &[name]).floor));
    let keys = chosen(Key::PATH, &[], names).map(|name| (Of::Key, Key::read(reader, &[name]).floor));
    let floors: Vec<Floor<'_>> = classes
        .chain(orgs)
        .chain(keys)
        .filter_map(|(of, entry)| Some(Floor { of, slots: entry.value.filter(|floor| *floor > 0)?, entry }))
        .collect();
    let keeping: Vec<&PoolPolicy> =
        policy.pools.iter().filter(|pool| matches!(pool.fair_share, FairShare::MaxMin { .. })).collect();
    if let Some(Floor { entry, slots, .. }) = floors.first().filter(|_| keeping.is_empty()) {
        warnings.push(format!("{} = {slots} guarantees nothing: no pool has fair_share = \"max-min\"", entry.key));
    }
    for pool in keeping {
        check_pool(reader, pool, &floors, warnings);
    }
}

/// A configured floor above 0.
struct Floor<'a> {
    of: Of,
    slots: u32,
    entry: Entry<'a, Option<u32>>,
}

/// Whose floor it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Class,
    Org,
    Key,
}

fn check_pool(reader: &mut Reader<'_>, pool: &PoolPolicy, floors: &[Floor<'_>], warnings: &mut Vec<String>) {
    let (name, capacity) = (&pool.name, capacity(&pool.members));
    if capacity == 0 {
        return;
    }
    let mut possible = true;
    for Floor { slots, entry, .. } in floors.iter().filter(|floor| u64::from(floor.slots) > capacity) {
        possible = false;
        reader
            .problem(entry, format!("a floor of {slots} does not fit into pool \"{name}\" with its {capacity} slots"));
    }
    // How many orgs a class will have is not known; keys of an org share its floor, and which do is not known either.
    for (of, section) in [(Of::Org, Org::PATH), (Of::Key, Key::PATH)] {
        let single: Vec<&Floor<'_>> = floors.iter().filter(|floor| floor.of == of).collect();
        let sum: u64 = single.iter().map(|floor| u64::from(floor.slots)).sum();
        let Some(last) = single.last().filter(|_| possible) else { continue };
        let headroom = match pool.fair_share {
            FairShare::MaxMin { headroom } => u64::from(headroom.slots(u32::try_from(capacity).unwrap_or(u32::MAX))),
            FairShare::Off | FairShare::EqualSplit { .. } => 0,
        };
        if sum > capacity {
            reader.problem(
                &last.entry,
                format!("floors of {sum} in all do not fit into pool \"{name}\" with its {capacity} slots"),
            );
        } else if sum > capacity - headroom {
            warnings.push(format!(
                "floors of {sum} under {section} oversubscribe pool \"{name}\": {capacity} slots less {headroom} of headroom; \
                 when all of them ask, each gets its part"
            ));
        }
    }
}

fn identity(
    reader: &mut Reader<'_>,
    id: &Entry<'_, Option<u128>>,
    section: String,
    seen: &mut BTreeMap<u128, String>,
) -> Option<u128> {
    let Some(found) = id.value else {
        reader.problem(id, "needed: the keyed hash as governorctl keys shows it");
        return None;
    };
    if let Some(first) = seen.insert(found, section) {
        reader.problem(id, format!("{first} has the same id"));
        return None;
    }
    Some(found)
}

fn entitlement(
    reader: &mut Reader<'_>,
    weight: &Entry<'_, Option<u32>>,
    floor: &Entry<'_, Option<u32>>,
    cap: &Entry<'_, Option<u32>>,
) -> Entitlement {
    if let (Some(least), Some(most @ 1..)) = (floor.value, cap.value)
        && least > most
    {
        reader.problem(floor, format!("a floor of {least} is above its own cap of {most}"));
    }
    Entitlement { weight: weight.value, floor: floor.value, cap: cap.value }
}

#[cfg(test)]
mod tests {
    use crate::config::resolve::tests::load;
    use governor_engine::policy::{ClassPolicy, Mode, Policy};

    const TEN: &str = "[pools.a]\nfair_share = \"max-min\"\n[pools.a.members.x]\nslots = 5\nreserve = 0\n";

    fn policy(text: &str) -> Policy {
        load(text).unwrap().config.policy
    }

    fn refused(text: &str) -> String {
        load(&format!("{TEN}{text}")).unwrap_err()
    }

    fn org(name: &str, digit: u8, lines: &str) -> String {
        format!("[orgs.{name}]\nid = \"{digit:032x}\"\n{lines}\n")
    }

    #[test]
    fn the_usual_classes_are_there_without_a_word_and_each_can_be_changed() {
        let by_name = |mut classes: Vec<ClassPolicy>| {
            classes.sort_by(|a, b| a.name.cmp(&b.name));
            classes
        };
        assert_eq!(by_name(policy("").classes), by_name(ClassPolicy::table()));
        let changed = policy("[classes.tier0]\ncap = 0\n[classes.gold]\nweight = 3\n").classes;
        let cap = |name: &str| changed.iter().find(|class| class.name == name).unwrap().entitlement;
        assert_eq!((cap("tier0").cap, cap("tier1").cap), (Some(0), Some(200)), "0 is no ceiling, absent the usual one");
        assert_eq!((cap("gold").cap, cap("gold").weight), (None, Some(3)));
    }

    #[test]
    fn everything_that_changes_traffic_observes_until_told_to_act() {
        let node = policy("").node;
        assert_eq!((node.caps_mode, node.shed_mode, node.default_class), (Mode::Observe, Mode::Observe, None));
        let node = policy("[node]\ncaps_mode = \"enforce\"\ndefault_class = \"tier0\"\n").node;
        assert_eq!((node.caps_mode, node.default_class.as_deref()), (Mode::Enforce, Some("tier0")));
    }

    #[test]
    fn impossible_guarantees_name_both_numbers() {
        let error = refused(&org("acme", 1, "floor = 6"));
        assert!(error.contains(":8: ") && error.contains("a floor of 6") && error.contains("its 5 slots"), "{error}");
        let error = refused(&(org("acme", 1, "floor = 3") + &org("base", 2, "floor = 3")));
        assert!(error.contains("floors of 6 in all") && error.contains("its 5 slots"), "{error}");
        let error = refused(&org("acme", 1, "floor = 4\ncap = 2"));
        assert!(error.contains("a floor of 4 is above its own cap of 2"), "{error}");
        let error = refused("[classes.tier0]\nfloor = 9\n");
        assert!(error.contains("a floor of 9") && error.contains("its 5 slots"), "{error}");
    }

    #[test]
    fn floors_that_cannot_all_be_kept_at_once_are_warned_of() {
        let loaded = load(&format!("{TEN}headroom = 0\n")).err();
        assert!(loaded.is_some(), "headroom belongs to the pool, not to its member");
        let text = format!("{TEN}{}", org("acme", 1, "floor = 5"));
        let warnings = load(&text).unwrap().warnings;
        assert!(
            warnings.iter().any(|line| line.contains("floors of 5") && line.contains("5 slots less 1")),
            "{warnings:?}"
        );
        let alone = load(&org("acme", 1, "floor = 5")).unwrap().warnings;
        assert!(alone.iter().any(|line| line.contains("guarantees nothing")), "{alone:?}");
    }

    #[test]
    fn an_org_or_key_needs_its_hash_and_no_other_may_have_it() {
        let error = load("[orgs.acme]\nfloor = 1\n").unwrap_err();
        assert!(error.contains("orgs.acme.id: needed"), "{error}");
        let error = load("[keys.batch]\nid = \"abc\"\n").unwrap_err();
        assert!(error.contains("32 hexadecimal digits"), "{error}");
        let error = load(&(org("acme", 1, "cap = 1") + &org("base", 1, "cap = 1"))).unwrap_err();
        assert!(error.contains("orgs.acme has the same id"), "{error}");
        let key = &policy("[keys.batch]\nid = \"000000000000000000000000000000ff\"\ncap = 7\n").keys[0];
        assert_eq!((key.key.0, key.entitlement.cap), (0xff, Some(7)));
    }

    #[test]
    fn a_section_or_class_that_does_not_exist_is_answered_with_the_one_that_does() {
        let error = load("[org.acme]\ncap = 1\n").unwrap_err();
        assert!(error.contains("unknown key \"org\": did you mean \"orgs\"?"), "{error}");
        let error = load("[node]\ndefault_class = \"tier9\"\n").unwrap_err();
        assert!(
            error.contains(":2: ") && error.contains("no class is named \"tier9\"") && error.contains("tier4"),
            "{error}"
        );
        let error = load("[orgs.acme]\ncapp = 1\n").unwrap_err();
        assert!(error.contains("did you mean \"cap\"?"), "{error}");
    }

    #[test]
    fn a_kind_of_traffic_has_its_own_bound() {
        let loaded =
            load(&format!("{TEN}[pools.a.traffic.media]\nslots = 2\n[pools.a.traffic.huge]\nslots = 9\n")).unwrap();
        let traffic = &loaded.config.policy.pools[0].traffic;
        assert_eq!(
            traffic.iter().map(|kind| (kind.name.as_str(), kind.slots)).collect::<Vec<_>>(),
            [("huge", 9), ("media", 2)]
        );
        assert!(loaded.warnings.iter().any(|line| line.contains("huge") && line.contains("limits nothing")));
    }
}
