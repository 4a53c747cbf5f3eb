//! Verdicts of the running kernel's own figures: each field case is brought about with real sockets, judged by the real
//! thread, and must lead to no wrong action at any moment on the way.

use crate::recorder::Recorder;
use crate::world::{namespace, plane, tiers};
use governor_common::wire::reply::cause;
use governor_health::{Judged, Loads, Report, Verdict};
use governor_kernel::Plane;
use governor_observation::{Conntrack, Tier};
use governor_user::config::OverloadConfig;
use governor_user::daemon::assessment;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use support::machine::netns::Netns;
use support::programs::peer::Peer;
use support::skip_for_lack;
use tokio::sync::watch as channel;

/// Long enough for the slowest machine; nothing waits this long when it works.
const PATIENCE: Duration = Duration::from_secs(30);

/// The machine's own load is not what is tested.
const MACHINE: u32 = cause::CPU_PRESSURE | cause::MEMORY_PRESSURE;

/// A listener under observation.
struct Judge {
    reports: channel::Receiver<Arc<Report>>,
    place: (u64, u16),
    /// Before what it records from ends.
    recorder: Option<Recorder>,
    _loads: channel::Sender<Arc<Loads>>,
    _plane: Plane,
}

impl Judge {
    /// Observes this listener, which also feeds the level; `None`, and a line that says why, where the tier does not work.
    fn of(tier: Tier, namespace: &Netns, port: u16, change: impl FnOnce(&mut OverloadConfig)) -> Option<Self> {
        let plane = plane(tier)?;
        let mut config = OverloadConfig { ports: vec![port], ignored: MACHINE, ..OverloadConfig::default() };
        change(&mut config);
        let (loads, carried) = channel::channel(Arc::default());
        let reports =
            assessment::spawn(config, Vec::new(), plane.observations(), carried).expect("a thread can be had");
        let place = (namespace.inode(), port);
        let recorder = Recorder::start(plane.observations(), reports.clone(), place);
        let judge = Self { reports, place, recorder, _loads: loads, _plane: plane };
        judge.eventually("the listener", |_| true, |_| {});
        Some(judge)
    }

    /// Waits until the listener is judged as expected, and holds every report on the way to `always`.
    fn eventually(&self, what: &str, expected: impl Fn(&Judged) -> bool, always: impl Fn(&Judged)) -> (Judged, Report) {
        let begun = Instant::now();
        loop {
            let report = self.reports.borrow().clone();
            let found = report.listeners.iter().find(|row| (row.netns, row.port) == self.place);
            if let Some(row) = found {
                always(row);
                if expected(row) {
                    if self.recorder.is_some() && row.verdict != Verdict::Ok {
                        // A recording shows the situation for a while.
                        thread::sleep(Duration::from_secs(1));
                    }
                    return (Judged::clone(row), Report::clone(&report));
                }
            }
            assert!(begun.elapsed() < PATIENCE, "never judged so: {what}; last judged: {found:#?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn becomes(&self, verdict: Verdict, always: impl Fn(&Judged)) -> (Judged, Report) {
        self.eventually(verdict.as_str(), |row| row.verdict == verdict, always)
    }
}

/// A longer backlog would be the wrong answer.
fn no_longer_backlog(row: &Judged) {
    let raises = row.verdict.wants_longer_backlog(&row.evidence) && row.evidence.drained_seconds.is_some();
    assert!(!raises, "{row:#?}");
}

/// The tiers that judge by different evidence: the best one here, and polling.
fn best_and_polling() -> impl Iterator<Item = Tier> {
    let all: Vec<Tier> = tiers().collect();
    let best = all.first().copied().filter(|best| *best > Tier::Netlink);
    best.into_iter().chain([Tier::Netlink])
}

/// A signal stops a process a moment later, and each of its threads for itself.
fn wait_until_stopped(pid: u32) {
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.expect("a process of ours can be read");
        let stat = std::fs::read_to_string(task.path().join("stat")).expect("none of its threads ends");
        // The name before it may hold anything but ends with the last bracket.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    let begun = Instant::now();
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    while !tasks().all(is_stopped) {
        assert!(begun.elapsed() < PATIENCE, "process {pid} does not stop");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn half_open_floods_are_half_open_pressure_with_cookies_and_without() {
    let _machine = support::alone();
    const FLOOD: u32 = 20;
    for cookies in ["1", "0", "2"] {
        let Some(namespace) = namespace() else { return };
        namespace.add_nowhere().unwrap();
        assert!(namespace.set("ipv4/tcp_syncookies", cookies));
        let mut server = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 8);
        let Some(judge) = Judge::of(Tier::Netlink, &namespace, port, |_| {}) else { return };
        server.spoof(port, FLOOD);
        let (row, report) = judge.becomes(Verdict::HalfOpenPressure, no_longer_backlog);
        let clients_lost = row.evidence.namespace.request_queue_full_drops > Some(0);
        assert_eq!((clients_lost, row.evidence.depth), (cookies == "0", 0), "tcp_syncookies={cookies}");
        assert_eq!((report.pressure.causes, report.pressure.shedding), (0, 0), "it is about no accept queue");
        assert!(row.verdict.remedy(&row.evidence).contains("tcp_syncookies"));
    }
}

#[test]
fn dead_connections_nobody_accepts_are_a_stalled_acceptor() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 64);
        let Some(judge) = Judge::of(tier, &namespace, port, |_| {}) else { return };
        client.connect("127.0.0.1", port, 5);
        client.close_connections();
        let dead = |row: &Judged| row.verdict == Verdict::AcceptorStalled && row.evidence.abandoned == Some(5);
        let (row, report) = judge.eventually("5 abandoned", dead, no_longer_backlog);
        assert_eq!((row.evidence.depth, row.evidence.overflows.unwrap_or(0)), (5, 0), "{tier}");
        assert_eq!(report.pressure.shedding, 0);
        server.accept(port, 5);
        judge.becomes(Verdict::Ok, no_longer_backlog);
    }
}

