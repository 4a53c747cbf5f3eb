//! What outlives the daemon. Its programs go on counting when it is killed, the next one takes them over, and what
//! happened in between is in its counts once; a clean stop leaves nothing. Every way in which that can fail ends in a daemon
//! that counts without pins and says why.

use crate::daemons::life::{bpffs, daemon, forge_opened, open_of, row_of};
use crate::world::{
    as_ss, eventually, exact, inbound_on, listener, listeners_in, namespace, open_in, options, plane_with,
};
use governor_common::abi::CgroupKey;
use governor_kernel as kernel;
use governor_kernel::Options;
use governor_kernel::Plane;
use governor_kernel::PlaneError;
use governor_kernel::programs::pin::PinOptions;
use governor_observation::{Observation, PinState, Tier};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::machine::ss;
use support::programs::daemon::Daemon;
use support::programs::peer::Peer;

/// How long the kernel may take to let go.
const PATIENCE: Duration = Duration::from_secs(10);

fn pinned_in(folder: &Path) -> Options {
    Options { pins: Some(PinOptions { folder: folder.to_owned(), required: false }), ..options(exact()) }
}

fn look(plane: &Plane) -> Observation {
    let observation = plane.observations().borrow().clone();
    (*observation).clone()
}

/// Programs that are attached now, whosever.
fn attached() -> BTreeSet<String> {
    kernel::tracing_programs().into_iter().map(|row| row.hook).collect()
}

