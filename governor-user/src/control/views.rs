//! From a view of the daemon to the JSON types of the control API. Pure; ids become hexadecimal text and instants
//! become ages.

pub use crate::node::setting_views::{change, config, pending, reload_change};
pub use crate::records::decision::{decision, numbers};

use super::verdicts;
use crate::config::Names;
use crate::driver::view::View;
use crate::findings;
use crate::findings::Facts;
use crate::naming::{self, key_or_anonymous, org_hex};
use crate::node::settings::Settings;
use crate::state::StateDir;
use governor_api as api;
use governor_engine::id::{ClassId, KeyId, OrgId, PoolId};
use governor_engine::io::Kind;
use governor_engine::policy::{FairShare, Mode};
use governor_engine::snapshot::{LeaseView, MemberState, PoolView};
use governor_engine::time::Instant;
use governor_health::listeners::evidence::PoolWork;
use governor_health::pressure::monitors::cause_names;
use governor_observation::Observation;
use std::collections::BTreeMap;
use std::time::Duration;

/// `GET /v1/status`.
#[must_use]
pub fn status(facts: Facts<'_>, started: Instant, settings: &Settings) -> api::Status {
    let Facts { view, seen, report, .. } = facts;
    let of_last_minute =
        |name: &str, count: fn(&PoolWork) -> u64| report.pools.iter().find(|pool| pool.name == name).map_or(0, count);
    api::Status {
        findings: findings::findings(facts),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: view.now.since(started).as_secs_f64(),
        epoch: u32::from(view.epoch),
        tier: seen.tier,
        degraded: seen.degraded.clone(),
        level: view.overload.level.as_str().to_owned(),
        shed_mode: mode(view.node.shed_mode),
        shed_level: Some(naming::level_name(view.snapshot.level).to_owned()),
        pressure: view.overload.pressure,
        causes: cause_names(view.overload.causes),
        monitors: verdicts::monitors(report),
        troubled: verdicts::troubled(report),
        bypass: bypass(view),
        state: facts.state.clone(),
        overrides: api::Overrides { settings: settings.overrides(), keys: view.snapshot.overrides.len() },
        reload_failure: settings
            .reload_failure()
            .map(|failure| api::ReloadFailure { error: failure.error.clone(), at: failure.at.clone() }),
        pending: pending(settings),
        draining: view.draining,
        drain: drain(view),
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
        awaited: view.awaited,
        lost: lost(view),
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
                members: member_counts(pool),
                fair_share: fair_share(pool.fair_share),
                mode: mode(pool.mode),
                granted_last_minute: of_last_minute(&pool.name, |work| work.granted_last_minute),
                refused_last_minute: of_last_minute(&pool.name, |work| work.refused_last_minute),
            })
            .collect(),
        kernel: seen.health,
        pins: pins(seen),
        warnings: settings.loaded().warnings.clone(),
    }
}

fn member_counts(pool: &PoolView) -> api::MemberCounts {
    let mut counts = api::MemberCounts::default();
    for member in &pool.members {
        *match member.state {
            MemberState::Up => &mut counts.up,
            MemberState::Cooling { .. } => &mut counts.cooling,
            MemberState::Draining => &mut counts.draining,
            MemberState::Off => &mut counts.off,
        } += 1;
    }
    counts
}

/// The places in the proxies where most leases are lost come first.
fn lost(view: &View) -> Vec<api::LostLeases> {
    let all = view.snapshot.totals.lost.iter().map(|(site, expired, reclaimed)| api::LostLeases {
        site: view.sites.get(site).cloned(),
        expired: *expired,
        reclaimed: *reclaimed,
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|lost| std::cmp::Reverse(lost.expired + lost.reclaimed));
    all
}

/// The bypass switch.
#[must_use]
pub fn bypass(view: &View) -> api::Bypass {
    api::Bypass {
        on: view.snapshot.bypass,
        remaining_seconds: view.bypass_remaining.and_then(|seconds| u32::try_from(seconds).ok()).map(f64::from),
    }
}

/// The drain of the node, without the leases that are left by name.
#[must_use]
pub fn drain(view: &View) -> api::Drain {
    let seconds = |seconds: u64| u32::try_from(seconds).ok().map(f64::from);
    api::Drain {
        on: view.drain.is_some(),
        since_seconds: view.drain.as_ref().and_then(|(_, since)| seconds(*since)),
        by: view.drain.as_ref().map(|(order, _)| order.by.clone()),
        reason: view.drain.as_ref().and_then(|(order, _)| order.reason.clone()),
        leases: view.held.0,
        suspended: view.held.1,
        longest: Vec::new(),
    }
}

/// What of the state folder is in trouble.
#[must_use]
pub fn state_health(state: &StateDir) -> api::StateHealth {
    let unstored = state.unstored().into_iter().map(|one| api::UnstoredFile {
        file: one.name.to_owned(),
        error: one.why,
        seconds: one.age.as_secs_f64(),
    });
    let damaged =
        state.damaged().into_iter().map(|one| api::DamagedFile { file: one.name, why: one.why, aside: one.aside });
    api::StateHealth { unstored: unstored.collect(), damaged: damaged.collect() }
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
        shed_total.insert(naming::reason(*reason).to_owned(), *count);
    }
    let mut would_have = BTreeMap::new();
    for (_, reason, park, refuse) in totals.would_have.iter().filter(|(of, ..)| *of == pool.pool) {
        would_have.insert(naming::reason(*reason).to_owned(), api::WouldHave { park: *park, refuse: *refuse });
    }
    api::Pool {
        name: pool.name.clone(),
        capacity: pool.capacity,
        unlimited: pool.unlimited,
        in_flight: pool.in_flight,
        parked: pool.parked,
        oldest_parked_seconds: pool.oldest_parked.map(|at| view.now.since(at).as_secs_f64()),
        fair_share: fair_share(pool.fair_share),
        mode: mode(pool.mode),
        congested: pool.congested,
        active_keys: pool.active_keys,
        headroom: matches!(pool.fair_share, FairShare::MaxMin { .. }).then_some(pool.headroom),
        oversubscribed: pool.oversubscribed,
        granted_total: totals.granted.get(index).copied().unwrap_or(0),
        shed_total,
        would_have,
        traffic: pool
            .traffic
            .iter()
            .map(|kind| api::Traffic { name: kind.name.clone(), slots: bound(kind.slots), in_flight: kind.in_flight })
            .collect(),
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
                    MemberState::Off => api::MemberState::Off,
                    MemberState::Draining => api::MemberState::Draining,
                },
                cooling_seconds: match member.state {
                    MemberState::Cooling { until } => Some(until.since(view.now).as_secs_f64()),
                    MemberState::Up | MemberState::Off | MemberState::Draining => None,
                },
            })
            .collect(),
    }
}

