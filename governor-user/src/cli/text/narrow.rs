//! Every table of `governorctl` with long and hostile values in a narrow terminal: each row stays one line that fits, and
//! nothing in it steers the terminal. A new table needs a line in `every_table`; the test names those that lack one.

use crate::cli::admission::advise;
use crate::cli::admission::key;
use crate::cli::admission::keys;
use crate::cli::admission::leases;
use crate::cli::admission::members;
use crate::cli::admission::pools;
use crate::cli::admission::refusals;
use crate::cli::node::config;
use crate::cli::node::events;
use crate::cli::node::reload;
use crate::cli::node::status;
use crate::cli::sockets::cgroups;
use crate::cli::sockets::listeners;
use crate::cli::sockets::namespaces;
use crate::cli::sockets::tune;
use crate::cli::text::render::{Style, visible};
use crate::cli::text::table::rendered;
use governor_api::{
    Advice, Basis, CgroupView, ClosedListeners, ConfigEntry, Conntrack, Event, FairShare, Finding, FindingKind, Key,
    KeyOverride, KeySetting, Lease, ListenerGroup, ListenerName, ListenerRow, ListenerView, Member, MemberRow,
    MemberState, Mode, NamespaceCounters, NamespaceView, Org, OrgPool, Origin, Pool, PoolAdvice, Reload, ReloadChange,
    Session, SettingAdvice, SojournView, Traffic, TunedListener, Tuner, TunerAction, TunerPlan, TunerRecord,
    TunerState, Verdict, WouldHave,
};
use std::collections::BTreeSet;
use std::path::Path;

/// Long, in several scripts, with what steers a terminal, breaks a line or turns the direction of reading.
const HOSTILE: &str = "tenant-of-the-\u{1b}[31mreds\u{1b}[0m \u{202e}desrever\r\n| 鍵鍵鍵鍵鍵 and then \
                       a sentence that goes on for much longer than any terminal has columns to show it";

const LARGE: u32 = u32::MAX;

fn text() -> String {
    HOSTILE.to_owned()
}

fn hash() -> String {
    "9f".repeat(16)
}

fn listener_tables(style: Style) -> Vec<String> {
    let waits = SojournView {
        p50_seconds: Some(86_399.0),
        p99_seconds: Some(86_399.0),
        max_seconds: Some(86_399.0),
        ..SojournView::default()
    };
    let row = |netns| ListenerRow {
        listener: ListenerView {
            netns,
            address: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(),
            depth: LARGE,
            abandoned: Some(LARGE),
            oldest_queued_seconds: Some(86_399.0),
            backlog: Some(LARGE),
            depth_peak: Some(LARGE),
            enqueued_total: Some(u64::MAX),
            accepted_total: Some(u64::MAX),
            overflows_total: Some(u64::MAX),
            overflow_syn_total: Some(u64::MAX),
            overflow_ack_total: Some(u64::MAX),
            drops_total: Some(u64::MAX),
            owner_cgroup: Some(text()),
            pids: vec![4_194_304; 9],
            sojourn: Some(waits.clone()),
            ..ListenerView::bare(65_535)
        },
        verdict: Some(Verdict::HalfOpenPressure),
        process: Some(text()),
    };
    let group = ListenerGroup {
        netns: u64::MAX,
        address: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(),
        port: 65_535,
        members: LARGE,
        depth: LARGE.into(),
        backlog: Some(LARGE.into()),
        full: Some(LARGE),
        worst_utilisation: Some(1.0),
        skew: Some(1e9),
        cookies: vec![1],
    };
    let closed = ClosedListeners {
        netns: u64::MAX,
        address: group.address,
        port: 65_535,
        listeners: u64::MAX,
        lost: Some(u64::MAX),
    };
    vec![
        listeners::table(&[row(1), row(u64::MAX)], style),
        listeners::group_table(&[group], style),
        listeners::closed_table(&[closed], style),
    ]
}

