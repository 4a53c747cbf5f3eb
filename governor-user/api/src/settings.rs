//! Settings and the run-time orders that change them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One effective setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// Dotted key, e.g. `pools.chat.fair_share`.
    pub key: String,
    /// Its value, as the file would write it.
    pub value: Value,
    /// Which layer it comes from.
    pub origin: Origin,
    /// Where in that layer: file and line, variable name, or when it was set.
    pub detail: Option<String>,
    /// What a restart puts in force instead; absent where that is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingValue>,
}

/// A value that waits for a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingValue {
    /// As the file would write it; `null`: it will have no value.
    pub value: Value,
    /// Which layer it comes from.
    pub origin: Origin,
    /// Where in that layer.
    pub detail: Option<String>,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reload {
    /// The settings with another value than before, by key.
    pub changes: Vec<ReloadChange>,
    /// What is odd but usable, one line each.
    pub warnings: Vec<String>,
}

/// One setting with another value than before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReloadChange {
    /// Dotted key.
    pub key: String,
    /// As it was; `null` where it had no value.
    pub before: Value,
    /// As it is now.
    pub after: Value,
    /// It waits for a restart.
    pub pending: bool,
}

/// A reload that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadFailure {
    /// What was wrong.
    pub error: String,
    /// When, RFC 3339.
    pub at: String,
}

/// Layer of the configuration; later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The default.
    BuiltIn,
    /// The configuration file.
    File,
    /// An environment variable of the daemon.
    Environment,
    /// Set at run time.
    Override,
}

/// Asks for a run-time override.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The value, as the file would write it.
    pub value: Value,
}

/// A run-time override was set or removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Dotted key.
    pub key: String,
    /// The value in effect now; `null` where it has none.
    pub value: Value,
    /// Where it comes from now.
    pub origin: Origin,
    /// The value in effect before; `null` where it had none.
    pub previous: Value,
}

/// Asks to switch the bypass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BypassRequest {
    /// On or off.
    pub on: bool,
    /// Switch off by itself after so many seconds; `null` or absent means without end.
    #[serde(default)]
    pub for_seconds: Option<u64>,
}
