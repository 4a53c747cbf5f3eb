//! Orders for single keys: which key is meant, whether it can be, and everything that must know of it: the file, the
//! engine, the audit.

use crate::config::value::identity;
use crate::driver::Driver;
use crate::driver::operator::key_merge::{Merged, merged};
use crate::driver::operator::key_overrides::{KeyOverride, TooMany, digits};
use crate::driver::operator::reason;
use crate::process::clock;
use crate::records::audit::{ITSELF, event};
use crate::state::Stored;
use governor_api::{self as api, KeySetting};
use governor_engine::id::KeyId;
use governor_engine::io::Input;
use governor_engine::policy::{FairShare, Mode, PoolPolicy};
use governor_engine::time::Instant;

/// Why an order for a key is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum KeyRefused {
    /// Neither a keyed hash nor the label of a key.
    #[error("no key is called \"{name}\"")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Several keys have this label.
    #[error("{} keys are called \"{name}\"", keys.len())]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// Their keyed hashes.
        keys: Vec<String>,
    },
    /// Nothing to take away.
    #[error("key {key} has no override")]
    NotOverridden {
        /// The keyed hash.
        key: String,
    },
    /// What is asked for contradicts itself or sets nothing.
    #[error("{0}")]
    Invalid(String),
    /// Too many keys have one.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

impl Driver {
    /// Gives the engine what was set before it was made.
    pub(crate) fn restore_key_overrides(&mut self, now: Instant) {
        let wall = clock::wall_seconds();
        self.expire_key_overrides(wall);
        let kept = self.parts.key_overrides.iter().map(|(key, kept)| (key, kept.to_engine(now, wall)));
        for (key, with) in kept.collect::<Vec<_>>() {
            self.parts.engine.handle_input(Input::Override { key, with: Some(with) }, now);
        }
    }

    /// Changes (`Some`) or takes away (`None`) the override of a key, by its hash or label.
    pub(crate) fn order_key(
        &mut self,
        name: &str,
        order: Option<&api::KeyOverrideRequest>,
        by: &str,
        now: Instant,
    ) -> Result<(api::KeyOverrideChange, Stored), KeyRefused> {
        let key = self.key_called(name)?;
        let wall = clock::wall_seconds();
        let holds = |kept: &&KeyOverride| kept.until.is_none_or(|until| until > wall);
        let before = self.parts.key_overrides.of(key).filter(holds).cloned();
        let label = self.labels.of(key).map(str::to_owned).or_else(|| before.as_ref()?.label.clone());
        let with = order.map(|order| made(key, label.clone(), before.as_ref(), order, by, wall)).transpose()?.flatten();
        if let Some(with) = &with {
            with.to_engine(now, wall).check().map_err(|error| KeyRefused::Invalid(error.to_string()))?;
        } else if before.is_none() {
            return Err(KeyRefused::NotOverridden { key: digits(key) });
        }
        let stored = self.parts.key_overrides.set(key, with.clone())?;
        let told = with.as_ref().map(|with| with.to_engine(now, wall));
        self.parts.engine.handle_input(Input::Override { key, with: told }, now);
        let change = api::KeyOverrideChange {
            key: digits(key),
            label,
            before: before.as_ref().map(|kept| shown(kept, wall)),
            after: with.as_ref().map(|kept| shown(kept, wall)),
            note: with.as_ref().and_then(|with| self.unheeded(with.setting)),
        };
        let action = if with.is_some() { "key" } else { "key-clear" };
        let reason = with.and_then(|with| with.reason);
        self.parts.audit.record(&event(by, action, &digits(key), &change.before, &change.after, reason));
        Ok((change, stored))
    }

    /// Every override that holds.
    pub(crate) fn list_key_overrides(&self) -> Vec<api::KeyOverride> {
        let wall = clock::wall_seconds();
        let kept = self.parts.key_overrides.iter();
        let valid = kept.filter(|(_, kept)| kept.until.is_none_or(|until| until > wall));
        let invalid = self.parts.key_overrides.invalid().iter();
        valid.map(|(_, kept)| shown(kept, wall)).chain(invalid.map(|(entry, why)| unusable(entry, why))).collect()
    }