fn kernel_tables(style: Style) -> Vec<String> {
    let cgroup = CgroupView {
        id: u64::MAX,
        path: Some(text()),
        inbound: LARGE.into(),
        outbound: LARGE.into(),
        inbound_basis: Basis::Acceptor,
        inbound_owned: Some(LARGE.into()),
    };
    let all = Some(u64::MAX);
    let namespace = NamespaceView {
        netns: u64::MAX,
        home: true,
        generation: 0,
        somaxconn: Some(LARGE),
        counters: NamespaceCounters {
            listen_overflows: all,
            listen_drops: all,
            request_queue_full_drops: all,
            request_queue_full_cookies: all,
            syncookies_sent: all,
            syncookies_received: all,
            syncookies_failed: all,
            fast_open_overflows: all,
            passive_opens: all,
        },
        recent: NamespaceCounters::default(),
        conntrack: Conntrack::Table { count: LARGE.into(), max: LARGE.into() },
        findings: vec![Finding { kind: FindingKind::DroppedOtherwise, critical: true, text: text() }],
    };
    vec![cgroups::table(&[cgroup], style), namespaces::text(&[namespace], style)]
}

fn pool() -> Pool {
    Pool {
        name: text(),
        capacity: LARGE,
        unlimited: false,
        in_flight: LARGE,
        parked: LARGE,
        oldest_parked_seconds: Some(1e9),
        fair_share: FairShare::MaxMin,
        mode: Mode::Observe,
        congested: true,
        active_keys: LARGE,
        headroom: None,
        oversubscribed: true,
        traffic: vec![Traffic { name: text(), slots: Some(LARGE), in_flight: LARGE }],
        granted_total: u64::MAX,
        shed_total: [("fair_share".to_owned(), u64::MAX)].into(),
        would_have: [("fair_share".to_owned(), WouldHave { park: u64::MAX, refuse: 0 })].into(),
        members: vec![Member {
            name: text(),
            slots: LARGE,
            reserve: LARGE,
            in_flight: LARGE,
            state: MemberState::Cooling,
            cooling_seconds: Some(86_399.0),
        }],
    }
}

fn admission_tables(style: Style) -> Vec<String> {
    let org = Org {
        org: hash(),
        name: Some(text()),
        class: Some(text()),
        tier: Some(text()),
        tier_remaining_seconds: Some(3600.0),
        counted: LARGE,
        cap: Some(LARGE),
        pools: vec![OrgPool {
            pool: text(),
            in_flight: LARGE,
            parked: LARGE,
            share: Some(LARGE),
            weight: LARGE,
            floor: LARGE,
        }],
    };
    let key = Key {
        pool: text(),
        key: hash(),
        label: Some(text()),
        org: Some(hash()),
        org_name: Some(text()),
        in_flight: LARGE,
        parked: LARGE,
        share: Some(LARGE),
        weight: LARGE,
        floor: LARGE,
        cap: Some(LARGE),
        overridden: true,
        suspended: true,
    };
    let row = MemberRow {
        pool: text(),
        name: text(),
        slots: LARGE,
        reserve: LARGE,
        in_flight: LARGE,
        state: MemberState::Cooling,
        cooling_seconds: Some(86_399.0),
        cause: Some("rate_limited".into()),
        by: Some(text()),
        reason: Some(text()),
    };
    let lease = Lease {
        lease: "0001000000000004".into(),
        pool: text(),
        key: Some(hash()),
        label: Some(text()),
        member: Some(text()),
        kind: "reattach".into(),
        org: Some(hash()),
        org_name: Some(text()),
        suspended: true,
        client_gone: true,
        site: Some(text()),
        session: u64::MAX,
        age_seconds: 1e9,
        expires_seconds: 1e9,
        idle_seconds: Some(1e9),
        ..Lease::default()
    };
    let over = KeyOverride {
        key: hash(),
        label: Some(text()),
        setting: KeySetting { cap: Some(LARGE), weight: Some(LARGE), floor: Some(LARGE), suspend: true },
        remaining_seconds: Some(86_399),
        reason: Some(text()),
        set_by: "uid 4294967295".into(),
        set_at: "2026-03-01T12:00:00Z".into(),
        invalid: None,
    };
    let setting = SettingAdvice {
        fair_share: FairShare::EqualSplit(100),
        current: true,
        waited_requests: 4_000_000_000,
        waited_keys: 100_000,
        refused_requests: 4_000_000_000,
        refused_keys: 100_000,
        utilisation_percent: Some(100.0),
    };
    let advice = Advice {
        window_seconds: 3600.0,
        pools: vec![PoolAdvice { pool: "chat".into(), requests: 1, keys: 1, settings: vec![setting] }],
    };
    let pools = [pool()];
    vec![
        members::table(&[row], style),
        keys::table(&[key], style),
        keys::org_table(&[org], style),
        leases::table(&[lease], style),
        key::table(&[over], style),
        pools::table(&pools, style),
        pools::member_table(&pools, style),
        pools::traffic_table(&pools, style),
        advise::text(&advice, style),
    ]
}

