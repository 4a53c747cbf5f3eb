//! Every metric with its meaning, built anew at each scrape so that series of what is gone disappear. Names are
//! `governor_<noun>[_unit]`, units are seconds and 0–1 ratios. A value that is not known is absent, not 0.

use super::kernel;
use super::negotiate::TextFormat;
use super::overload;
use super::page::{Labels, Page, Row};
use crate::driver::view::View;
use crate::naming;
use crate::recorder::Recorder;
use crate::records::ring::RingHealth;
use governor_common::wire::reply::Level;
use governor_engine::io::Reason;
use governor_engine::snapshot::{MemberState, PoolView};
use governor_health::Report;
use governor_observation::Observation;
use std::sync::atomic::Ordering;

/// Keys, and orgs, with a series of their own per pool; the rest are summed as `other`.
const TOP_KEYS: usize = 10;

/// What is shown, all of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The engine and the sessions.
    pub view: &'a View,
    /// What the kernel shows.
    pub seen: &'a Observation,
    /// What that came to.
    pub report: &'a Report,
    /// What only the driver counts.
    pub recorder: &'a Recorder,
}

/// All metrics as text.
///
/// # Errors
/// A string cannot be written to, which does not happen.
pub fn render(shown: Shown<'_>, format: TextFormat) -> Result<String, std::fmt::Error> {
    let page = page(shown);
    match format {
        TextFormat::Prometheus => page.prometheus_text(),
        TextFormat::OpenMetrics => page.text(),
    }
}

/// The same as delimited protobuf, with native histograms.
///
/// # Errors
/// As [`render`].
#[cfg(feature = "native-histograms")]
pub(super) fn render_protobuf(
    shown: Shown<'_>,
) -> Result<Vec<u8>, prometheus_client::encoding::prometheus_protobuf::EncodeError> {
    page(shown).protobuf()
}

fn page(Shown { view, seen, report, recorder }: Shown<'_>) -> Page {
    let mut page = Page::new();
    node(&mut page, view, recorder);
    for_pools(&mut page, view);
    light_refusals(&mut page, recorder);
    leases(&mut page, view);
    policy(&mut page, view);
    let tuner = recorder.tuner_figures();
    records(&mut page, view, &tuner.journal);
    super::tuner::write(&mut page, &tuner);
    kernel::write(&mut page, seen);
    overload::write(&mut page, report);
    page
}

fn records(page: &mut Page, view: &View, tuner: &RingHealth) {
    let kept: Vec<(&str, &RingHealth)> =
        view.records.iter().map(|(kind, health)| (*kind, health)).chain([("tuner", tuner)]).collect();
    let labels = |kind: &str| vec![("records", kind.to_owned())];
    let of = |count: &dyn Fn(&RingHealth) -> u64| -> Vec<Row<u64>> {
        kept.iter().map(|(kind, health)| (labels(kind), count(health))).collect()
    };
    page.counter("records_written", "Records of decisions and of demand kept on disk", of(&|health| health.written));
    page.counter("records_lost", "Those the disk refused or could not keep up with", of(&|health| health.lost));
    page.gauge(
        "records_failing",
        "1 while the disk refuses them",
        kept.iter().map(|(kind, health)| (labels(kind), f64::from(health.failing.is_some()))).collect(),
    );
}

