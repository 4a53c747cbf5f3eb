//! What proxies call their keys, for people's eyes. Bounded, printable, and never a key: the proxy's library sends a
//! label only where its extractor names one.

use governor_engine::id::KeyId;
use std::collections::BTreeMap;

/// Labels kept at most.
const BOUND: usize = 65_536;

/// Characters of a label at most.
const LONGEST: usize = 64;

/// Labels by key.
#[derive(Debug, Default)]
pub struct Labels(BTreeMap<KeyId, String>);

impl Labels {
    /// Remembers what a key is called. When the table is full, labels of keys that are not `busy` go.
    pub fn learn(&mut self, key: KeyId, label: &str, busy: impl Fn(KeyId) -> bool) {
        if self.0.get(&key).is_some_and(|known| known == label) {
            return;
        }
        if self.0.len() >= BOUND {
            self.0.retain(|key, _| busy(*key));
        }
        let label: String = label.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        if !label.is_empty() && self.0.len() < BOUND {
            self.0.insert(key, label);
        }
    }

    /// The keys of this name.
    #[must_use]
    pub fn called(&self, name: &str) -> Vec<KeyId> {
        self.0.iter().filter(|(_, label)| *label == name).map(|(key, _)| *key).collect()
    }

    /// What a key is called.
    #[must_use]
    pub fn of(&self, key: KeyId) -> Option<&str> {
        self.0.get(&key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_printable_short_and_bounded() {
        let mut labels = Labels::default();
        labels.learn(KeyId(1), "team\u{1b}[31m-a", |_| true);
        assert_eq!(labels.of(KeyId(1)), Some("team[31m-a"));
        labels.learn(KeyId(2), &"x".repeat(500), |_| true);
        assert_eq!(labels.of(KeyId(2)).map(str::len), Some(LONGEST));
        for key in 0..BOUND as u128 * 2 {
            labels.learn(KeyId(key), "k", |key| key.0 < 3);
        }
        assert!(labels.0.len() <= BOUND);
        assert_eq!(labels.of(KeyId(1)), Some("k"), "busy keys keep their label");
    }
}
