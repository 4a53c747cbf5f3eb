//! Situations of a node and what is found in each.

use super::*;
use crate::driver::operator::drain::DrainOrder;
use crate::driver::sessions::clients::Counts;
use crate::driver::view::SessionView;
use crate::records::ring::RingHealth;
use crate::transport::peer::Peer;
use governor_api::UnstoredFile;
use governor_common::wire::reply::Overload;
use governor_engine::id::SessionId;
use governor_engine::policy::NodePolicy;
use governor_engine::snapshot::Snapshot;
use governor_engine::time::Instant;
use governor_health::Evidence;
use governor_health::Judged;
use governor_health::Verdict;
use governor_health::listeners::evidence::PoolWork;
use governor_observation::Tier;
use std::sync::Arc;

/// The views of a node with one proxy.
struct Node {
    view: View,
    seen: Observation,
    report: Report,
    state: StateHealth,
    failed_reload: Option<ReloadFailure>,
}

impl Node {
    fn healthy() -> Self {
        let peer = Peer { pid: Some(7), uid: 0, gid: 0, started: None };
        let session = SessionView { id: SessionId(1), name: "gateway".into(), peer, leases: 0 };
        let view = View {
            now: Instant::ZERO,
            epoch: 1,
            snapshot: Snapshot::default(),
            labels: [].into(),
            classes: [].into(),
            sessions: vec![session],
            overload: Overload::default(),
            bypass_remaining: None,
            draining: false,
            drain: None,
            held: (0, 0),
            members: [].into(),
            node: NodePolicy::default(),
            awaited: 0,
            clients: Counts::default(),
            sites: [].into(),
            records: Vec::new(),
        };
        let seen = Observation { tier: Tier::Tracepoint, ..Observation::default() };
        let pool = PoolWork { name: "chat".into(), capacity: 98, members: 14, usable: 14, ..PoolWork::default() };
        let report = Report { pools: vec![pool], ..Report::default() };
        Self { view, seen, report, state: StateHealth::default(), failed_reload: None }
    }

    fn listener(mut self, verdict: Verdict, watched: bool) -> Self {
        let evidence = Evidence {
            depth: 5,
            backlog: Some(128),
            no_accept_seconds: Some(12.0),
            overflows: Some(3),
            window_seconds: 10.0,
            ..Evidence::default()
        };
        self.report.listeners.push(Arc::new(Judged {
            cookie: Some(self.report.listeners.len() as u64),
            netns: 1,
            address: "127.0.0.1".parse().unwrap(),
            port: 443,
            pids: vec![7],
            watched,
            verdict,
            evidence,
        }));
        self
    }

    fn pool(&mut self) -> &mut PoolWork {
        &mut self.report.pools[0]
    }

    fn found(&self) -> Vec<(Severity, String, String)> {
        let (view, seen, report) = (&self.view, &self.seen, &self.report);
        let (state, failed_reload) = (&self.state, self.failed_reload.as_ref());
        let facts = Facts { view, seen, report, hold: Duration::from_secs(2), failed_reload, state };
        findings(facts).into_iter().map(|found| (found.severity, found.subject, found.sentence)).collect()
    }

    /// The only finding.
    fn only(&self) -> (Severity, String) {
        let found = self.found();
        let [(severity, subject, sentence)] = &found[..] else { panic!("not one finding: {found:#?}") };
        (*severity, format!("{subject}: {sentence}"))
    }
}

#[test]
fn a_healthy_node_has_no_findings() {
    let node = Node::healthy().listener(Verdict::Ok, true);
    assert_eq!(node.found(), []);
}

#[test]
fn an_upstream_that_is_down_is_a_problem() {
    let mut node = Node::healthy();
    (node.pool().cooling, node.pool().failing, node.pool().down_seconds) = (13, 14, 42.0);
    let expected = "pool chat: the upstream has failed for 42 s: 13 of 14 members of the pool chat are cooling, and the \
                    one kept in use fails too";
    assert_eq!(node.only(), (Severity::Problem, expected.to_owned()));
    node.pool().down_seconds = 1.0;
    assert_eq!(node.only().0, Severity::Watch, "some members cool");
}

#[test]
fn requests_that_wait_long_are_a_problem() {
    let mut node = Node::healthy();
    let pool = node.pool();
    (pool.in_flight, pool.parked, pool.waiting_seconds, pool.oldest_seconds) = (98, 13, 12.0, Some(0.2));
    let expected = "pool chat: the pool chat has been full for 12 s; 13 requests wait, the oldest for 200 ms; 98 of 98 \
                    slots are held";
    assert_eq!(node.only(), (Severity::Watch, expected.to_owned()));
    node.pool().oldest_seconds = Some(10.0);
    assert_eq!(node.only().0, Severity::Problem);
}

