//! From a view of the daemon to the JSON types of the control API. Pure; ids become hexadecimal text and instants
//! become ages.

use super::api;
use super::explain::explain;
use crate::config::layers::{Effective, Origin, Settings};
use crate::daemon::journal::Entry;
use crate::daemon::settings::origin_detail;
use crate::daemon::translate;
use crate::daemon::view::View;
use crate::kernel::view::Observation;
use crate::overload::monitors::cause_names;
use governor_engine::id::{KeyId, PoolId};
use governor_engine::io::{Kind, Outcome};
use governor_engine::policy::{FairShare, Mode};
use governor_engine::snapshot::{LeaseView, MemberState, PoolView};
use governor_engine::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// `GET /v1/status`.
#[must_use]
pub fn status(view: &View, seen: &Observation, started: Instant, warnings: &[String]) -> api::Status {
    api::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: view.now.since(started).as_secs_f64(),
        epoch: u32::from(view.epoch),
        tier: seen.tier,
        degraded: seen.degraded.clone(),
        level: view.overload.level.as_str().to_owned(),
        pressure: view.overload.pressure,
        causes: cause_names(view.overload.causes),
        bypass: bypass(view),
        draining: view.draining,
        sessions: view
            .sessions
            .iter()
            .map(|session| api::Session {
                id: session.id.0,
                name: session.name.clone(),
                pid: session.peer.pid,
                uid: session.peer.uid,
                leases: session.leases,
            })
            .collect(),
        node: api::Node {
            counted: view.snapshot.node_counted,
            cap: view.node.cap,
            parked: view.snapshot.pools.iter().map(|pool| pool.parked).sum(),
            max_parked: view.node.max_parked,
        },
        pools: view
            .snapshot
            .pools
            .iter()
            .map(|pool| api::PoolSummary {
                name: pool.name.clone(),
                capacity: pool.capacity,
                in_flight: pool.in_flight,
                parked: pool.parked,
                congested: pool.congested,
            })
            .collect(),
        kernel: seen.health,
        pins: pins(seen),
        warnings: warnings.to_vec(),
    }
}

/// The bypass switch.
#[must_use]
pub fn bypass(view: &View) -> api::Bypass {
    api::Bypass {
        on: view.snapshot.bypass,
        remaining_seconds: view.bypass_remaining.and_then(|seconds| u32::try_from(seconds).ok()).map(f64::from),
    }
}

/// `GET /v1/pools`.
#[must_use]
pub fn pools(view: &View) -> Vec<api::Pool> {
    view.snapshot.pools.iter().enumerate().map(|(index, pool)| one_pool(view, index, pool)).collect()
}

fn one_pool(view: &View, index: usize, pool: &PoolView) -> api::Pool {
    let totals = &view.snapshot.totals;
    let mut shed_total = BTreeMap::new();
    for (_, reason, count) in totals.shed.iter().filter(|(of, ..)| *of == pool.pool) {
        shed_total.insert(translate::reason(*reason).to_owned(), *count);
    }
    let mut would_have = BTreeMap::new();
    for (_, reason, park, refuse) in totals.would_have.iter().filter(|(of, ..)| *of == pool.pool) {
        would_have.insert(translate::reason(*reason).to_owned(), api::WouldHave { park: *park, refuse: *refuse });
    }
    api::Pool {
        name: pool.name.clone(),
        capacity: pool.capacity,
        in_flight: pool.in_flight,
        parked: pool.parked,
        oldest_parked_seconds: pool.oldest_parked.map(|at| view.now.since(at).as_secs_f64()),
        fair_share: fair_share(pool.fair_share),
        mode: match pool.mode {
            Mode::Observe => api::Mode::Observe,
            Mode::Enforce => api::Mode::Enforce,
        },
        congested: pool.congested,
        active_keys: pool.active_keys,
        granted_total: totals.granted.get(index).copied().unwrap_or(0),
        shed_total,
        would_have,
        members: pool
            .members
            .iter()
            .map(|member| api::Member {
                name: member.name.clone(),
                slots: member.slots,
                reserve: member.reserve,
                in_flight: member.in_flight,
                state: match member.state {
                    MemberState::Up => api::MemberState::Up,
                    MemberState::Cooling { .. } => api::MemberState::Cooling,
                    MemberState::Draining => api::MemberState::Draining,
                },
                cooling_seconds: match member.state {
                    MemberState::Cooling { until } => Some(until.since(view.now).as_secs_f64()),
                    MemberState::Up | MemberState::Draining => None,
                },
            })
            .collect(),
    }
}