#[test]
fn a_stopped_process_stalls_and_goes_on() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 64);
        let Some(judge) = Judge::of(tier, &namespace, port, |_| {}) else { return };
        server.begin_accepting("events", port, 10);
        client.connect("127.0.0.1", port, 5);
        let pid = Pid::from_raw(server.pid().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        wait_until_stopped(server.pid());
        client.connect("127.0.0.1", port, 5);
        let (row, report) = judge.becomes(Verdict::AcceptorStalled, no_longer_backlog);
        assert!(row.evidence.no_accept_seconds.is_some_and(|idle| idle >= 1.0), "{row:?}");
        assert_eq!(report.pressure.shedding, 0, "refusals would not wake it");
        kill_process(pid, Signal::CONT).unwrap();
        judge.becomes(Verdict::Ok, no_longer_backlog);
        server.finish_accepting();
    }
}

#[test]
fn a_loop_that_accepts_without_descriptors_is_told_from_a_stall() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 50);
        let Some(judge) = Judge::of(tier, &namespace, port, |_| {}) else { return };
        server.begin_accepting("stubborn", port, 10);
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
        let pid = Pid::from_raw(server.pid().try_into().unwrap());
        let limit =
            |current: Option<u64>, maximum| prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
        let before = rustix::process::getrlimit(Resource::Nofile);
        limit(Some(open.try_into().unwrap()), before.maximum);
        // A few more than fit: an accept that slept when the limit came has its descriptor already.
        client.connect("127.0.0.1", port, 10);
        let (row, report) = judge.becomes(Verdict::FdExhausted, no_longer_backlog);
        let descriptors = row.evidence.descriptors.unwrap();
        assert_eq!((descriptors.pid, descriptors.exhausted()), (server.pid(), true));
        assert!(row.evidence.depth >= 5 && row.evidence.overflows.unwrap_or(0) == 0, "{row:?}");
        assert_eq!(report.pressure.shedding, 0, "it is no proxy of ours");
        limit(before.current, before.maximum);
        server.finish_accepting();
        judge.becomes(Verdict::Ok, no_longer_backlog);
    }
}

#[test]
fn a_burst_that_drains_asks_for_a_longer_backlog() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 4);
        // A busy machine may take seconds to get at the queue.
        let patient = |config: &mut OverloadConfig| {
            config.ranges.accept_sojourn = (5_000, 20_000_000);
            config.ranges.acceptor_stalled = (20_000_000, 30_000_000);
            config.hold = Duration::from_secs(20);
        };
        let Some(judge) = Judge::of(tier, &namespace, port, patient) else { return };
        client.begin("127.0.0.1", port, 8);
        let (row, report) = judge.becomes(Verdict::Burst, no_longer_backlog);
        assert_eq!((row.evidence.depth_max, row.evidence.drained_seconds), (5, None), "{tier}");
        assert!(report.pressure.causes & cause::ACCEPT_FILL != 0 && report.pressure.urgent);
        assert_eq!(report.pressure.shedding, 0);
        server.begin_accepting("events", port, 8);
        let drained = |row: &Judged| row.evidence.drained_seconds.is_some();
        let (row, _) = judge.eventually("the queue is empty again", drained, |_| {});
        assert_eq!(row.verdict, Verdict::Burst);
        assert!(row.verdict.wants_longer_backlog(&row.evidence));
        assert!(row.verdict.sentence(&row.evidence).contains("somaxconn"), "{row:?}");
    }
}