#[test]
fn acceptors_that_stall_are_a_problem_of_their_own_listeners() {
    let stalled = Node::healthy().listener(Verdict::AcceptorStalled, true);
    let expected = "listener 127.0.0.1:443: acceptor_stalled: 5 of at most 129 connections wait and nothing was accepted \
                    for 12 s";
    assert_eq!(stalled.only(), (Severity::Problem, expected.to_owned()));
    let (severity, text) = stalled.listener(Verdict::Ok, true).only();
    assert!(severity == Severity::Watch && text.contains("1 of 2 sockets"), "{text}");
    assert_eq!(Node::healthy().listener(Verdict::AcceptorStalled, false).only().0, Severity::Watch);
    let both = Node::healthy().listener(Verdict::AcceptorStalled, true).listener(Verdict::AcceptorStalled, true);
    assert_eq!(both.only().0, Severity::Problem);
}

#[test]
fn verdicts_about_requests_are_findings_of_the_pool_only() {
    for verdict in [Verdict::UpstreamDown, Verdict::UpstreamSlow, Verdict::InflightSaturated] {
        assert_eq!(Node::healthy().listener(verdict, true).found(), [], "{verdict}");
    }
    assert_eq!(Node::healthy().listener(Verdict::Burst, true).only().0, Severity::Watch);
}

#[test]
fn a_drain_names_its_operator_and_what_is_left() {
    let mut node = Node::healthy();
    let order = DrainOrder { since: 0, by: "uid 0".into(), reason: None };
    (node.view.drain, node.view.held) = (Some((order, 90)), (1, 0));
    let (severity, text) = node.only();
    assert_eq!(severity, Severity::Problem);
    assert!(text.contains("uid 0 drains the node: new requests are refused, 1 lease is left"), "{text}");
}

#[test]
fn a_bypass_says_when_it_ends() {
    let mut node = Node::healthy();
    node.view.snapshot.bypass = true;
    assert!(node.only().1.ends_with("until it is switched off"));
    node.view.bypass_remaining = Some(60);
    let (severity, text) = node.only();
    assert!(severity == Severity::Problem && text.contains("for 60 s more"), "{text}");
}

#[test]
fn the_level_is_a_problem_where_it_refuses_work() {
    let mut node = Node::healthy();
    node.view.snapshot.level = governor_engine::io::Level::Overloaded;
    node.view.node.shed_mode = Mode::Enforce;
    assert_eq!(node.only().0, Severity::Problem);
    node.view.node.shed_mode = Mode::Observe;
    assert_eq!(node.only().0, Severity::Watch);
}

#[test]
fn records_that_are_lost_and_a_degraded_kernel_are_found() {
    let mut node = Node::healthy();
    let full = RingHealth { written: 1, lost: 7, failing: Some("No space left on device".into()) };
    node.view.records = vec![("events", full), ("demand", RingHealth::default())];
    node.seen.degraded = vec!["a".into(), "b".into()];
    node.seen.health.drift = 1;
    node.view.sessions.clear();
    let found: Vec<_> = node.found().into_iter().map(|(severity, subject, _)| (severity, subject)).collect();
    let expected = [
        (Severity::Problem, "disk (events)".to_owned()),
        (Severity::Watch, "kernel".to_owned()),
        (Severity::Watch, "counts".to_owned()),
    ];
    assert_eq!(found, expected, "no pools, so no proxy is missed");
}

#[test]
fn what_a_restart_would_undo_is_found() {
    let mut node = Node::healthy();
    node.failed_reload = Some(ReloadFailure { error: "no such setting: x".into(), at: "2026-01-01T00:00:00Z".into() });
    let (severity, text) = node.only();
    assert!(severity == Severity::Watch && text.contains("no such setting: x"), "{text}");
    node.failed_reload = None;
    let file = UnstoredFile { file: "overrides.json".into(), error: "No space left on device".into(), seconds: 4.0 };
    node.state.unstored.push(file);
    let (severity, text) = node.only();
    assert!(severity == Severity::Problem && text.ends_with("a restart undoes it"), "{text}");
}

#[test]
fn findings_of_one_kind_are_bounded() {
    let mut node = Node::healthy();
    node.report.pools = (0..500)
        .map(|index| PoolWork {
            name: format!("p{index}"),
            usable: 2,
            failing: 2,
            down_seconds: 9.0,
            ..PoolWork::default()
        })
        .collect();
    let found = node.found();
    assert_eq!(found.len(), MOST_OF_A_KIND + 1);
    assert_eq!(found.last().unwrap(), &(Severity::Problem, "pools".into(), "480 more findings are not listed".into()));
}