/// The rule of a pool.
#[must_use]
pub fn fair_share(rule: FairShare) -> api::FairShare {
    match rule {
        FairShare::Off => api::FairShare::Off,
        FairShare::EqualSplit { threshold } => api::FairShare::EqualSplit(threshold),
        FairShare::MaxMin { .. } => api::FairShare::MaxMin,
    }
}

/// `GET /v1/keys`.
#[must_use]
pub fn keys(view: &View, query: &api::KeysQuery) -> Vec<api::Key> {
    view.snapshot
        .pools
        .iter()
        .filter(|pool| query.pool.as_ref().is_none_or(|name| *name == pool.name))
        .flat_map(|pool| {
            pool.keys.iter().map(|key| api::Key {
                pool: pool.name.clone(),
                key: hex(key.key),
                label: label(view, key.key),
                in_flight: key.in_flight,
                parked: key.parked,
                share: key.share,
            })
        })
        .collect()
}

/// `GET /v1/leases`.
#[must_use]
pub fn leases(view: &View, leases: &[LeaseView], query: &api::LeasesQuery) -> Vec<api::Lease> {
    leases
        .iter()
        .map(|lease| api::Lease {
            lease: format!("{:016x}", lease.lease.0),
            pool: pool_name(view, lease.pool),
            key: lease.key.map(hex),
            label: lease.key.and_then(|key| label(view, key)),
            member: lease.member.and_then(|member| {
                let pool = view.snapshot.pools.iter().find(|pool| pool.pool == lease.pool)?;
                pool.members.iter().find(|row| row.member == member).map(|row| row.name.clone())
            }),
            kind: match lease.kind {
                Kind::Ordinary => "ordinary",
                Kind::Reattach => "reattach",
                Kind::Exempt => "exempt",
            }
            .to_owned(),
            session: lease.session.0,
            age_seconds: view.now.since(lease.granted).as_secs_f64(),
            expires_seconds: lease.expires.since(view.now).as_secs_f64(),
            idle_seconds: lease.moved.map(|at| view.now.since(at).as_secs_f64()),
        })
        .filter(|lease| query.pool.as_ref().is_none_or(|name| *name == lease.pool))
        .filter(|lease| query.idle_seconds.is_none_or(|least| lease.idle_seconds.is_some_and(|idle| idle >= least)))
        .collect()
}

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
        key: decision.key.map(hex),
        label: entry.label.clone(),
        outcome: match decision.outcome {
            Outcome::Shed => api::Outcome::Shed,
            Outcome::WouldPark => api::Outcome::WouldPark,
            Outcome::WouldRefuse => api::Outcome::WouldRefuse,
        },
        reason: translate::reason(decision.reason).to_owned(),
        origin: translate::origin(decision.origin).to_owned(),
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
pub fn change(key: &str, before: &Effective, after: &Effective) -> api::SettingChange {
    api::SettingChange {
        key: key.to_owned(),
        value: after.value.to_json(),
        origin: origin(&after.origin),
        previous: before.value.to_json(),
    }
}

fn pins(seen: &Observation) -> api::Pins {
    let counting = seen.pins.counting_since_ns.map(|since| Duration::from_nanos(seen.taken_ns.saturating_sub(since)));
    api::Pins {
        state: seen.pins.state,
        folder: seen.pins.folder.clone(),
        counting_seconds: counting.map(|counting| counting.as_secs_f64()),
        note: seen.pins.note.clone(),
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

fn pool_name(view: &View, pool: PoolId) -> String {
    view.snapshot.pools.iter().find(|row| row.pool == pool).map(|row| row.name.clone()).unwrap_or_default()
}

fn label(view: &View, key: KeyId) -> Option<String> {
    view.labels.get(&key).cloned()
}

fn hex(key: KeyId) -> String {
    translate::hash(key).to_string()
}