/// Waits until none of them is attached any more: the kernel lets go of what was unpinned a moment later.
fn gone(programs: &BTreeSet<String>) {
    let begun = Instant::now();
    while !attached().is_disjoint(programs) {
        assert!(begun.elapsed() < PATIENCE, "still attached: {:?}", attached().intersection(programs));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_daemon_misses_nothing_that_happens_until_the_next_one_is_there() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let (of_server, of_client) = (Cgroup::create("life-server").unwrap(), Cgroup::create("life-client").unwrap());
    let Some(mut daemon) = daemon(&bpffs.pins()) else { return };
    let mut server = Peer::start_in(&namespace, &of_server);
    let (mut passing, mut staying) = (Peer::start_in(&namespace, &of_client), Peer::start_in(&namespace, &of_client));
    let port = server.listen("127.0.0.1", 64);
    passing.connect("127.0.0.1", port, 10);
    server.accept(port, 6);
    daemon.wait_for("/v1/listeners", |rows| {
        row_of(rows, &namespace, port).is_some_and(|row| row["enqueued_total"] == 10 && row["accepted_total"] == 6)
    });

    daemon.kill();
    // Nobody watches: some come, some are accepted, some go, and a listener opens that nobody has seen.
    staying.connect("127.0.0.1", port, 7);
    server.accept(port, 5);
    passing.reset_connections();
    let born_unseen = server.listen("127.0.0.1", 8);
    staying.connect("127.0.0.1", born_unseen, 4);
    daemon.restart().unwrap();

    let status = daemon.get("/v1/status");
    assert_eq!(status["pins"]["state"], "adopted", "{}", daemon.log());
    assert!(status["pins"]["counting_seconds"].as_f64() > status["uptime_seconds"].as_f64());
    let rows = daemon.get("/v1/listeners");
    let row = row_of(&rows, &namespace, port).unwrap();
    assert_eq!((&row["enqueued_total"], &row["accepted_total"]), (&17.into(), &11.into()));
    let row = row_of(&rows, &namespace, born_unseen).unwrap();
    assert_eq!((&row["enqueued_total"], &row["depth_peak"], &row["depth"]), (&4.into(), &4.into(), &4.into()));
    for listener in ss::listeners(&namespace) {
        let row = row_of(&rows, &namespace, listener.port).unwrap();
        assert_eq!((&row["depth"], &row["backlog"]), (&listener.depth.into(), &listener.backlog.into()));
    }
    assert_eq!(ss::connections(&namespace, &[port, born_unseen]), (11, 11));
    let groups = daemon.get("/v1/cgroups");
    let at_accept = groups.as_array().is_some_and(|rows| rows.iter().any(|row| row["inbound_basis"] == "acceptor"));
    // Ten wait in a queue: where accepts are seen they are nobody's yet.
    let inbound = if at_accept { 1 } else { 11 };
    assert_eq!((open_of(&groups, &of_server), open_of(&groups, &of_client)), ((inbound, 0), (0, 11)));
    server.accept(port, 6);
    server.accept(born_unseen, 4);
    daemon.wait_for("/v1/cgroups", |groups| open_of(groups, &of_server) == (11, 0));

    staying.close_all();
    server.close_all();
    daemon.wait_for("/v1/cgroups", |groups| {
        open_of(groups, &of_server) == (0, 0) && open_of(groups, &of_client) == (0, 0)
    });
    let audits = daemon.get("/v1/status")["kernel"]["audits"].as_u64().unwrap();
    let status = daemon.wait_for("/v1/status", |status| status["kernel"]["audits"].as_u64() > Some(audits + 1));
    assert_eq!((&status["kernel"]["drift"], &status["kernel"]["untracked"]), (&0.into(), &0.into()));
    assert!(daemon.stop().success());
    assert!(!bpffs.pins().exists());
}

#[test]
fn a_plane_that_hands_over_leaves_its_programs_to_the_next_and_a_stop_leaves_nothing() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let group = Cgroup::create("handed-over").unwrap();
    let of_others = attached();
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let programs: BTreeSet<String> = attached().difference(&of_others).cloned().collect();
    assert!(programs.iter().any(|program| program.contains("inet_sock_set_s")), "{programs:?}");
    let mut peer = Peer::start_in(&namespace, &group);
    let port = peer.listen("127.0.0.1", 16);
    peer.connect("127.0.0.1", port, 3);
    eventually(&first, "3 queued", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total == Some(3))
    });
    let before = look(&first);
    assert_eq!((before.pins.state, before.pins.note.as_str()), (PinState::Pinned, ""));
    first.hand_over();
    assert!(attached().is_superset(&programs));

    peer.connect("127.0.0.1", port, 2);
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    let now = look(&second);
    assert_eq!((now.pins.state, now.pins.note.as_str()), (PinState::Adopted, ""));
    assert_eq!(now.pins.counting_since_ns, before.pins.counting_since_ns);
    let own = |seen: &Observation| seen.hooks.iter().filter(|hook| hook.event.is_some()).cloned().collect::<Vec<_>>();
    assert_eq!(own(&now), own(&before), "what was found out about the hooks is kept");
    assert_eq!(listener(&now, &namespace, port).unwrap().enqueued_total, Some(5));
    assert_eq!(as_ss(&now, &namespace), ss::listeners(&namespace));
    assert_eq!(open_in(&now, group.path()), (inbound_on(exact(), 5, 0), 5));

    second.stop();
    assert!(!bpffs.pins().exists());
    gone(&programs);
}

#[test]
fn a_listener_older_than_the_programs_keeps_its_totals_across_lives() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let mut peer = Peer::start(&namespace);
    let port = peer.listen("127.0.0.1", 16);
    peer.connect("127.0.0.1", port, 4);
    let totals = |seen: &Observation| {
        listener(seen, &namespace, port).map(|row| (row.enqueued_total, row.accepted_total, row.depth))
    };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    peer.accept(port, 3);
    eventually(&first, "3 accepted", |seen| totals(seen) == Some((Some(4), Some(3), 1)));
    first.hand_over();
    peer.connect("127.0.0.1", port, 2);
    peer.accept(port, 1);
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    eventually(&second, "all that ever came", |seen| totals(seen) == Some((Some(6), Some(4), 2)));
    second.hand_over();
    // A tier without programs has no use for them.
    let third = kernel::spawn(Options { forced_tier: Some(Tier::Netlink), ..pinned_in(&bpffs.pins()) }).unwrap();
    let now = look(&third);
    assert_eq!(now.pins.state, PinState::Off);
    assert!(now.pins.note.contains("removed"), "{}", now.pins.note);
    assert!(!bpffs.pins().exists());
}

