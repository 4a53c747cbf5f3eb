//! Settings as they are shown: what each is and who said so.

use crate::config::layers::{Effective, Origin, Settings};
use crate::control::api;
use crate::daemon::settings::origin_detail;

/// `GET /v1/config`.
#[must_use]
pub fn config(settings: &Settings) -> Vec<api::ConfigEntry> {
    settings
        .iter()
        .map(|(path, effective)| api::ConfigEntry {
            key: path.join("."),
            value: effective.value.to_json(),
            origin: origin(&effective.origin),
            detail: origin_detail(&effective.origin),
        })
        .collect()
}

/// Answer to a change of a setting.
#[must_use]
pub fn change(key: &str, before: Option<&Effective>, after: Option<&Effective>) -> api::SettingChange {
    let value =
        |effective: Option<&Effective>| effective.map(|effective| effective.value.to_json()).unwrap_or_default();
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
