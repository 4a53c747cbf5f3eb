//! One decision as it is shown.

use crate::naming;
use crate::naming::{key_or_anonymous, org_hex};
use crate::records::explain::explain;
use crate::records::journal::Entry;
use governor_api as api;
use governor_engine::io::Outcome;
use governor_engine::time::Instant;

/// `GET /v1/explain/{id}`.
#[must_use]
pub fn decision(entry: &Entry, now: Instant) -> api::Decision {
    let mut shown = numbers(entry, now);
    shown.explanation = explain(&shown);
    shown
}

/// A decision without its explanation, which is worked out from the rest.
#[must_use]
pub fn numbers(entry: &Entry, now: Instant) -> api::Decision {
    let decision = &entry.decision;
    let numbers = &decision.numbers;
    api::Decision {
        id: format!("{:016x}", decision.id.0),
        age_seconds: now.since(decision.at).as_secs_f64(),
        session: decision.session.0,
        pool: entry.pool.clone(),
        key: Some(key_or_anonymous(decision.key)),
        label: entry.label.clone(),
        org: decision.org.map(org_hex),
        class: entry.class.clone(),
        priority: Some(naming::priority_name(decision.priority).to_owned()),
        level: Some(naming::level_name(decision.level).to_owned()),
        outcome: match decision.outcome {
            Outcome::Shed => api::Outcome::Shed,
            Outcome::WouldPark => api::Outcome::WouldPark,
            Outcome::WouldRefuse => api::Outcome::WouldRefuse,
        },
        reason: naming::reason(decision.reason).to_owned(),
        origin: naming::origin(decision.origin).to_owned(),
        status: decision.status,
        retry_after_seconds: decision.retry_after.as_secs_f64(),
        waited_seconds: decision.waited.as_secs_f64(),
        numbers: api::Numbers {
            key_in_flight: numbers.key_in_flight,
            share: numbers.share,
            unit_in_flight: numbers.unit_in_flight,
            weight: numbers.weight,
            floor: numbers.floor,
            headroom: numbers.headroom,
            filled: numbers.filled,
            limit: numbers.limit,
            limited: numbers.limited,
            in_flight: numbers.in_flight,
            capacity: numbers.capacity,
            active_keys: numbers.active_keys,
            parked: numbers.parked,
            node_counted: numbers.node_counted,
            node_cap: numbers.node_cap,
        },
        explanation: String::new(),
    }
}