#[test]
fn pins_that_do_not_fit_are_cleared_and_never_mixed_with_new_ones() {
    let _machine = support::alone();
    let Some(bpffs) = bpffs() else { return };
    let of_others = attached();
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    first.hand_over();
    let fewer = Options { max_listeners: Some(512), ..pinned_in(&bpffs.pins()) };
    for (lost, reason) in [
        (None, "kernel.max_listeners was 16384 and is 512"),
        (Some("manifest"), "was not finished"),
        (Some("link_inet_sock_set_state_twin"), "link inet_sock_set_state_twin is gone"),
        (Some("map_CGROUPS"), "map CGROUPS"),
    ] {
        if let Some(lost) = lost {
            fs::remove_file(bpffs.pins().join(lost)).unwrap();
        }
        let old: BTreeSet<String> = attached().difference(&of_others).cloned().collect();
        assert!(!old.is_empty(), "without {lost:?}");
        let next = plane_with(fewer.clone()).unwrap();
        let now = look(&next);
        assert_eq!(now.pins.state, PinState::Pinned, "without {lost:?}");
        assert!(now.pins.note.starts_with("started clean") && now.pins.note.contains(reason), "{}", now.pins.note);
        gone(&old);
        next.hand_over();
    }
    let last = plane_with(fewer).unwrap();
    assert_eq!(look(&last).pins.state, PinState::Adopted);
}

#[test]
fn a_second_daemon_counts_for_itself_and_leaves_the_first_ones_pins_alone() {
    let _machine = support::alone();
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let before = fs::read_dir(bpffs.pins()).unwrap().count();
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    let now = look(&second);
    assert_eq!(now.pins.state, PinState::Unavailable);
    assert!(now.pins.note.contains(&format!("in use by process {}", std::process::id())), "{}", now.pins.note);
    assert!(now.degraded.iter().any(|line| line.starts_with("counts end with the daemon")));
    second.stop();
    assert_eq!(fs::read_dir(bpffs.pins()).unwrap().count(), before);
    first.stop();
}

#[test]
fn pins_that_are_required_and_not_possible_are_a_start_failure() {
    let _machine = support::alone();
    let required = PinOptions { folder: "/nonexistent/governor".into(), required: true };
    let refused = kernel::spawn(Options { pins: Some(required), ..options(Tier::Netlink) });
    assert!(matches!(refused, Err(PlaneError::Pins(_))), "{refused:?}");
}

#[test]
fn without_a_writable_bpffs_counting_goes_on_unpinned() {
    let _machine = support::alone();
    let Some(bpffs) = bpffs() else { return };
    bpffs.make_read_only().unwrap();
    let Some(plane) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let now = look(&plane);
    assert_eq!(now.pins.state, PinState::Unavailable);
    assert!(now.pins.note.contains("Read-only file system"), "{}", now.pins.note);
    assert!(now.degraded.iter().any(|line| line.starts_with("counts end with the daemon")));
    assert!(now.hooks.iter().any(|hook| hook.active && hook.hook.contains("inet_sock_set_state")));
}

