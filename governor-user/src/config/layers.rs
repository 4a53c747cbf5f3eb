//! Layers and origins: built-in < file < environment < run-time override. Decides which layer wins for each key and
//! remembers which one did.

use super::Override;
use super::Problem;
use super::file::FileLayer;
use super::schema::{self, Setting, settings};
use super::value::{Raw, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table in [`schema`].
    BuiltIn,
    /// A line of the file.
    File {
        /// File name as given and line.
        place: String,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// `governorctl set`.
    Override {
        /// By whom and when.
        detail: String,
    },
}

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The value.
    pub value: Value,
    /// Its source.
    pub origin: Origin,
    /// Whether it may be changed at run time.
    pub live: bool,
}

/// Effective values by path.
pub type Settings = BTreeMap<Vec<String>, Effective>;

/// The inputs of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// How problems name the file.
    pub file_name: &'a str,
    /// The file layer.
    pub file: &'a FileLayer,
    /// Environment variables, all of which must be settings.
    pub environment: &'a BTreeMap<String, String>,
    /// Run-time overrides by dotted key.
    pub overrides: &'a [Override],
}

/// Merges all layers.
///
/// # Errors
/// Every value that its kind refuses and every variable that names no setting.
pub fn merge(sources: Sources<'_>, warnings: &mut Vec<String>) -> Result<Settings, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut effective = Settings::new();
    let mut variables = BTreeMap::new();
    let mut by_key = BTreeMap::new();
    for (path, row) in instances(&sources.file.names) {
        // Overrides are named by it; without one it is not needed.
        if !sources.overrides.is_empty() {
            by_key.insert(path.join("."), path.clone());
        }
        if let Some(value) = schema::default_of(row, &path) {
            effective.insert(path.clone(), Effective { value, origin: Origin::BuiltIn, live: row.is_live() });
        }
        let variable = schema::variable(&path);
        if let Some(first) = variables.insert(variable.clone(), (path, row))
            && sources.environment.contains_key(&variable)
        {
            problems.push(Problem::new(
                variable,
                format!("names two settings, one of them \"{}\": set it in the file", first.0.join(".")),
            ));
        }
    }
    let mut put = |place: String, path: &[String], raw: &Raw, origin: Origin| {
        let Some(row) = schema::setting(path) else { return };
        match row.kind.parse(raw) {
            Ok(value) => {
                effective.insert(path.to_vec(), Effective { value, origin, live: row.is_live() });
            }
            Err(why) => problems.push(Problem::new(place, format!("{}: {why}", path.join(".")))),
        }
    };
    for (path, raw, line) in &sources.file.entries {
        let place = format!("{}:{line}", sources.file_name);
        put(place.clone(), path, raw, Origin::File { place });
    }
    for (variable, text) in sources.environment {
        if let Some((path, _)) = variables.get(variable) {
            put(variable.clone(), path, &Raw::Bare(text.clone()), Origin::Environment { variable: variable.clone() });
        }
    }
    for over in sources.overrides {
        match by_key.get(&over.key).filter(|path| schema::setting(path).is_some_and(Setting::is_live)) {
            Some(path) => {
                let detail = format!("by {} at {}", over.set_by, over.set_at);
                put(
                    // The message begins with the key.
                    "override".to_owned(),
                    path,
                    &Raw::Bare(over.value.clone()),
                    Origin::Override { detail },
                );
            }
            None => warnings.push(format!("override \"{}\" names no setting here and is not applied", over.key)),
        }
    }
    for variable in sources.environment.keys().filter(|name| !variables.contains_key(*name)) {
        problems.push(unknown_variable(variable, variables.keys()));
    }
    if problems.is_empty() { Ok(effective) } else { Err(problems) }
}

/// Splits a dotted key into its path; names the operator chose may contain dots themselves.
#[must_use]
pub fn split(key: &str, names: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    instances(names).into_iter().map(|(path, _)| path).find(|path| path.join(".") == key)
}

