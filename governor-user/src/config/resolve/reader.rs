//! Typed access to effective settings, and what is found wrong on the way.

use crate::config::Problem;
use crate::config::layers::{Effective, Origin, Settings};
use crate::config::value::Value;
use governor_engine::policy::Mode;
use std::collections::BTreeMap;
use std::time::Duration;

/// Typed access to settings whose presence and kind the schema guarantees.
pub(super) struct Reader<'a> {
    /// By dotted key: joined once, because every setting is looked up by it.
    by_key: BTreeMap<String, &'a Effective>,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let by_key = settings.iter().map(|(path, effective)| (path.join("."), effective)).collect();
        Self { by_key, problems: Vec::new() }
    }

    fn find(&self, key: &str) -> Option<&Effective> {
        self.by_key.get(key).copied()
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|effective| &effective.value)
    }

    pub(super) fn integer(&self, key: &str) -> u32 {
        self.number(key).unwrap_or(0)
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        match self.value(key) {
            Some(Value::Duration(value)) => *value,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn number(&self, key: &str) -> Option<u32> {
        match self.value(key) {
            Some(Value::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn act(&self, key: &str) -> Mode {
        match self.value(key) {
            Some(Value::Mode(mode)) => *mode,
            _ => Mode::Observe,
        }
    }

    pub(super) fn text(&self, key: &str) -> String {
        match self.value(key) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    pub(super) fn mode(&self, key: &str) -> u32 {
        match self.value(key) {
            Some(Value::FileMode(mode)) => *mode,
            _ => 0o600,
        }
    }

    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(Value::List(words)) => words.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn problem(&mut self, key: &str, message: String) {
        let place = match self.find(key).map(|effective| &effective.origin) {
            Some(Origin::File { place }) => place.clone(),
            Some(Origin::Environment { variable }) => variable.clone(),
            Some(Origin::Override { .. }) => "override".to_owned(),
            Some(Origin::BuiltIn) | None => "configuration".to_owned(),
        };
        self.problems.push(Problem::new(place, format!("{key}: {message}")));
    }
}