#[test]
fn a_healthy_listener_beside_one_that_overflows_is_ok() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut healthy, mut full, mut client) =
            (Peer::start(&namespace), Peer::start(&namespace), Peer::start(&namespace));
        let (port, neighbour) = (healthy.listen("127.0.0.1", 1024), full.listen("127.0.0.1", 2));
        let Some(judge) = Judge::of(tier, &namespace, port, |_| {}) else { return };
        client.begin("127.0.0.1", neighbour, 12);
        healthy.begin_accepting("events", port, 40);
        let begun = Instant::now();
        let is_full = || {
            let report = judge.reports.borrow().clone();
            report.listeners.iter().any(|row| {
                (row.netns, row.port) == (judge.place.0, neighbour)
                    && row.verdict != Verdict::Ok
                    && row.evidence.namespace.listen_overflows > Some(0)
            })
        };
        while !is_full() || begun.elapsed() < Duration::from_secs(3) {
            client.connect("127.0.0.1", port, 1);
            let found =
                judge.reports.borrow().listeners.iter().find(|row| (row.netns, row.port) == judge.place).cloned();
            assert!(found.as_ref().is_none_or(|row| row.verdict == Verdict::Ok), "{found:#?}");
            assert!(begun.elapsed() < PATIENCE, "the neighbour never overflows");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_backlog_of_zero_is_misconfigured() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 0);
    let Some(judge) = Judge::of(Tier::Netlink, &namespace, port, |_| {}) else { return };
    let (row, _) = judge.becomes(Verdict::Misconfigured, |_| {});
    assert_eq!(row.evidence.backlog, Some(0));
}

#[test]
fn more_than_is_accepted_is_starvation_and_asks_for_no_longer_backlog() {
    let _machine = support::alone();
    for tier in best_and_polling() {
        let Some(namespace) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 16);
        let Some(judge) = Judge::of(tier, &namespace, port, |_| {}) else { return };
        let begun = Instant::now();
        let starved = loop {
            client.begin("127.0.0.1", port, 20);
            server.accept(port, 2);
            let report = judge.reports.borrow().clone();
            let row = report.listeners.iter().find(|row| (row.netns, row.port) == judge.place).unwrap();
            no_longer_backlog(row);
            if row.verdict == Verdict::AcceptStarved && report.pressure.permille >= 950 {
                break report;
            }
            assert!(begun.elapsed() < PATIENCE, "never starved: {row:#?}");
            thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(starved.pressure.shedding, 0, "{:?}", starved.pressure);
    }
}

#[test]
fn a_full_connection_tracking_table_is_misconfigured_and_no_overload() {
    let _machine = support::alone();
    // More would be too much to fill: an entry is some 300 bytes of the kernel's memory.
    const MOST: u64 = 300_000;
    let Some(namespace) = namespace() else { return };
    let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
    let port = server.listen("127.0.0.1", 128);
    let Some(judge) = Judge::of(Tier::Netlink, &namespace, port, |_| {}) else { return };
    client.connect("127.0.0.1", port, 3);
    server.accept(port, 3);
    let known = |row: &Judged| row.verdict == Verdict::Ok && row.evidence.conntrack != Conntrack::Unknown;
    let (row, _) = judge.eventually("what the namespace tracks", known, no_longer_backlog);
    let Conntrack::Table { max, .. } = row.evidence.conntrack else {
        // That there is none is all there is to see then.
        assert!(!std::fs::exists("/proc/sys/net/netfilter/nf_conntrack_max").unwrap(), "{row:?}");
        return;
    };
    if max > MOST {
        return skip_for_lack(&format!("the connection-tracking table holds {max} and is not to be made smaller"));
    }
    let max = u32::try_from(max).unwrap();
    match client.track(max) {
        Ok(count) if count >= max => {}
        Ok(count) => panic!("only {count} of {max} entries were made"),
        Err(why) => return skip_for_lack(&format!("the connection-tracking table cannot be filled: {why}")),
    }
    let (row, report) = judge.becomes(Verdict::Misconfigured, no_longer_backlog);
    assert!(row.verdict.sentence(&row.evidence).contains("before TCP"), "{row:?}");
    assert!(row.verdict.remedy(&row.evidence).contains("nf_conntrack_max"));
    assert_eq!((report.pressure.permille, report.pressure.shedding, report.pressure.urgent), (0, 0, false));
}
