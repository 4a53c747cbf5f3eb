//! Sections of settings as typed values, each with the place it comes from, and what is found wrong with them.

use super::form::Form;
use crate::config::Problem;
use crate::config::layers::{Effective, Origin, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// Reads declared sections from effective settings.
pub(in crate::config) struct Reader<'a> {
    /// By dotted key: joined once, because every setting is looked up by it.
    by_key: BTreeMap<String, &'a Effective>,
    pub(in crate::config) problems: Vec<Problem>,
}

/// A value with its key.
#[derive(Debug)]
pub(in crate::config) struct Entry<'a, T> {
    /// Dotted.
    pub(in crate::config) key: String,
    pub(in crate::config) value: T,
    /// `None` where the setting is absent.
    found: Option<&'a Effective>,
}

impl<T> Entry<'_, T> {
    /// As it can be typed.
    pub(in crate::config) fn shown(&self) -> serde_json::Value {
        self.found.map(|found| found.value.to_json()).unwrap_or_default()
    }
}

impl<'a> Reader<'a> {
    pub(in crate::config) fn new(settings: &'a Settings) -> Self {
        let by_key = settings.iter().map(|(path, effective)| (path.join("."), effective)).collect();
        Self { by_key, problems: Vec::new() }
    }

    /// Only the declarations call this: no other code names a key.
    pub(super) fn entry<F: Form>(&self, section: &str, leaf: &str, default: &'static str) -> Entry<'a, F::Value> {
        let key = format!("{section}.{leaf}");
        let found = self.by_key.get(&key).copied();
        Entry { value: F::read(found.map(|found| &found.value), default), found, key }
    }

    /// A value cannot hold.
    pub(in crate::config) fn problem<T>(&mut self, entry: &Entry<'_, T>, message: impl AsRef<str>) {
        let place = match entry.found.map(|found| &found.origin) {
            Some(Origin::File { place }) => place.clone(),
            Some(Origin::Environment { variable }) => variable.clone(),
            Some(Origin::Override { .. }) => "override".to_owned(),
            Some(Origin::BuiltIn) | None => "configuration".to_owned(),
        };
        self.problems.push(Problem::new(place, format!("{}: {}", entry.key, message.as_ref())));
    }

    /// A section as a whole cannot hold.
    pub(in crate::config) fn section_problem(&mut self, section: &str, message: impl AsRef<str>) {
        self.problems.push(Problem::new("configuration".to_owned(), format!("{section}: {}", message.as_ref())));
    }
}

/// The dotted path of a section: each `*` of its pattern is one of the names.
pub(in crate::config) fn section_path(pattern: &str, names: &[&str]) -> String {
    let mut names = names.iter();
    let part = |part| if part == "*" { names.next().copied().unwrap_or("*") } else { part };
    pattern.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// The names that the operator chose for the last `*` of a section's pattern, where the others are `given`. Looks at its part
/// of `all` only, which are in order.
pub(in crate::config) fn chosen<'a>(
    pattern: &str,
    given: &[&str],
    all: &'a BTreeSet<Vec<String>>,
) -> impl Iterator<Item = &'a String> + use<'a> {
    let mut given = given.iter();
    let mut prefix: Vec<String> = pattern
        .split('.')
        .map(|part| if part == "*" { given.next().copied().unwrap_or("*") } else { part }.to_owned())
        .collect();
    prefix.pop();
    let length = prefix.len() + 1;
    let within = all.range(prefix.clone()..).take_while(move |path| path.starts_with(&prefix));
    within.filter(move |path| path.len() == length).filter_map(|path| path.last())
}