fn tuner_tables(style: Style) -> Vec<String> {
    let name = ListenerName {
        netns: u64::MAX,
        address: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(),
        port: 65_535,
        cookie: 7,
    };
    let tuner = Tuner {
        mode: "enforce".into(),
        at_exit: "restore".into(),
        unavailable: None,
        settings: Vec::new(),
        holders_unknown: None,
        listeners: vec![TunedListener {
            listener: name.clone(),
            mode: "enforce".into(),
            state: TunerState::StoodDown,
            original: LARGE,
            backlog: LARGE,
            somaxconn: Some(LARGE),
            mode_set: false,
            obstacle: None,
            plan: TunerPlan { to: Some(LARGE), wanted: Some(LARGE), limit: Some("somaxconn".into()), reason: text() },
        }],
    };
    let record = TunerRecord {
        at: "2026-03-01T12:00:00Z".into(),
        at_seconds: 0,
        listener: name,
        action: TunerAction::WouldRaise,
        by: text(),
        before: LARGE,
        after: LARGE,
        wanted: None,
        limit: Some("somaxconn".into()),
        pid: None,
        reason: text(),
    };
    vec![tune::listeners(&tuner, style), tune::plans(&tuner, style), tune::records(&[record], style)]
}

fn other_tables(style: Style) -> Vec<String> {
    let entry = ConfigEntry {
        key: "tuner.listener.0.a-name-that-an-operator-chose-at-great-length.max".into(),
        value: text().into(),
        origin: Origin::Environment,
        detail: Some(text()),
        pending: None,
    };
    let event = Event {
        at: "2026-03-01T12:00:00Z".into(),
        at_seconds: 0,
        by: text(),
        action: "key-expired".into(),
        subject: text(),
        before: text().into(),
        after: text().into(),
        reason: Some(text()),
    };
    let change = ReloadChange { key: entry.key.clone(), before: text().into(), after: text().into(), pending: true };
    let mut of_status = status::tests::quiet();
    of_status.sessions = vec![Session { id: u64::MAX, name: text(), pid: Some(4_194_304), uid: LARGE, leases: LARGE }];
    of_status.pools = vec![status::tests::summary(&text(), LARGE)];
    vec![
        config::plain(std::slice::from_ref(&entry), style),
        config::with_origin(&[entry], style),
        events::table(&[event], style),
        status::text(&of_status, style),
        reload::text(&Reload { changes: vec![change], warnings: Vec::new() }, style),
        refusals::text(&refusals::tests::some(HOSTILE, HOSTILE), false, style),
    ]
}

fn every_table(style: Style) -> Vec<String> {
    [listener_tables(style), kernel_tables(style), admission_tables(style), tuner_tables(style), other_tables(style)]
        .concat()
}

#[test]
fn every_table_fits_narrow_terminals_with_hostile_values() {
    for columns in [80_u16, 60] {
        for text in every_table(Style::narrow(columns)) {
            for line in text.lines() {
                assert!(visible(line) <= columns.into(), "{} columns of {columns}:\n{text}", visible(line));
                assert!(line.chars().all(|c| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)), "{text:?}");
            }
        }
    }
    let rendered: BTreeSet<(String, u32)> = rendered::places()
        .into_iter()
        .map(|(file, line)| (file.rsplit('/').next().unwrap().to_owned(), line))
        .collect();
    let missing: Vec<_> = sites().difference(&rendered).cloned().collect();
    assert!(missing.is_empty(), "add these tables to narrow.rs: {missing:?}");
}

/// File and line of every `Table::new` outside tests.
fn sites() -> BTreeSet<(String, u32)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
    let mut sites = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if matches!(name.as_str(), "table.rs" | "narrow.rs") || !name.ends_with(".rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let code = source.split("\n#[cfg(test)]\n").next().unwrap();
        let lines = code.lines().zip(1..).filter(|(line, _)| line.contains("Table::new("));
        sites.extend(lines.map(|(_, number)| (name.clone(), number)));
    }
    sites
}
