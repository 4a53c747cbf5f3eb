//! What operators set for single keys, and the record of their changes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an override sets; `null` leaves a field to the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySetting {
    /// Requests on the node at most; 0 is no cap.
    #[serde(default)]
    pub cap: Option<u32>,
    /// Weight of its share.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Slots of a pool it gets whenever one is free.
    #[serde(default)]
    pub floor: Option<u32>,
    /// Every request of the key is refused.
    #[serde(default)]
    pub suspend: bool,
}

/// A field of an override, to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyField {
    /// Its cap.
    Cap,
    /// Its weight.
    Weight,
    /// Its floor.
    Floor,
    /// Its suspension.
    Suspend,
    /// The time at which all of it ends.
    End,
}

impl KeyField {
    /// Every field.
    pub const ALL: [Self; 5] = [Self::Cap, Self::Weight, Self::Floor, Self::Suspend, Self::End];

    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cap => "cap",
            Self::Weight => "weight",
            Self::Floor => "floor",
            Self::Suspend => "suspend",
            Self::End => "end",
        }
    }
}

/// Changes the override of a key. Fields that are absent or `null` stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOverrideRequest {
    /// Requests on the node at most; 0 is no cap.
    #[serde(default)]
    pub cap: Option<u32>,
    /// Weight of its share, 1 to 10,000.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Slots of a pool it gets whenever one is free.
    #[serde(default)]
    pub floor: Option<u32>,
    /// Refuse every request of the key, or no longer.
    #[serde(default)]
    pub suspend: Option<bool>,
    /// End all of it by itself after so many seconds; a first override without it has no end.
    #[serde(default)]
    pub for_seconds: Option<u64>,
    /// Fields to remove. Where nothing is left the override is taken away.
    #[serde(default)]
    pub unset: Vec<KeyField>,
    /// Why, for other operators.
    #[serde(default)]
    pub reason: Option<String>,
}

/// An override of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOverride {
    /// The keyed hash, 32 hexadecimal digits.
    pub key: String,
    /// What the proxy calls it, if it says.
    pub label: Option<String>,
    /// What is set.
    #[serde(flatten)]
    pub setting: KeySetting,
    /// Seconds until it ends by itself; `null` without end.
    pub remaining_seconds: Option<u64>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Who set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
    /// Why it is not in force: the entry in the state folder cannot be read; `null` for one that holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// An override was set or taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOverrideChange {
    /// The keyed hash, 32 hexadecimal digits.
    pub key: String,
    /// What the proxy calls it, if it says.
    pub label: Option<String>,
    /// What held before.
    pub before: Option<KeyOverride>,
    /// What holds now.
    pub after: Option<KeyOverride>,
    /// Why it may do less than it seems to; `null` when it does all.
    #[serde(default)]
    pub note: Option<String>,
}

/// Which events `GET /v1/events` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Of the last so many seconds.
    pub last_seconds: u64,
}

/// A change an operator made, or that came by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, RFC 3339.
    pub at: String,
    /// When, in seconds since 1970.
    pub at_seconds: u64,
    /// Who; `governord` where something ended by itself.
    pub by: String,
    /// What was done: `set`, `unset`, `bypass`, `key` (override set), `key-clear`, `key-expired`, `level` (of
    /// overload), `member-up`, `member-cool`, `member-drain`, `member-undrain` (orders), `member-cooling` (a cool-down
    /// began by a report), `drain` (of the node), `shed level` (the one that refuses work) or `verdict` (of a listener
    /// that feeds them).
    pub action: String,
    /// To what: a setting's or a key's name; empty for the bypass.
    pub subject: String,
    /// How it was.
    pub before: Value,
    /// How it is.
    pub after: Value,
    /// Why, where a reason was given.
    pub reason: Option<String>,
}