#[test]
fn doctor_cleans_up_after_a_dead_daemon_and_refuses_while_one_lives() {
    let _machine = support::alone();
    let Some(bpffs) = bpffs() else { return };
    let of_others = attached();
    let Some(mut daemon) = daemon(&bpffs.pins()) else { return };
    let programs: BTreeSet<String> = attached().difference(&of_others).cloned().collect();
    let said = |daemon: &Daemon| {
        let output = daemon.clean();
        (output.status.code(), String::from_utf8(output.stdout).expect("it prints text"))
    };
    let (code, text) = said(&daemon);
    assert!(code == Some(1) && text.contains("nothing is removed: another governord is running"), "{text}");
    assert_eq!(daemon.get("/v1/status")["pins"]["state"], "pinned");

    daemon.kill();
    // One that watches the kernel on the same pins and has other sockets.
    let other = kernel::spawn(pinned_in(&bpffs.pins())).expect("it starts on some tier");
    let (code, text) = said(&daemon);
    assert!(code == Some(1) && text.contains("in use by process"), "{text}");
    other.hand_over();

    let (code, text) = said(&daemon);
    assert_eq!(code, Some(0), "{text}");
    for part in ["proxy.sock", "control.sock", "manifest", "link_inet_sock_set_state", "map_LISTENERS"] {
        assert!(text.lines().any(|line| line.starts_with("removed ") && line.ends_with(part)), "{part}: {text}");
    }
    assert!(!bpffs.pins().exists() && !daemon.socket().exists() && !daemon.control_socket().exists());
    gone(&programs);
    assert_eq!(said(&daemon), (Some(0), "there is nothing to remove\n".to_owned()));
}

#[test]
fn events_that_nobody_reads_are_counted_as_lost_and_no_gauge_depends_on_them() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let group = Cgroup::create("unread").unwrap();
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    first.hand_over();
    // Each opens and closes: twice as many events, of which the buffer holds about 1,600.
    let mut peer = Peer::start_in(&namespace, &group);
    for _ in 0..1_000 {
        let port = peer.listen("127.0.0.1", 4);
        peer.connect("127.0.0.1", port, 1);
        peer.close_all();
    }
    let port = peer.listen("127.0.0.1", 4);
    peer.connect("127.0.0.1", port, 1);
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    let now = eventually(&second, "one listener", |seen| listeners_in(seen, &namespace).len() == 1);
    assert_eq!(now.pins.state, PinState::Adopted);
    assert!(now.health.lost_events > 0 && now.health.untracked == 0, "{:?}", now.health);
    assert_eq!(listener(&now, &namespace, port).unwrap().enqueued_total, Some(1));
    assert_eq!(open_in(&now, group.path()), (inbound_on(exact(), 1, 0), 1));
    peer.close_all();
    let seen = eventually(&second, "nothing", |seen| listeners_in(seen, &namespace).is_empty());
    assert_eq!((open_in(&seen, group.path()), seen.health.drift), ((0, 0), 0));
}

#[test]
fn closes_that_the_programs_miss_are_found_by_the_audits_and_stay_repaired_in_the_next_life() {
    let _machine = support::alone();
    const MISSED: u64 = 300;
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let group = Cgroup::create("missed").unwrap();
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let mut peer = Peer::start_in(&namespace, &group);
    let port = peer.listen("127.0.0.1", 16);
    peer.connect("127.0.0.1", port, 5);
    peer.accept(port, 5);
    let before = eventually(&first, "5 open", |seen| open_in(seen, group.path()) == (5, 5)).health.drift;
    // As if the programs had seen them open and not close.
    forge_opened(&bpffs.pins(), CgroupKey::new(group.id(), netns_of(&namespace)), MISSED);
    let seen = eventually(&first, "the repair", |seen| {
        seen.health.drift >= before + MISSED && open_in(seen, group.path()) == (5, 5)
    });
    let drift = seen.health.drift;
    first.hand_over();

    peer.connect("127.0.0.1", port, 2);
    peer.accept(port, 2);
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    assert_eq!((seen.pins.state, open_in(&look(&second), group.path())), (PinState::Pinned, (7, 7)));
    let audits = look(&second).health.audits;
    let seen = eventually(&second, "two audits", |seen| seen.health.audits > audits + 1);
    assert_eq!((open_in(&seen, group.path()), seen.health.drift), ((7, 7), 0), "{drift} before");
}

fn netns_of(namespace: &Netns) -> u32 {
    u32::try_from(namespace.inode()).expect("the programs know namespaces by 32 bits")
}
