//! Labels that proxies give their keys, for display and as names in commands. A label belongs to the session that set it: no
//! other session changes it while that session is connected. Bounded in number, length and work for each request.

use governor_engine::id::{KeyId, SessionId};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Labels kept at most.
const BOUND: usize = 65_536;

/// Characters of a label at most.
const LONGEST: usize = 64;

/// Labels of a full table that one new label examines for one to replace: examining all of them for each request would stall
/// the loop.
const EXAMINED: usize = 16;

/// Labels by key.
#[derive(Debug, Default)]
pub struct Labels {
    by_key: BTreeMap<KeyId, Label>,
    /// The key examined last for replacement.
    examined: Option<KeyId>,
}

#[derive(Debug)]
struct Label {
    text: String,
    owner: SessionId,
}

impl Labels {
    /// Sets the label of a key, unless it belongs to another session that `is_connected`. In a full table it replaces a label
    /// of a key that is not `is_active`, if one of the next `EXAMINED` is; otherwise the new label is left out.
    pub fn learn(
        &mut self,
        key: KeyId,
        label: &str,
        session: SessionId,
        is_connected: impl Fn(SessionId) -> bool,
        is_active: impl Fn(KeyId) -> bool,
    ) {
        match self.by_key.get_mut(&key) {
            Some(known) if known.owner == session && known.text == label => {}
            Some(known) => {
                if known.owner == session || !is_connected(known.owner) {
                    let text = cleaned(label);
                    if !text.is_empty() {
                        *known = Label { text, owner: session };
                    }
                }
            }
            None => {
                let text = cleaned(label);
                if !text.is_empty() && (self.by_key.len() < BOUND || self.forget_one(is_active)) {
                    self.by_key.insert(key, Label { text, owner: session });
                }
            }
        }
    }

    /// Removes a label of an inactive key among the next few; whether there was one.
    fn forget_one(&mut self, is_active: impl Fn(KeyId) -> bool) -> bool {
        let from = self.examined.map_or(Unbounded, Excluded);
        let next: Vec<KeyId> = self.by_key.range((from, Unbounded)).take(EXAMINED).map(|(key, _)| *key).collect();
        let inactive = next.iter().copied().find(|key| !is_active(*key));
        // `None` after the last key: the walk restarts.
        self.examined = inactive.or_else(|| next.last().copied());
        inactive.is_some_and(|key| self.by_key.remove(&key).is_some())
    }

    /// The keys with this label.
    #[must_use]
    pub fn called(&self, name: &str) -> Vec<KeyId> {
        self.by_key.iter().filter(|(_, label)| label.text == name).map(|(key, _)| *key).collect()
    }

    /// The label of a key.
    #[must_use]
    pub fn of(&self, key: KeyId) -> Option<&str> {
        self.by_key.get(&key).map(|label| label.text.as_str())
    }
}

fn cleaned(label: &str) -> String {
    label.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const OWN: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    #[test]
    fn labels_are_printable_short_and_bounded() {
        let mut labels = Labels::default();
        let mut learn = |key: u128, label: &str| labels.learn(KeyId(key), label, OWN, |_| true, |key| key.0 < 3);
        learn(1, "team\u{1b}[31m-a");
        learn(2, &"x".repeat(500));
        for key in 3..BOUND as u128 * 2 {
            learn(key, "k");
        }
        assert_eq!(labels.of(KeyId(1)), Some("team[31m-a"), "active keys keep their label");
        assert_eq!(labels.of(KeyId(2)).map(str::len), Some(LONGEST));
        assert_eq!(labels.of(KeyId(BOUND as u128 * 2 - 1)), Some("k"), "new labels replace old ones");
        assert_eq!(labels.by_key.len(), BOUND);
    }

    #[test]
    fn a_label_belongs_to_the_session_that_set_it() {
        let mut labels = Labels::default();
        let key = KeyId(1);
        labels.learn(key, "team-blue", OWN, |_| true, |_| true);
        labels.learn(key, "team-red", OTHER, |_| true, |_| true);
        assert_eq!(labels.of(key), Some("team-blue"));
        labels.learn(key, "team-green", OWN, |_| true, |_| true);
        assert_eq!(labels.of(key), Some("team-green"), "its own session may change it");
        labels.learn(key, "team-red", OTHER, |session| session != OWN, |_| true);
        assert_eq!(labels.of(key), Some("team-red"), "the label of a session that is gone is free");
    }

    #[test]
    fn a_full_table_examines_few_labels_for_each_new_one() {
        let mut labels = Labels::default();
        for key in 0..BOUND as u128 {
            labels.learn(KeyId(key), "k", OWN, |_| true, |_| true);
        }
        let examined = Cell::new(0);
        for key in 0..1000 {
            let is_active = |_| {
                examined.set(examined.get() + 1);
                true
            };
            labels.learn(KeyId(BOUND as u128 + key), "k", OWN, |_| true, is_active);
        }
        assert!(examined.get() <= 1000 * EXAMINED, "{} examined", examined.get());
        assert_eq!(labels.by_key.len(), BOUND);
    }
}
