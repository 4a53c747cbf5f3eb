//! Stable names and hexadecimal forms of the engine's ids, reasons and levels: the same on the wire, in metrics, records and
//! JSON.

use governor_common::wire::KeyHash;
use governor_engine::id::{KeyId, OrgId};
use governor_engine::io::{Level, Origin, Priority, Reason};
use governor_engine::time::Duration;

/// The identity that the requests of a pool share that name no key. No key's hash looks like it: those are 32 hexadecimal
/// digits.
pub const ANONYMOUS: &str = "anonymous";

/// Stable name of a reason, for the wire, metrics and JSON.
#[must_use]
pub fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::FairShare => "fair_share",
        Reason::PoolExhausted => "pool_exhausted",
        Reason::AllCooling => "all_cooling",
        Reason::NodeCap => "node_cap",
        Reason::KeyQueueFull => "key_queue_full",
        Reason::QueueFull => "queue_full",
        Reason::Overload => "overload",
        Reason::Suspended => "suspended",
        Reason::KeyCap => "key_cap",
        Reason::OrgCap => "org_cap",
        Reason::ClassCap => "class_cap",
        Reason::SubCapacity => "sub_capacity",
        Reason::Draining => "draining",
    }
}

/// Stable name of an origin.
#[must_use]
pub fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Key => "key",
        Origin::Org => "org",
        Origin::Pool => "pool",
        Origin::Node => "node",
        Origin::Upstream => "upstream",
    }
}

/// A duration in whole milliseconds, saturating.
#[must_use]
pub fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// A key as proxies know it.
#[must_use]
pub fn hash(key: KeyId) -> KeyHash {
    KeyHash(key.0.to_be_bytes())
}

/// An org as proxies know it.
#[must_use]
pub fn org_hash(org: OrgId) -> KeyHash {
    KeyHash(org.0.to_be_bytes())
}

/// Stable name of a level.
#[must_use]
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Normal => "normal",
        Level::Elevated => "elevated",
        Level::High => "high",
        Level::Overloaded => "overloaded",
    }
}

/// Stable name of a priority.
#[must_use]
pub fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Critical => "critical",
        Priority::Normal => "normal",
        Priority::Sheddable => "sheddable",
    }
}

/// An org as people and programs see it.
#[must_use]
pub fn org_hex(org: OrgId) -> String {
    org_hash(org).to_string()
}

/// A key as people and programs see it, or the identity of requests without one.
#[must_use]
pub fn key_or_anonymous(key: Option<KeyId>) -> String {
    key.map_or_else(|| ANONYMOUS.to_owned(), hex)
}

/// A key as people and programs see it.
#[must_use]
pub fn hex(key: KeyId) -> String {
    hash(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_guide_explains_every_reason() {
        let guide = include_str!("../client/src/guide.md");
        let all = [
            Reason::FairShare,
            Reason::PoolExhausted,
            Reason::AllCooling,
            Reason::NodeCap,
            Reason::KeyQueueFull,
            Reason::QueueFull,
            Reason::Overload,
            Reason::Suspended,
            Reason::KeyCap,
            Reason::OrgCap,
            Reason::ClassCap,
            Reason::SubCapacity,
            Reason::Draining,
        ];
        for reason in all.map(reason) {
            assert!(guide.contains(&format!("`{reason}`")), "{reason}");
        }
    }
}