    /// The engine ends overrides by its own timer; here they leave the file and enter the audit.
    pub(crate) fn expire_key_overrides(&mut self, wall: u64) {
        for gone in self.parts.key_overrides.expire(wall) {
            let before = Some(shown(&gone, wall));
            let after = None::<api::KeyOverride>;
            self.parts.audit.record(&event(ITSELF, "key-expired", &gone.key, &before, &after, gone.reason));
        }
    }

    /// What of a setting changes nothing as the daemon is configured.
    fn unheeded(&self, setting: KeySetting) -> Option<String> {
        let policy = &self.parts.policy;
        let shares =
            |pool: &PoolPolicy| matches!(pool.fair_share, FairShare::MaxMin { .. }) && pool.mode == Mode::Enforce;
        let mut notes = Vec::new();
        if setting.cap.is_some_and(|cap| cap > 0) && policy.node.caps_mode == Mode::Observe {
            notes.push(
                "its cap is only recorded while node.caps_mode is observe; \
                 governorctl set node.caps_mode enforce makes every cap of the node count",
            );
        }
        if (setting.weight.is_some() || setting.floor.is_some()) && !policy.pools.iter().any(shares) {
            notes.push(
                "weight and floor change no share while no pool enforces max-min; governorctl set pools.NAME.fair_share \
                 max-min and governorctl set pools.NAME.fair_share_mode enforce make them count",
            );
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn key_called(&self, name: &str) -> Result<KeyId, KeyRefused> {
        if let Some(hash) = identity(name) {
            return Ok(KeyId(hash));
        }
        match self.labels.called(name)[..] {
            [] => Err(KeyRefused::Unknown { name: name.to_owned() }),
            [key] => Ok(key),
            ref several => Err(KeyRefused::Ambiguous {
                name: name.to_owned(),
                keys: several.iter().map(|key| digits(*key)).collect(),
            }),
        }
    }
}

fn made(
    key: KeyId,
    label: Option<String>,
    before: Option<&KeyOverride>,
    order: &api::KeyOverrideRequest,
    by: &str,
    wall: u64,
) -> Result<Option<KeyOverride>, KeyRefused> {
    let Merged { setting, until, reason } = merged(before, order, wall).map_err(KeyRefused::Invalid)?;
    if setting == KeySetting::default() {
        return match before {
            Some(_) => Ok(None),
            None => {
                Err(KeyRefused::Invalid("an override sets a cap, a weight, a floor, or suspends the key".to_owned()))
            }
        };
    }
    if let Some(why) = reason::fault(reason.as_deref()) {
        return Err(KeyRefused::Invalid(why));
    }
    Ok(Some(KeyOverride {
        key: digits(key),
        label,
        setting,
        until,
        reason,
        set_by: by.to_owned(),
        set_at: clock::wall_time(),
    }))
}

/// An entry of the file that is not in force.
fn unusable(entry: &serde_json::Value, why: &str) -> api::KeyOverride {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    api::KeyOverride {
        key: text("key"),
        label: entry["label"].as_str().map(str::to_owned),
        setting: KeySetting::default(),
        remaining_seconds: None,
        reason: entry["reason"].as_str().map(str::to_owned),
        set_by: text("set_by"),
        set_at: text("set_at"),
        invalid: Some(why.to_owned()),
    }
}

fn shown(kept: &KeyOverride, wall: u64) -> api::KeyOverride {
    api::KeyOverride {
        key: kept.key.clone(),
        label: kept.label.clone(),
        setting: kept.setting,
        remaining_seconds: kept.until.map(|until| until.saturating_sub(wall)),
        reason: kept.reason.clone(),
        set_by: kept.set_by.clone(),
        set_at: kept.set_at.clone(),
        invalid: None,
    }
}
