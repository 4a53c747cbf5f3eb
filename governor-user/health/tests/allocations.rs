//! What an observation costs in memory when nothing has changed since the one before: the same for one listener and for
//! 10,000.

#[expect(dead_code, reason = "the tests of the engine count bytes too")]
#[path = "../../engine/benches/counting.rs"]
mod counting;

use counting::{Counting, calls};
use governor_engine::time::{Duration, Instant};
use governor_health::backlog::tuner::{Input, Memory, Tuner};
use governor_health::backlog::{AtExit, ListenerPolicy, TunerConfig, TunerMode};
use governor_health::pressure::settings::OverloadConfig;
use governor_health::{Assessor, Loads, Report};
use governor_observation::vitals::Vitals;
use governor_observation::{ListenerView, Observation, Tier};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn tuner() -> Tuner {
    let global = ListenerPolicy {
        mode: TunerMode::Enforce,
        target: 1024,
        max: 4096,
        max_wait: Duration::from_millis(500),
        quiet: Duration::from_secs(600),
    };
    let config =
        TunerConfig { global, listeners: Vec::new(), memory_mib: 64, raise_somaxconn: false, at_exit: AtExit::Keep };
    Tuner::new(config, Memory::default(), Vec::new())
}

/// At this tick, where `busy` listeners have accepted something since the last one.
fn observation(listeners: u16, tick: u64, busy: u16) -> Arc<Observation> {
    let row = |port: u16| ListenerView {
        cookie: Some(port.into()),
        backlog: Some(128),
        depth_peak: Some(1),
        enqueued_total: Some(if port <= busy { tick } else { 9 }),
        accepted_total: Some(if port <= busy { tick } else { 9 }),
        overflows_total: Some(0),
        pids: vec![7, 8, 9],
        owner_cgroup: Some("/system.slice/gateway.service".to_owned()),
        age_seconds: 0.001,
        tier: Tier::Tracepoint,
        ..ListenerView::bare(port)
    };
    Arc::new(Observation {
        taken_ns: Instant::ZERO.after(Duration::from_millis(100 * tick)).0,
        tier: Tier::Tracepoint,
        listeners: (1..=listeners).map(row).collect(),
        ..Observation::default()
    })
}

/// Allocations of one observation, after some like it.
fn cost(listeners: u16, busy: u16) -> u64 {
    let mut tuner = tuner();
    let report = Arc::new(Report::default());
    let mut last = 0;
    for tick in 1..20 {
        let seen = observation(listeners, tick, busy);
        let (now, report) = (Instant(seen.taken_ns), Arc::clone(&report));
        let before = calls();
        tuner.handle_input(Input::Observed { seen, report, started: BTreeMap::new() }, now);
        assert!(tuner.poll_output().is_none());
        last = calls() - before;
    }
    last
}

#[test]
fn unchanged_rows_allocate_nothing_for_the_tuner() {
    assert_eq!((cost(1, 0), cost(10_000, 0)), (0, 0));
}

/// Allocations of one report, after the window of the history has filled.
fn cost_of_report(listeners: u16) -> u64 {
    let mut assessor = Assessor::new(OverloadConfig::default(), Vec::new());
    let (vitals, loads) = (Vitals::default(), Loads::default());
    let mut last = 0;
    let mut reports = VecDeque::new();
    for tick in 1..120 {
        let seen = observation(listeners, tick, 0);
        let before = calls();
        let report = assessor.assess(&seen, &vitals, &loads, Instant(seen.taken_ns));
        last = calls() - before;
        // Readers hold a report for a while.
        reports.push_back(report);
        reports.truncate(3);
    }
    last
}

#[test]
fn unchanged_rows_allocate_nothing_for_a_report() {
    let (one, many) = (cost_of_report(1), cost_of_report(10_000));
    assert!(many <= one, "a report of 10,000 unchanged rows allocates {many} times, one of a single row {one} times");
}

#[test]
fn rows_that_change_cost_the_tuner_by_their_number_only() {
    let (few, many) = (cost(100, 100), cost(10_000, 100));
    assert!(many <= few, "100 rows that change allocate {few} times among 100 and {many} times among 10,000");
}
