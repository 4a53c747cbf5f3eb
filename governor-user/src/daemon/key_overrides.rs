//! What operators have set for single keys (C7): kept in the state folder as one small file, so that a restart keeps it.
//! Ends are kept as wall-clock time, because they outlive the process and the boot. Decides nothing: the engine obeys.

use super::translate;
use crate::config::overrides::replace;
use crate::config::value::identity;
use crate::control::api::KeySetting;
use anyhow::{Context, Result};
use governor_engine::id::KeyId;
use governor_engine::policy::{Entitlement, Override};
use governor_engine::time::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
    path: PathBuf,
    all: BTreeMap<KeyId, KeyOverride>,
}

impl KeyOverrides {
    /// As they were left in this state folder.
    ///
    /// # Errors
    /// The file is there and not ours; the message names it.
    pub fn load(state_dir: &Path) -> Result<Self> {
        let path = state_dir.join("keys.json");
        let kept: Vec<KeyOverride> = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not a list of key overrides: move it away", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let all = kept.into_iter().filter_map(|kept| Some((KeyId(identity(&kept.key)?), kept))).collect();
        Ok(Self { path, all })
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

    /// Sets (`Some`) or takes away (`None`) the one of a key.
    ///
    /// # Errors
    /// There are too many, or the state folder cannot be written; everything is as it was.
    pub fn set(&mut self, key: KeyId, with: Option<KeyOverride>) -> Result<()> {
        let before = self.all.get(&key).cloned();
        match with {
            Some(with) => {
                anyhow::ensure!(
                    before.is_some() || self.all.len() < MOST,
                    "{MOST} keys have an override already: clear some"
                );
                self.all.insert(key, with);
            }
            None => drop(self.all.remove(&key)),
        }
        self.store().inspect_err(|_| {
            match before {
                Some(before) => self.all.insert(key, before),
                None => self.all.remove(&key),
            };
        })
    }

    /// Forgets those whose end has come at `wall` and returns them. What cannot be written now is forgotten again after
    /// the next start.
    pub fn expire(&mut self, wall: u64) -> Vec<KeyOverride> {
        let over = |kept: &KeyOverride| kept.until.is_some_and(|until| until <= wall);
        let expired: Vec<KeyId> = self.all.iter().filter(|(_, kept)| over(kept)).map(|(key, _)| *key).collect();
        let gone: Vec<KeyOverride> = expired.iter().filter_map(|key| self.all.remove(key)).collect();
        if !gone.is_empty()
            && let Err(error) = self.store()
        {
            tracing::warn!("expired key overrides stay in the file for now: {error:#}");
        }
        gone
    }

    /// The next end, in seconds since 1970.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.all.values().filter_map(|kept| kept.until).min()
    }

    fn store(&self) -> Result<()> {
        let all: Vec<&KeyOverride> = self.all.values().collect();
        replace(&self.path, &serde_json::to_vec_pretty(&all)?)
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

/// A key as its file and the operator write it.
#[must_use]
pub fn digits(key: KeyId) -> String {
    translate::hash(key).to_string()
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
        let mut overrides = KeyOverrides::load(folder.path()).unwrap();
        overrides.set(KeyId(1), Some(capped(KeyId(1), Some(100)))).unwrap();
        overrides.set(KeyId(2), Some(capped(KeyId(2), None))).unwrap();
        let mut again = KeyOverrides::load(folder.path()).unwrap();
        assert_eq!((again.of(KeyId(1)), again.next_end()), (overrides.of(KeyId(1)), Some(100)));
        assert!(again.expire(99).is_empty());
        assert_eq!(again.expire(100), [capped(KeyId(1), Some(100))]);
        let left = KeyOverrides::load(folder.path()).unwrap();
        assert_eq!(left.iter().map(|(key, _)| key).collect::<Vec<_>>(), [KeyId(2)]);
    }

    #[test]
    fn what_cannot_be_kept_is_not_set() {
        let folder = tempfile::tempdir().unwrap();
        let mut overrides = KeyOverrides::load(folder.path()).unwrap();
        overrides.set(KeyId(1), Some(capped(KeyId(1), None))).unwrap();
        std::fs::remove_dir_all(folder.path()).unwrap();
        overrides.set(KeyId(2), Some(capped(KeyId(2), None))).unwrap_err();
        overrides.set(KeyId(1), None).unwrap_err();
        assert!(overrides.of(KeyId(2)).is_none() && overrides.of(KeyId(1)).is_some());
    }

    #[test]
    fn a_foreign_file_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keys.json"), "{").unwrap();
        assert!(format!("{:#}", KeyOverrides::load(folder.path()).unwrap_err()).contains("keys.json"));
    }

    #[test]
    fn the_engine_is_told_when_it_ends() {
        let now = Instant::ZERO.after(Duration::from_secs(7));
        let told = capped(KeyId(1), Some(160)).to_engine(now, 100);
        assert_eq!((told.entitlement.cap, told.until), (Some(5), Some(now.after(Duration::from_secs(60)))));
    }
}