fn mode(mode: Mode) -> api::Mode {
    match mode {
        Mode::Observe => api::Mode::Observe,
        Mode::Enforce => api::Mode::Enforce,
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
pub fn keys(view: &View, names: &Names, query: &api::KeysQuery) -> Vec<api::Key> {
    let overrides: BTreeMap<KeyId, bool> =
        view.snapshot.overrides.iter().map(|(key, with)| (*key, with.suspend)).collect();
    view.snapshot
        .pools
        .iter()
        .filter(|pool| query.pool.as_ref().is_none_or(|name| *name == pool.name))
        .flat_map(|pool| {
            pool.keys.iter().map(|key| api::Key {
                pool: pool.name.clone(),
                key: key_or_anonymous(key.key),
                label: key.key.and_then(|key| label(view, key).or_else(|| names.keys.get(&key).cloned())),
                org: key.org.map(org_hex),
                org_name: key.org.and_then(|org| names.orgs.get(&org).cloned()),
                in_flight: key.in_flight,
                parked: key.parked,
                share: key.share,
                weight: key.weight,
                floor: key.floor,
                cap: bound(key.cap),
                overridden: key.key.is_some_and(|key| overrides.contains_key(&key)),
                suspended: key.key.is_some_and(|key| overrides.get(&key) == Some(&true)),
            })
        })
        .collect()
}

/// `GET /v1/leases`.
#[must_use]
pub fn leases(view: &View, names: &Names, leases: &[LeaseView], query: &api::LeasesQuery) -> Vec<api::Lease> {
    leases
        .iter()
        .map(|lease| api::Lease {
            lease: format!("{:016x}", lease.lease.0),
            pool: pool_name(view, lease.pool),
            key: Some(key_or_anonymous(lease.key)),
            label: lease.key.and_then(|key| label(view, key)),
            member: lease.member.and_then(|member| {
                let pool = view.snapshot.pools.iter().find(|pool| pool.pool == lease.pool)?;
                pool.members.iter().find(|row| row.member == member).map(|row| row.name.clone())
            }),
            org: lease.org.map(org_hex),
            org_name: lease.org.and_then(|org| names.orgs.get(&org).cloned()),
            traffic: lease.traffic.and_then(|traffic| {
                let pool = view.snapshot.pools.iter().find(|pool| pool.pool == lease.pool)?;
                pool.traffic.iter().find(|kind| kind.traffic == traffic).map(|kind| kind.name.clone())
            }),
            priority: naming::priority_name(lease.priority).to_owned(),
            suspended: lease.suspended,
            client_gone: lease.client_gone,
            site: view.sites.get(&lease.site).cloned(),
            kind: match lease.kind {
                Kind::Ordinary if lease.child => "child",
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

/// `GET /v1/orgs`.
#[must_use]
pub fn orgs(view: &View, names: &Names) -> Vec<api::Org> {
    let class = |id: &ClassId| view.classes.get(id).cloned();
    let in_pools = |org: OrgId| {
        let rows = view.snapshot.pools.iter().flat_map(|pool| pool.orgs.iter().map(move |row| (pool, row)));
        rows.filter(|(_, row)| row.org == org)
            .map(|(pool, row)| api::OrgPool {
                pool: pool.name.clone(),
                in_flight: row.in_flight,
                parked: row.parked,
                share: row.share,
                weight: row.weight,
                floor: row.floor,
            })
            .collect()
    };
    view.snapshot
        .orgs
        .iter()
        .map(|org| api::Org {
            org: org_hex(org.org),
            name: names.orgs.get(&org.org).cloned(),
            class: org.class.as_ref().and_then(class),
            tier: org.tier.and_then(|(tier, _)| tier).as_ref().and_then(class),
            tier_remaining_seconds: org.tier.map(|(_, until)| until.since(view.now).as_secs_f64()),
            counted: org.counted,
            cap: bound(org.cap),
            pools: in_pools(org.org),
        })
        .collect()
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

fn pool_name(view: &View, pool: PoolId) -> String {
    view.snapshot.pools.iter().find(|row| row.pool == pool).map(|row| row.name.clone()).unwrap_or_default()
}

fn label(view: &View, key: KeyId) -> Option<String> {
    view.labels.get(&key).cloned()
}

/// A limit, where 0 stands for none.
fn bound(limit: u32) -> Option<u32> {
    (limit > 0).then_some(limit)
}
