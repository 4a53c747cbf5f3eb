//! Settings as they are shown: what each is and who said so.

use crate::config::layers::{Effective, Origin};
use crate::node::settings::{Changed, Settings, Shown, origin_detail};
use governor_api as api;

/// `GET /v1/config`.
#[must_use]
pub fn config(settings: &Settings) -> Vec<api::ConfigEntry> {
    settings.shown().map(entry).collect()
}

fn entry(shown: Shown<'_>) -> api::ConfigEntry {
    let pending = shown.pending.map(|pending| api::PendingValue {
        value: value(pending),
        origin: pending.map_or(api::Origin::BuiltIn, |pending| origin(&pending.origin)),
        detail: pending.and_then(|pending| origin_detail(&pending.origin)),
    });
    let effective = shown.effective;
    api::ConfigEntry {
        key: shown.path.join("."),
        value: value(effective),
        origin: effective.map_or(api::Origin::BuiltIn, |effective| origin(&effective.origin)),
        detail: effective.and_then(|effective| origin_detail(&effective.origin)),
        pending,
    }
}

/// The keys whose newest value waits for a restart.
#[must_use]
pub fn pending(settings: &Settings) -> Vec<String> {
    settings.shown().filter(|shown| shown.pending.is_some()).map(|shown| shown.path.join(".")).collect()
}

/// One line of an answer to a reload.
#[must_use]
pub fn reload_change(changed: &Changed) -> api::ReloadChange {
    api::ReloadChange {
        key: changed.path.join("."),
        before: value(changed.before.as_ref()),
        after: value(changed.after.as_ref()),
        pending: changed.is_pending,
    }
}

fn value(effective: Option<&Effective>) -> serde_json::Value {
    effective.map(|effective| effective.value.to_json()).unwrap_or_default()
}

/// Answer to a change of a setting.
#[must_use]
pub fn change(key: &str, before: Option<&Effective>, after: Option<&Effective>) -> api::SettingChange {
    api::SettingChange {
        key: key.to_owned(),
        value: value(after),
        origin: after.map_or(api::Origin::BuiltIn, |after| origin(&after.origin)),
        previous: value(before),
    }
}

fn origin(origin: &Origin) -> api::Origin {
    match origin {
        Origin::BuiltIn => api::Origin::BuiltIn,
        Origin::File { .. } => api::Origin::File,
        Origin::Environment { .. } => api::Origin::Environment,
        Origin::Override { .. } => api::Origin::Override,
    }
}