/// Every concrete key: each row of the schema with `*` replaced by each name.
fn instances(names: &BTreeSet<Vec<String>>) -> Vec<(Vec<String>, &'static Setting)> {
    let mut all = Vec::new();
    for row in settings() {
        let parts: Vec<&str> = row.key.split('.').collect();
        let Some(last) = parts.iter().rposition(|part| *part == "*") else {
            all.push((parts.iter().map(|part| (*part).to_owned()).collect(), row));
            continue;
        };
        let prefix = &parts[..=last];
        for name in names.iter().filter(|name| {
            name.len() == prefix.len() && name.iter().zip(prefix).all(|(have, want)| *want == "*" || have == want)
        }) {
            let rest = parts[last + 1..].iter().map(|part| (*part).to_owned());
            all.push((name.iter().cloned().chain(rest).collect(), row));
        }
    }
    all
}

fn unknown_variable<'a>(variable: &str, known: impl Iterator<Item = &'a String>) -> Problem {
    let nearest = known
        .map(|name| (strsim::jaro_winkler(variable, name), name))
        .filter(|(score, _)| *score > 0.9)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = nearest.map_or_else(
        || {
            "it names no setting: remove it; pools, members and other names are declared in the file, the environment sets their \
             values only"
                .to_owned()
        },
        |(_, name)| format!("did you mean {name}?"),
    );
    Problem::new(variable.to_owned(), format!("unknown variable: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;
    use governor_engine::policy::FairShare;

    fn merged(environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        let file = file::parse("f", "[pools.chat]\nfair_share = 70\n[pools.chat.members.a]\n").unwrap();
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let overrides: Vec<Override> = overrides
            .iter()
            .map(|(key, value)| Override {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
                set_by: "uid 0".to_owned(),
                set_at: "now".to_owned(),
            })
            .collect();
        let sources = Sources { file_name: "f", file: &file, environment: &environment, overrides: &overrides };
        merge(sources, &mut Vec::new()).map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    fn share(settings: &Settings) -> (Value, Origin) {
        let path: Vec<String> = ["pools", "chat", "fair_share"].map(str::to_owned).to_vec();
        let effective = &settings[&path];
        (effective.value.clone(), effective.origin.clone())
    }

    fn percent(threshold: u8) -> Value {
        Value::FairShare(FairShare::EqualSplit { threshold })
    }

    #[test]
    fn each_layer_wins_over_the_one_below_and_is_named() {
        assert_eq!(share(&merged(&[], &[]).unwrap()), (percent(70), Origin::File { place: "f:2".to_owned() }));
        let variable = "GOVERNOR_POOLS_CHAT_FAIR_SHARE";
        assert_eq!(
            share(&merged(&[(variable, "75")], &[]).unwrap()),
            (percent(75), Origin::Environment { variable: variable.to_owned() })
        );
        let (value, origin) = share(&merged(&[(variable, "75")], &[("pools.chat.fair_share", "off")]).unwrap());
        assert_eq!(value, Value::FairShare(FairShare::Off));
        assert!(matches!(origin, Origin::Override { .. }));
    }

    #[test]
    fn a_variable_that_names_no_setting_is_an_error_with_the_nearest_name() {
        let all = merged(&[("GOVERNOR_POOLS_CHAT_FAIR_SHAR", "75")], &[]).unwrap_err();
        assert!(all[0].contains("did you mean GOVERNOR_POOLS_CHAT_FAIR_SHARE?"), "{all:?}");
        assert!(merged(&[("GOVERNOR_NODE_CAP", "-1")], &[]).unwrap_err()[0].contains("whole number"));
        // The section of pools is not the one of a pool, and a prefix is no section at all.
        for variable in ["GOVERNOR_POOL_CHAT_FAIR_SHARE", "GOVERNOR_POOLS_OTHER_FAIR_SHARE", "GOVERNOR_", "GOVERNOR_X"]
        {
            assert_eq!(merged(&[(variable, "75")], &[]).unwrap_err().len(), 1, "{variable}");
        }
        let all = merged(&[("GOVERNOR_POOL_CHAT_FAIR_SHARE", "75")], &[]).unwrap_err();
        assert!(all[0].contains("did you mean GOVERNOR_POOLS_CHAT_FAIR_SHARE?"), "{all:?}");
    }
}
