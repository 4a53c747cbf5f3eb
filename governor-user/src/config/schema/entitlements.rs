//! The settings of classes, orgs and keys, and the classes there are without being configured.

use super::Count;
use super::declare::section;
use super::form::{Identity, Integer, Optional};
use crate::config::value::Value;
use governor_engine::policy::{ClassPolicy, Entitlement};

type Weight = Integer<1, { Entitlement::MOST_WEIGHT }>;

section! {
    /// A class (plan).
    Class in "classes.*" {
        /// Ceiling of the class (plan): requests on the node, in flight and parked, of each of its orgs at most; 0 is no ceiling.
        cap: Optional<Count> = "100", RunTime;
        /// Weight of each of its orgs under max-min; 1 unless set.
        weight: Optional<Weight> = "1", RunTime;
        /// Slots of a pool each of its orgs gets whenever one is free, whatever its share, under max-min; 0 unless set.
        floor: Optional<Count> = "0", RunTime;
    }
}

section! {
    /// An org, by a name that is the operator's to choose.
    Org in "orgs.*" {
        /// Keyed hash of the org as governorctl keys shows it; the section's name is yours to choose.
        // Not at run time: overrides are named by it.
        id: Optional<Identity> = "0123456789abcdef0123456789abcdef", Reload;
        /// Requests of this org at most, instead of its class's ceiling; 0 is no cap.
        cap: Optional<Count> = "100", RunTime;
        /// Weight of this org, instead of its class's.
        weight: Optional<Weight> = "1", RunTime;
        /// Floor of this org, instead of its class's.
        floor: Optional<Count> = "0", RunTime;
    }
}

section! {
    /// A key, by a name that is the operator's to choose.
    Key in "keys.*" {
        /// Keyed hash of the key as governorctl keys shows it; the section's name is yours to choose.
        id: Optional<Identity> = "0123456789abcdef0123456789abcdef", Reload;
        /// Requests of this key at most; 0 is no cap.
        cap: Optional<Count> = "100", RunTime;
        /// Weight of this key: of its share without an org, of its turn within one.
        weight: Optional<Weight> = "1", RunTime;
        /// Floor of this key: of its share without an org, of its turn within one.
        floor: Optional<Count> = "0", RunTime;
    }
}

/// Paths of the classes that need not be configured.
pub(in crate::config) fn built_in_names() -> impl Iterator<Item = Vec<String>> {
    ClassPolicy::table().into_iter().map(|class| vec!["classes".to_owned(), class.name])
}

/// The built-in values of the classes that need not be configured.
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
