//! What operators have set for single keys (C7): kept in the state folder as one small file, so that a restart keeps it.
//! Ends are kept as wall-clock time, because they outlive the process and the boot. Decides nothing: the engine obeys.

use crate::config::value::identity;
use crate::naming;
use crate::records::event_log::words;
use crate::state::{KEYS, StateDir, Stored};
use governor_api::KeySetting;
use governor_engine::id::KeyId;
use governor_engine::policy::{Entitlement, Override};
use governor_engine::time::{Duration, Instant};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys that can have an override at one time.
const MOST: usize = 10_000;

/// One override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOverride {
    /// The keyed hash, 32 hexadecimal digits.
    pub key: String,
    /// What the proxy called the key then.
    pub label: Option<String>,
    /// What is set.
    pub setting: KeySetting,
    /// When it ends, in seconds since 1970; `None`: until taken away.
    pub until: Option<u64>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Who set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
}

/// All of them and where they are kept.
#[derive(Debug)]
pub struct KeyOverrides {
    folder: StateDir,
    all: BTreeMap<KeyId, KeyOverride>,
    /// Entries of the file that are no overrides, as they stand there, and why. They are kept until an operator clears
    /// the file of them.
    invalid: Vec<(Value, String)>,
}

/// Too many keys have an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} keys have an override already: clear some")]
pub struct TooMany;

impl KeyOverrides {
    /// As they were left in this state folder.
    #[must_use]
    pub fn load(folder: &StateDir) -> Self {
        let mut all = BTreeMap::new();
        let mut invalid = Vec::new();
        for entry in folder.load::<Vec<Value>>(KEYS).unwrap_or_default() {
            match read_entry(&entry) {
                Ok((key, kept)) => drop(all.insert(key, kept)),
                Err(why) => {
                    tracing::error!(entry = words(&entry), why, "an override of a key is invalid and not in force");
                    invalid.push((entry, why));
                }
            }
        }
        Self { folder: folder.clone(), all, invalid }
    }

    /// What the file holds that is no override, and why.
    #[must_use]
    pub fn invalid(&self) -> &[(Value, String)] {
        &self.invalid
    }

    /// All that hold, by key.
    pub fn iter(&self) -> impl Iterator<Item = (KeyId, &KeyOverride)> {
        self.all.iter().map(|(key, kept)| (*key, kept))
    }

    /// The one of a key.
    #[must_use]
    pub fn of(&self, key: KeyId) -> Option<&KeyOverride> {
        self.all.get(&key)
    }

    /// Sets (`Some`) or takes away (`None`) the one of a key. It holds at once; the answer says whether it is stored.
    ///
    /// # Errors
    /// There are too many; everything is as it was.
    pub fn set(&mut self, key: KeyId, with: Option<KeyOverride>) -> Result<Stored, TooMany> {
        match with {
            Some(_) if !self.all.contains_key(&key) && self.all.len() >= MOST => return Err(TooMany),
            Some(with) => drop(self.all.insert(key, with)),
            None => drop(self.all.remove(&key)),
        }
        Ok(self.store())
    }

    /// Forgets those whose end has come at `wall` and returns them. What cannot be stored now is forgotten again after
    /// the next start.
    pub fn expire(&mut self, wall: u64) -> Vec<KeyOverride> {
        let over = |kept: &KeyOverride| kept.until.is_some_and(|until| until <= wall);
        let expired: Vec<KeyId> = self.all.iter().filter(|(_, kept)| over(kept)).map(|(key, _)| *key).collect();
        let gone: Vec<KeyOverride> = expired.iter().filter_map(|key| self.all.remove(key)).collect();
        if !gone.is_empty() {
            drop(self.store());
        }
        gone
    }

    /// The next end, in seconds since 1970.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.all.values().filter_map(|kept| kept.until).min()
    }

    fn store(&self) -> Stored {
        let all = self.all.values().map(|kept| serde_json::to_value(kept).expect("plain data serializes"));
        let all: Vec<Value> = all.chain(self.invalid.iter().map(|(entry, _)| entry.clone())).collect();
        self.folder.store(KEYS, serde_json::to_vec_pretty(&all).expect("plain data serializes"))
    }
}

impl KeyOverride {
    /// As the engine obeys it.
    #[must_use]
    pub fn to_engine(&self, now: Instant, wall: u64) -> Override {
        let KeySetting { cap, weight, floor, suspend } = self.setting;
        Override {
            entitlement: Entitlement { weight, floor, cap },
            suspend,
            until: self.until.map(|until| now.after(Duration::from_secs(until.saturating_sub(wall)))),
        }
    }
}

/// One entry of the file.
fn read_entry(entry: &Value) -> Result<(KeyId, KeyOverride), String> {
    let kept: KeyOverride = Deserialize::deserialize(entry).map_err(|error| format!("{error}"))?;
    let key = identity(&kept.key).ok_or_else(|| format!("\"{}\" is not 32 hexadecimal digits", kept.key))?;
    kept.to_engine(Instant::ZERO, 0).check().map_err(|error| error.to_string())?;
    Ok((KeyId(key), kept))
}

/// A key as its file and the operator write it.
#[must_use]
pub fn digits(key: KeyId) -> String {
    naming::hash(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capped(key: KeyId, until: Option<u64>) -> KeyOverride {
        KeyOverride {
            key: digits(key),
            label: Some("batch".into()),
            setting: KeySetting { cap: Some(5), ..KeySetting::default() },
            until,
            reason: None,
            set_by: "uid 0".into(),
            set_at: "2026-01-01T00:00:00Z".into(),
        }
    }

    #[test]
    fn an_override_survives_a_restart_and_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut overrides = KeyOverrides::load(&state);
        drop(overrides.set(KeyId(1), Some(capped(KeyId(1), Some(100)))).unwrap());
        drop(overrides.set(KeyId(2), Some(capped(KeyId(2), None))).unwrap());
        state.finish();
        let mut again = KeyOverrides::load(&state);
        assert_eq!((again.of(KeyId(1)), again.next_end()), (overrides.of(KeyId(1)), Some(100)));
        assert!(again.expire(99).is_empty());
        assert_eq!(again.expire(100), [capped(KeyId(1), Some(100))]);
        assert_eq!(again.iter().map(|(key, _)| key).collect::<Vec<_>>(), [KeyId(2)]);
    }

    #[tokio::test]
    async fn an_invalid_entry_is_kept_beside_the_valid_ones() {
        let folder = tempfile::tempdir().unwrap();
        let valid = serde_json::to_value(capped(KeyId(1), None)).unwrap();
        let mut misspelt = valid.clone();
        misspelt["key"] = "xyz".into();
        let content = serde_json::json!([valid, misspelt, { "key": 7 }]);
        std::fs::write(folder.path().join("keys.json"), content.to_string()).unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut overrides = KeyOverrides::load(&state);
        assert_eq!((overrides.iter().count(), overrides.invalid().len()), (1, 2));
        assert!(overrides.invalid()[0].1.contains("\"xyz\" is not 32 hexadecimal digits"));
        assert_eq!(overrides.set(KeyId(1), None).unwrap().warning().await, None);
        assert_eq!(KeyOverrides::load(&state).invalid(), overrides.invalid());
        assert_eq!(state.damaged(), []);
    }

    #[test]
    fn the_engine_is_told_when_it_ends() {
        let now = Instant::ZERO.after(Duration::from_secs(7));
        let told = capped(KeyId(1), Some(160)).to_engine(now, 100);
        assert_eq!((told.entitlement.cap, told.until), (Some(5), Some(now.after(Duration::from_secs(60)))));
    }
}
