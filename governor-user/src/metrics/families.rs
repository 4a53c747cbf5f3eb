//! Every metric with its meaning, built anew at each scrape so that series of what is gone disappear. Names are
//! `governor_<noun>[_unit]`, units are seconds and 0–1 ratios. A value that is not known is absent, not 0.

use super::Recorder;
use crate::daemon::translate;
use crate::daemon::view::View;
use crate::kernel::view::{ListenerView, Observation};
use governor_common::wire::reply::Level;
use governor_engine::io::Reason;
use governor_engine::snapshot::{MemberState, PoolView};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Keys with a series of their own per pool; the rest are summed as `other`.
const TOP_KEYS: usize = 10;

/// Listeners and cgroups with series of their own; what does not fit is counted in `governor_series_omitted`.
const MOST_LISTENERS: usize = 500;
const MOST_CGROUPS: usize = 200;

type Labels = Vec<(&'static str, String)>;
type Row<T> = (Labels, T);

/// All metrics as OpenMetrics text.
///
/// # Errors
/// A string cannot be written to, which does not happen.
pub fn render(view: &View, seen: &Observation, recorder: &Recorder) -> Result<String, std::fmt::Error> {
    let mut page = Page(Registry::with_prefix("governor"));
    node(&mut page, view, recorder);
    for_pools(&mut page, view);
    leases(&mut page, view);
    listeners(&mut page, seen);
    kernel(&mut page, seen);
    let mut text = String::new();
    encode(&mut text, &page.0)?;
    Ok(text)
}

fn node(page: &mut Page, view: &View, recorder: &Recorder) {
    let one = |value: f64| vec![(Vec::new(), value)];
    let snapshot = &view.snapshot;
    page.gauge("in_flight", "Counted requests with a slot, all pools", one(in_flight(view).into()));
    page.gauge("parked", "Parked requests, all pools", one(parked(view).into()));
    page.gauge("node_cap", "Counted requests, granted or parked, at most; 0 is no cap", one(view.node.cap.into()));
    page.gauge("sessions", "Proxy sessions", one(f64::from(u32::try_from(view.sessions.len()).unwrap_or(u32::MAX))));
    page.gauge("bypass", "1 while every request passes at once", one(u8::from(snapshot.bypass).into()));
    page.gauge("draining", "1 while a stop waits for leases", one(u8::from(view.draining).into()));
    page.gauge("pressure_ratio", "Overload pressure, 0 to 1", one(f64::from(view.overload.pressure) / 1000.0));
    let level = match view.overload.level {
        Level::Normal => 0.0,
        Level::Elevated => 1.0,
        Level::High => 2.0,
        Level::Overloaded => 3.0,
    };
    page.gauge("overload_level", "0 normal, 1 elevated, 2 high, 3 overloaded", one(level));
    page.counter("bypassed", "Requests granted while bypass was on", vec![(Vec::new(), snapshot.totals.bypassed)]);
    page.counter("exempt", "Exempt requests let pass", vec![(Vec::new(), snapshot.exempt_total)]);
    page.counter(
        "rejected",
        "Requests that can never be valid",
        vec![(Vec::new(), snapshot.totals.rejected + recorder.rejected.get())],
    );
    page.0.register("park_wait_seconds", "Time from asking to grant, 0 when at once", recorder.waits.clone());
}

fn for_pools(page: &mut Page, view: &View) {
    let pools = &view.snapshot.pools;
    let totals = &view.snapshot.totals;
    let per_pool = |value: &dyn Fn(&PoolView) -> f64| -> Vec<Row<f64>> {
        pools.iter().map(|pool| (vec![("pool", pool.name.clone())], value(pool))).collect()
    };
    page.gauge("pool_capacity", "Ordinary slots of members that count now", per_pool(&|pool| pool.capacity.into()));
    page.gauge("pool_in_flight", "Slots held, all members", per_pool(&|pool| pool.in_flight.into()));
    page.gauge("pool_parked", "Parked requests", per_pool(&|pool| pool.parked.into()));
    page.gauge("pool_active_keys", "Keys with a slot", per_pool(&|pool| pool.active_keys.into()));
    page.gauge("pool_congested", "1 at or over the threshold", per_pool(&|pool| u8::from(pool.congested).into()));
    page.gauge(
        "pool_oldest_parked_seconds",
        "Age of the oldest parked request; absent when none is parked",
        pools
            .iter()
            .filter_map(|pool| {
                let age = view.now.since(pool.oldest_parked?).as_secs_f64();
                Some((vec![("pool", pool.name.clone())], age))
            })
            .collect(),
    );
    let of_pool = |counts: &[u64]| -> Vec<Row<u64>> {
        pools.iter().zip(counts).map(|(pool, count)| (vec![("pool", pool.name.clone())], *count)).collect()
    };
    page.counter("granted", "Requests granted", of_pool(&totals.granted));
    page.counter("parks", "Requests parked at least once", of_pool(&totals.parked));
    let name = |id| pools.iter().find(|pool| pool.pool == id).map(|pool| pool.name.clone()).unwrap_or_default();
    page.counter(
        "shed",
        "Refusals; scope is the level that refused",
        totals.shed.iter().map(|(pool, reason, count)| (shed_labels(name(*pool), *reason), *count)).collect(),
    );
    let mut would = Vec::new();
    for (pool, reason, park, refuse) in &totals.would_have {
        for (action, count) in [("park", park), ("refuse", refuse)] {
            let mut labels = shed_labels(name(*pool), *reason);
            labels.push(("action", action.to_owned()));
            would.push((labels, *count));
        }
    }
    page.counter("would_have", "Observe mode: what enforce would have done to requests it let pass", would);
    members(page, pools);
    page.gauge("key_in_flight", "Slots held by the keys that hold most, the rest as \"other\"", keys(pools));
}

fn members(page: &mut Page, pools: &[PoolView]) {
    let rows = |value: &dyn Fn(&governor_engine::snapshot::MemberView) -> f64| -> Vec<Row<f64>> {
        pools
            .iter()
            .flat_map(|pool| {
                pool.members
                    .iter()
                    .map(|member| (vec![("pool", pool.name.clone()), ("member", member.name.clone())], value(member)))
            })
            .collect()
    };
    page.gauge("member_in_flight", "Slots held on the member", rows(&|member| member.in_flight.into()));
    page.gauge("member_slots", "Slots of the member, reserve included", rows(&|member| member.slots.into()));
    page.gauge("member_up", "1 if it takes requests", rows(&|member| u8::from(member.state == MemberState::Up).into()));
}

fn keys(pools: &[PoolView]) -> Vec<Row<f64>> {
    let mut rows = Vec::new();
    for pool in pools {
        let mut keys: Vec<_> = pool.keys.iter().filter(|key| key.in_flight > 0).collect();
        keys.sort_by_key(|key| (core::cmp::Reverse(key.in_flight), key.key));
        let (top, rest) = keys.split_at(keys.len().min(TOP_KEYS));
        for key in top {
            // The first half of the keyed hash tells keys apart and says nothing about them.
            let name: String = translate::hash(key.key).to_string().chars().take(16).collect();
            rows.push((vec![("pool", pool.name.clone()), ("key", name)], f64::from(key.in_flight)));
        }
        let other: u32 = rest.iter().map(|key| key.in_flight).sum();
        rows.push((vec![("pool", pool.name.clone()), ("key", "other".to_owned())], f64::from(other)));
    }
    rows
}

fn leases(page: &mut Page, view: &View) {
    let totals = &view.snapshot.totals;
    let causes = [
        ("released", totals.released),
        ("expired", totals.expired),
        ("session_gone", totals.session_gone),
        ("revoked", totals.revoked),
    ];
    let rows = causes.map(|(cause, count)| (vec![("cause", cause.to_owned())], count));
    page.counter("leases_ended", "Leases ended, by cause", rows.to_vec());
    page.counter(
        "lease_unknown",
        "Releases and renewals of leases that were not there",
        vec![(Vec::new(), totals.unknown)],
    );
}

fn listeners(page: &mut Page, seen: &Observation) {
    let shown = &seen.listeners[..seen.listeners.len().min(MOST_LISTENERS)];
    let gauge = |value: &dyn Fn(&ListenerView) -> Option<f64>| -> Vec<Row<f64>> {
        shown.iter().filter_map(|listener| Some((listener_labels(listener), value(listener)?))).collect()
    };
    let counter = |value: &dyn Fn(&ListenerView) -> Option<u64>| -> Vec<Row<u64>> {
        shown.iter().filter_map(|listener| Some((listener_labels(listener), value(listener)?))).collect()
    };
    page.gauge("listener_depth", "Connections in the accept queue", gauge(&|row| Some(row.depth.into())));
    page.gauge("listener_backlog", "Limit of the accept queue", gauge(&|row| row.backlog.map(Into::into)));
    page.gauge("listener_depth_peak", "Deepest since first seen", gauge(&|row| row.depth_peak.map(Into::into)));
    page.counter("listener_enqueued", "Connections that entered the accept queue", counter(&|row| row.enqueued_total));
    page.counter("listener_accepted", "Connections that left it by accept", counter(&|row| row.accepted_total));
    page.counter(
        "listener_overflows",
        "Packets refused because the accept queue was full; one client may count several times",
        counter(&|row| row.overflows_total),
    );
    page.counter("listener_drops", "Any kernel discard at the listener", counter(&|row| row.drops_total));
    let cgroups = seen.cgroups.as_deref().unwrap_or_default();
    let mut rows = Vec::new();
    for cgroup in cgroups.iter().take(MOST_CGROUPS) {
        let path = cgroup.path.clone().unwrap_or_else(|| format!("id:{}", cgroup.id));
        for (direction, open) in [("inbound", cgroup.inbound), ("outbound", cgroup.outbound)] {
            let labels = vec![("cgroup", path.clone()), ("direction", direction.to_owned())];
            rows.push((labels, f64::from(u32::try_from(open).unwrap_or(u32::MAX))));
        }
    }
    page.gauge("cgroup_connections", "Open connections of a cgroup", rows);
    let omitted = |all: usize, most: usize| f64::from(u32::try_from(all.saturating_sub(most)).unwrap_or(u32::MAX));
    page.gauge(
        "series_omitted",
        "Listeners and cgroups without series because there are too many",
        vec![
            (vec![("of", "listeners".to_owned())], omitted(seen.listeners.len(), MOST_LISTENERS)),
            (vec![("of", "cgroups".to_owned())], omitted(cgroups.len(), MOST_CGROUPS)),
        ],
    );
}

fn kernel(page: &mut Page, seen: &Observation) {
    let health = &seen.health;
    let tier = vec![("tier", seen.tier.as_str().to_owned())];
    page.gauge("kernel_tier", "1 for the tier in use", vec![(tier, 1.0)]);
    page.gauge("degraded", "Reasons why less is observed than asked for", {
        let reasons = u32::try_from(seen.degraded.len()).unwrap_or(u32::MAX);
        vec![(Vec::new(), f64::from(reasons))]
    });
    for (name, help, value) in [
        ("kernel_lost_events", "Ring-buffer events lost, counted in the kernel", health.lost_events),
        ("kernel_untracked", "Sockets no map entry could be made for", health.untracked),
        ("kernel_drift", "Differences repaired by audits; must stay 0", health.drift),
        ("kernel_audits", "Audits completed", health.audits),
        ("kernel_audits_failed", "Audits that failed or were interrupted", health.audits_failed),
    ] {
        page.counter(name, help, vec![(Vec::new(), value)]);
    }
}

fn in_flight(view: &View) -> u32 {
    view.snapshot.pools.iter().map(|pool| pool.in_flight).sum()
}

fn parked(view: &View) -> u32 {
    view.snapshot.pools.iter().map(|pool| pool.parked).sum()
}

fn shed_labels(pool: String, reason: Reason) -> Labels {
    let scope = match reason {
        Reason::FairShare | Reason::KeyQueueFull => "key",
        Reason::PoolExhausted | Reason::QueueFull => "pool",
        Reason::AllCooling => "upstream",
        Reason::NodeCap => "node",
    };
    vec![("pool", pool), ("reason", translate::reason(reason).to_owned()), ("scope", scope.to_owned())]
}

fn listener_labels(listener: &ListenerView) -> Labels {
    vec![
        ("netns", listener.netns.to_string()),
        ("address", listener.address.to_string()),
        ("port", listener.port.to_string()),
        // Sockets of one SO_REUSEPORT group share everything but this.
        ("cookie", listener.cookie.map(|cookie| cookie.to_string()).unwrap_or_default()),
    ]
}

/// One exposition being written.
struct Page(Registry);

impl Page {
    fn gauge(&mut self, name: &str, help: &str, rows: Vec<Row<f64>>) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, help, family);
    }

    fn counter(&mut self, name: &str, help: &str, rows: Vec<Row<u64>>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }
}
