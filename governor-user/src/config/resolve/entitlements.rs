//! Classes, orgs and keys, and the guarantees no pool can keep.

use super::Names;
use super::pools::{capacity, chosen};
use super::reader::Reader;
use crate::config::value::Value;
use governor_engine::id::{KeyId, OrgId};
use governor_engine::policy::{ClassPolicy, Entitlement, FairShare, KeyPolicy, OrgPolicy, Policy, PoolPolicy};
use std::collections::{BTreeMap, BTreeSet};

/// The classes, built-in ones among them.
pub(super) fn classes(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<ClassPolicy> {
    let classes = named(names, "classes");
    classes.map(|name| ClassPolicy { name: name.clone(), entitlement: entitlement(reader, "classes", name) }).collect()
}

/// The orgs that have settings of their own.
pub(super) fn orgs(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<OrgPolicy> {
    let mut seen = BTreeMap::new();
    named(names, "orgs")
        .filter_map(|name| {
            let id = identity(reader, "orgs", name, &mut seen)?;
            Some(OrgPolicy { org: OrgId(id), entitlement: entitlement(reader, "orgs", name) })
        })
        .collect()
}

/// The keys that have settings of their own.
pub(super) fn keys(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<KeyPolicy> {
    let mut seen = BTreeMap::new();
    named(names, "keys")
        .filter_map(|name| {
            let id = identity(reader, "keys", name, &mut seen)?;
            Some(KeyPolicy { key: KeyId(id), entitlement: entitlement(reader, "keys", name) })
        })
        .collect()
}

/// What the operator calls them.
pub(super) fn names(reader: &Reader<'_>, names: &BTreeSet<Vec<String>>) -> Names {
    let id = |section: &str, name: &str| match reader.value(&format!("{section}.{name}.id")) {
        Some(Value::Identity(id)) => Some(*id),
        _ => None,
    };
    let orgs = named(names, "orgs").filter_map(|name| Some((OrgId(id("orgs", name)?), name.clone())));
    let keys = named(names, "keys").filter_map(|name| Some((KeyId(id("keys", name)?), name.clone())));
    Names { orgs: orgs.collect(), keys: keys.collect() }
}

/// Guarantees that cannot hold: in a pool that keeps floors, none is above its capacity, nor are all of them together.
pub(super) fn check(
    reader: &mut Reader<'_>,
    names: &BTreeSet<Vec<String>>,
    policy: &Policy,
    warnings: &mut Vec<String>,
) {
    if let Some(class) =
        policy.node.default_class.as_ref().filter(|name| !policy.classes.iter().any(|c| c.name == **name))
    {
        let known: Vec<&str> = policy.classes.iter().map(|class| class.name.as_str()).collect();
        reader.problem("node.default_class", format!("no class is named \"{class}\"; there are {}", known.join(", ")));
    }
    let floors: Vec<(String, u32)> = ["classes", "orgs", "keys"]
        .into_iter()
        .flat_map(|section| named(names, section).map(move |name| format!("{section}.{name}.floor")))
        .filter_map(|key| reader.number(&key).map(|floor| (key, floor)))
        .filter(|(_, floor)| *floor > 0)
        .collect();
    let keeping: Vec<&PoolPolicy> =
        policy.pools.iter().filter(|pool| matches!(pool.fair_share, FairShare::MaxMin { .. })).collect();
    if let Some((key, floor)) = floors.first().filter(|_| keeping.is_empty()) {
        warnings.push(format!("{key} = {floor} guarantees nothing: no pool has fair_share = \"max-min\""));
    }
    for pool in keeping {
        check_pool(reader, pool, &floors, warnings);
    }
}

fn check_pool(reader: &mut Reader<'_>, pool: &PoolPolicy, floors: &[(String, u32)], warnings: &mut Vec<String>) {
    let (name, capacity) = (&pool.name, capacity(&pool.members));
    if capacity == 0 {
        return;
    }
    let mut possible = true;
    for (key, floor) in floors.iter().filter(|(_, floor)| u64::from(*floor) > capacity) {
        possible = false;
        reader.problem(key, format!("a floor of {floor} does not fit into pool \"{name}\" with its {capacity} slots"));
    }
    // How many orgs a class will have, nobody knows; keys of an org share its floor, and which do is not known either.
    for section in ["orgs.", "keys."] {
        let single: Vec<&(String, u32)> = floors.iter().filter(|(key, _)| key.starts_with(section)).collect();
        let sum: u64 = single.iter().map(|(_, floor)| u64::from(*floor)).sum();
        let Some((last, _)) = single.last().filter(|_| possible) else { continue };
        let headroom = match pool.fair_share {
            FairShare::MaxMin { headroom } => u64::from(headroom.slots(u32::try_from(capacity).unwrap_or(u32::MAX))),
            FairShare::Off | FairShare::EqualSplit { .. } => 0,
        };
        if sum > capacity {
            reader.problem(
                last,
                format!("floors of {sum} in all do not fit into pool \"{name}\" with its {capacity} slots"),
            );
        } else if sum > capacity - headroom {
            warnings.push(format!(
                "floors of {sum} under {section}* oversubscribe pool \"{name}\": {capacity} slots less {headroom} of headroom; \
                 when all of them ask, each gets its part"
            ));
        }
    }
}

/// Chosen names of one section.
fn named<'a>(names: &'a BTreeSet<Vec<String>>, section: &str) -> impl Iterator<Item = &'a String> {
    chosen(names, [section])
}

fn identity(reader: &mut Reader<'_>, section: &str, name: &str, seen: &mut BTreeMap<u128, String>) -> Option<u128> {
    let key = format!("{section}.{name}.id");
    let Some(Value::Identity(id)) = reader.value(&key).cloned() else {
        reader.problem(&key, "needed: the keyed hash as governorctl keys shows it".to_owned());
        return None;
    };
    if let Some(first) = seen.insert(id, name.to_owned()) {
        reader.problem(&key, format!("{section}.{first} has the same id"));
        return None;
    }
    Some(id)
}

fn entitlement(reader: &mut Reader<'_>, section: &str, name: &str) -> Entitlement {
    let key = |leaf: &str| format!("{section}.{name}.{leaf}");
    let entitlement = Entitlement {
        weight: reader.number(&key("weight")),
        floor: reader.number(&key("floor")),
        cap: reader.number(&key("cap")),
    };
    if let (Some(floor), Some(cap @ 1..)) = (entitlement.floor, entitlement.cap)
        && floor > cap
    {
        reader.problem(&key("floor"), format!("a floor of {floor} is above its own cap of {cap}"));
    }
    entitlement
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
