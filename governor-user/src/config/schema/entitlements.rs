//! The rows for classes, orgs and keys, and the classes there are without being configured.

use super::COUNT;
use super::Setting;
use super::live_optional;
use super::optional;
use crate::config::value::{Kind, Value};
use governor_engine::policy::{ClassPolicy, Entitlement};

const WEIGHT: Kind = Kind::Integer { min: 1, max: Entitlement::MOST_WEIGHT };

/// Not at run time: overrides are named by it.
const fn identity(key: &'static str, doc: &'static str) -> Setting {
    Setting { reloaded: true, ..optional(key, Kind::Identity, doc) }
}

/// Every setting of classes, orgs and keys, in the order of the generated file.
pub(super) const ROWS: &[Setting] = &[
    live_optional(
        "classes.*.cap",
        COUNT,
        "Ceiling of the class (plan): requests on the node, in flight and parked, of each of its orgs at most; 0 is no ceiling.",
    ),
    live_optional("classes.*.weight", WEIGHT, "Weight of each of its orgs under max-min; 1 unless set."),
    live_optional(
        "classes.*.floor",
        COUNT,
        "Slots of a pool each of its orgs gets whenever one is free, whatever its share, under max-min; 0 unless set.",
    ),
    identity("orgs.*.id", "Keyed hash of the org as governorctl keys shows it; the section's name is yours to choose."),
    live_optional("orgs.*.cap", COUNT, "Requests of this org at most, instead of its class's ceiling; 0 is no cap."),
    live_optional("orgs.*.weight", WEIGHT, "Weight of this org, instead of its class's."),
    live_optional("orgs.*.floor", COUNT, "Floor of this org, instead of its class's."),
    identity("keys.*.id", "Keyed hash of the key as governorctl keys shows it; the section's name is yours to choose."),
    live_optional("keys.*.cap", COUNT, "Requests of this key at most; 0 is no cap."),
    live_optional("keys.*.weight", WEIGHT, "Weight of this key: of its share without an org, of its turn within one."),
    live_optional("keys.*.floor", COUNT, "Floor of this key: of its share without an org, of its turn within one."),
];

/// Paths of the classes that need not be configured.
pub(in crate::config) fn built_in_names() -> impl Iterator<Item = Vec<String>> {
    ClassPolicy::table().into_iter().map(|class| vec!["classes".to_owned(), class.name])
}

/// The built-in value of a setting of a class, if it has one.
pub(super) fn built_in(path: &[String]) -> Option<Value> {
    let [classes, name, leaf] = path else { return None };
    let class = ClassPolicy::table().into_iter().find(|class| classes == "classes" && class.name == *name)?;
    let Entitlement { weight, floor, cap } = class.entitlement;
    let value = match leaf.as_str() {
        "cap" => cap,
        "weight" => weight,
        "floor" => floor,
        _ => None,
    };
    value.map(Value::Integer)
}