fn node(page: &mut Page, view: &View, recorder: &Recorder) {
    let one = |value: f64| vec![(Vec::new(), value)];
    let snapshot = &view.snapshot;
    page.gauge("in_flight", "Counted requests with a slot, all pools", one(in_flight(view).into()));
    page.gauge("parked", "Parked requests, all pools", one(parked(view).into()));
    page.gauge("node_cap", "Counted requests, granted or parked, at most; 0 is no cap", one(view.node.cap.into()));
    page.gauge("sessions", "Proxy sessions", one(f64::from(u32::try_from(view.sessions.len()).unwrap_or(u32::MAX))));
    page.gauge(
        "drained",
        "1 while an operator drains the node: new requests are refused",
        one(u8::from(snapshot.draining).into()),
    );
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
    page.counter(
        "reload_failures",
        "Reloads that changed nothing because the configuration is not valid",
        vec![(Vec::new(), recorder.reload_failures.get())],
    );
    page.gauge(
        "reload_failed",
        "1 while the last reload changed nothing because the configuration is not valid",
        one(f64::from(u8::from(recorder.is_stale.load(Ordering::Relaxed)))),
    );
    page.histogram(
        "park_wait_seconds",
        "Time from asking to a grant with a slot, 0 when at once; moves to another member are none",
        recorder.waits.clone(),
    );
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
    page.counter(
        "granted",
        "Requests granted, and suspended leases that resumed; moves to another member are none",
        of_pool(&totals.granted),
    );
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

fn light_refusals(page: &mut Page, recorder: &Recorder) {
    let labels = |(pool, reason): (String, &str)| vec![("pool", pool), ("reason", reason.to_owned())];
    page.counter(
        "light_refusals",
        "Refusals of keys that held less than their share, and by no limit of their own",
        recorder.light_refusals().into_iter().map(|(of, count)| (labels(of), count)).collect(),
    );
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
    let anonymous = || naming::ANONYMOUS.to_owned();
    let mut rows = Vec::new();
    for pool in pools {
        let keys = pool
            .keys
            .iter()
            .map(|key| (key.key.map_or_else(anonymous, |key| naming::hash(key).to_string()), key.in_flight));
        heaviest(&mut rows, &pool.name, "key", keys.collect());
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
        ("reclaimed", totals.reclaimed),
    ];
    let rows = causes.map(|(cause, count)| (vec![("cause", cause.to_owned())], count));
    page.counter("leases_ended", "Leases ended, by cause", rows.to_vec());
    let place = |site| view.sites.get(site).cloned().unwrap_or_default();
    let lost = totals.lost.iter().flat_map(|(site, expired, reclaimed)| {
        [("expired", *expired), ("reclaimed", *reclaimed)]
            .map(|(cause, count)| (vec![("site", place(site)), ("cause", cause.to_owned())], count))
    });
    page.counter(
        "leases_lost",
        "Leases that their holder lost, by where in the proxy they were asked for",
        lost.collect(),
    );
    let awaited = "Leases of the daemon's life before that count until their holders are back";
    page.gauge("leases_awaited", awaited, vec![(Vec::new(), view.awaited.into())]);
    let clients = &view.clients;
    let known = [("told", clients.followed), ("asked", clients.asked_for)];
    let rows =
        known.map(|(how, count)| (vec![("end", how.to_owned())], u32::try_from(count).unwrap_or(u32::MAX).into()));
    page.gauge("client_connections", "Clients' connections, by how their end is learnt of", rows.to_vec());
    let gone = [("told", clients.told), ("asked", clients.found)];
    let rows = gone.map(|(how, count)| (vec![("end", how.to_owned())], count));
    page.counter("clients_gone", "Requests and leases whose client was gone before them", rows.to_vec());
    page.counter(
        "lease_unknown",
        "Releases and renewals of leases that were not there",
        vec![(Vec::new(), totals.unknown)],
    );
}

/// Idle leases, nested work, tiers and what operators set.
fn policy(page: &mut Page, view: &View) {
    let totals = &view.snapshot.totals;
    let one = |count: u64| vec![(Vec::new(), count)];
    page.counter("suspends", "Leases suspended", one(totals.suspended));
    page.counter("resumes", "Suspended leases resumed", one(totals.resumed));
    page.counter("hops", "Hops: they shared the lease of their work", one(totals.hops));
    page.counter("tier_asks", "Tiers asked for, of orgs at their base ceiling", one(totals.tier_asks));
    let help = "Answers about tiers that were ignored: from a session that had not been asked, or a second time";
    page.counter("tier_answers_ignored", help, one(totals.tier_answers_ignored));
    let help = "Leases that a proxy claimed to hold and that were not counted: revoked, invented, or more than the pool has slots";
    page.counter("claims_refused", help, one(totals.claims_refused));
    let set = u32::try_from(view.snapshot.overrides.len()).unwrap_or(u32::MAX);
    page.gauge("key_overrides", "Keys with an operator's override", vec![(Vec::new(), set.into())]);
    let shed = match view.snapshot.level {
        governor_engine::io::Level::Normal => 0.0,
        governor_engine::io::Level::Elevated => 1.0,
        governor_engine::io::Level::High => 2.0,
        governor_engine::io::Level::Overloaded => 3.0,
    };
    page.gauge(
        "shed_level",
        "Level that may refuse work: 2 sheddable requests, 3 all but critical",
        vec![(Vec::new(), shed)],
    );
    let pools = &view.snapshot.pools;
    page.gauge(
        "pool_oversubscribed",
        "1 while the floors of those that ask exceed what max-min may hand out",
        pools.iter().map(|pool| (vec![("pool", pool.name.clone())], u8::from(pool.oversubscribed).into())).collect(),
    );
    let kinds = pools.iter().flat_map(|pool| pool.traffic.iter().map(move |kind| (pool, kind)));
    page.gauge(
        "traffic_in_flight",
        "Slots held by a kind of traffic with a bound of its own",
        kinds
            .map(|(pool, kind)| {
                (vec![("pool", pool.name.clone()), ("traffic", kind.name.clone())], f64::from(kind.in_flight))
            })
            .collect(),
    );
    let mut rows = Vec::new();
    for pool in pools {
        let orgs = pool.orgs.iter().map(|org| (naming::org_hash(org.org).to_string(), org.in_flight));
        heaviest(&mut rows, &pool.name, "org", orgs.collect());
    }
    page.gauge("org_in_flight", "Slots held by the orgs that hold most, the rest as \"other\"", rows);
}

/// The rows of those that hold most and one for the rest. The first half of a keyed hash tells them apart and says nothing
/// about them.
fn heaviest(rows: &mut Vec<Row<f64>>, pool: &str, label: &'static str, mut all: Vec<(String, u32)>) {
    all.retain(|(_, in_flight)| *in_flight > 0);
    all.sort_by(|(a, held_a), (b, held_b)| held_b.cmp(held_a).then_with(|| a.cmp(b)));
    let (top, rest) = all.split_at(all.len().min(TOP_KEYS));
    for (hash, in_flight) in top {
        let name: String = hash.chars().take(16).collect();
        rows.push((vec![("pool", pool.to_owned()), (label, name)], f64::from(*in_flight)));
    }
    let other: u32 = rest.iter().map(|(_, in_flight)| in_flight).sum();
    rows.push((vec![("pool", pool.to_owned()), (label, "other".to_owned())], f64::from(other)));
}

fn in_flight(view: &View) -> u32 {
    view.snapshot.pools.iter().map(|pool| pool.in_flight).sum()
}

fn parked(view: &View) -> u32 {
    view.snapshot.pools.iter().map(|pool| pool.parked).sum()
}

fn shed_labels(pool: String, reason: Reason) -> Labels {
    let scope = match reason {
        Reason::FairShare | Reason::KeyQueueFull | Reason::KeyCap | Reason::Suspended => "key",
        Reason::OrgCap | Reason::ClassCap => "org",
        Reason::PoolExhausted | Reason::QueueFull | Reason::SubCapacity => "pool",
        Reason::Overload => "overload",
        Reason::AllCooling => "upstream",
        Reason::NodeCap | Reason::Draining => "node",
    };
    vec![("pool", pool), ("reason", naming::reason(reason).to_owned()), ("scope", scope.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sessions::clients::Counts;
    use crate::metrics::page::Registered;
    use governor_common::wire::reply::Overload;
    use governor_engine::policy::NodePolicy;
    use governor_engine::snapshot::Snapshot;
    use governor_engine::time::Instant;
    use std::collections::BTreeMap;

    const DOCUMENT: &str = include_str!("METRICS.md");

    fn registered() -> Vec<Registered> {
        let view = View {
            now: Instant::default(),
            epoch: 1,
            snapshot: Snapshot::default(),
            labels: BTreeMap::new(),
            classes: BTreeMap::new(),
            sessions: Vec::new(),
            overload: Overload::default(),
            bypass_remaining: None,
            drain: None,
            held: (0, 0),
            members: BTreeMap::new(),
            draining: false,
            node: NodePolicy::default(),
            awaited: 0,
            clients: Counts::default(),
            sites: BTreeMap::new(),
            records: Vec::new(),
        };
        let (seen, report, recorder) = (Observation::default(), Report::default(), Recorder::default());
        page(Shown { view: &view, seen: &seen, report: &report, recorder: &recorder }).registered().to_vec()
    }

    /// The row of the document that a metric must have; the unit is the last word of a gauge's or histogram's name.
    fn row(metric: &Registered) -> String {
        let unit = match metric.name.rsplit('_').next() {
            Some("seconds") => "s",
            Some("ratio") => "0–1",
            _ => "1",
        };
        format!("| `{}` | {} | {unit} | {} |", metric.name, metric.kind, metric.help)
    }

    #[test]
    fn every_metric_is_documented_with_its_unit_and_meaning_and_nothing_else_is() {
        let rows: Vec<String> = registered().iter().map(row).collect();
        let missing: Vec<&String> = rows.iter().filter(|row| !DOCUMENT.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "METRICS.md lacks these rows:\n{missing:#?}");
        for line in DOCUMENT.lines().filter(|line| line.starts_with("| `governor_")) {
            assert!(rows.iter().any(|row| row == line), "METRICS.md documents what does not exist:\n{line}");
        }
    }

    #[test]
    fn alert_rules_name_only_metrics_that_exist() {
        let names: Vec<String> = registered()
            .into_iter()
            .flat_map(|metric| match metric.kind {
                "histogram" => vec![format!("{}_bucket", metric.name)],
                _ => vec![metric.name],
            })
            .collect();
        let rules = include_str!("../../dist/alerts.yml");
        let used: Vec<&str> = rules
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("governor_"))
            .collect();
        assert!(used.len() >= 5, "{used:?}");
        for name in used {
            assert!(names.iter().any(|have| have == name), "{name} is no metric");
        }
    }

    #[test]
    fn every_metric_has_help() {
        let silent: Vec<String> =
            registered().into_iter().filter(|metric| metric.help.trim().is_empty()).map(|metric| metric.name).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn no_metric_is_registered_twice() {
        let mut names: Vec<String> = registered().into_iter().map(|metric| metric.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
