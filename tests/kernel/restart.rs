//! What outlives the daemon. Its programs go on counting when it is killed, the next one takes them over, and what
//! happened in between is in its counts once; a clean stop leaves nothing. Every way in which that can fail ends in a daemon
//! that counts without pins and says why.

use crate::world::{as_ss, eventually, listener, namespace, open_in, options, plane_with};
use governor_user::kernel::{
    self, Options, Plane, PlaneError,
    pin::PinOptions,
    view::{Observation, PinState, Tier},
};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};
use support::{bpffs::Bpffs, cgroup::Cgroup, daemon::Daemon, daemon::Setup, netns::Netns, peer::Peer, skip, ss};

/// What one daemon pins for the next.
fn bpffs() -> Option<Bpffs> {
    match Bpffs::mount() {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            skip(&format!("no bpffs can be mounted: {error}"));
            None
        }
    }
}

fn pinned_in(folder: &Path) -> Options {
    Options { pins: Some(PinOptions { folder: folder.to_owned(), required: false }), ..options(Tier::Tracepoint) }
}

fn seen(plane: &Plane) -> Observation {
    let observation = plane.observations().borrow().clone();
    (*observation).clone()
}

/// Programs that were attached when a plane came, as it names them.
fn attached(seen: &Observation) -> BTreeSet<String> {
    seen.hooks.iter().filter(|hook| hook.note.contains("left alone")).map(|hook| hook.hook.clone()).collect()
}

/// Programs that are attached now.
fn attached_now() -> BTreeSet<String> {
    attached(&seen(&plane_with(options(Tier::Tracepoint)).expect("the tier worked before")))
}

/// A real daemon on the best eBPF tier that pins in `folder`.
fn daemon(folder: &Path) -> Daemon {
    Setup::new("")
        .tier("auto")
        .env("GOVERNOR_KERNEL_TICK", "20ms")
        .env("GOVERNOR_KERNEL_AUDIT", "500ms")
        .pins(folder)
        .start()
}

/// The row of the listener on `port`, as the daemon tells it.
fn row_of(rows: &Value, namespace: &Netns, port: u16) -> Option<Value> {
    let mut rows = rows.as_array()?.iter();
    rows.find(|row| row["netns"] == namespace.inode() && row["port"] == port).cloned()
}

/// Open connections of a cgroup, inbound and outbound, as the daemon tells them.
fn open_of(groups: &Value, cgroup: &Cgroup) -> (u64, u64) {
    let group = groups.as_array().into_iter().flatten().find(|group| group["path"] == cgroup.path());
    let count = |group: &Value, which: &str| group[which].as_u64().expect("a group has both counts");
    group.map_or((0, 0), |group| (count(group, "inbound"), count(group, "outbound")))
}

#[test]
fn a_killed_daemon_misses_nothing_that_happens_until_the_next_one_is_there() {
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let (of_server, of_client) = (Cgroup::create("life-server").unwrap(), Cgroup::create("life-client").unwrap());
    let Some(probe) = plane_with(options(Tier::Tracepoint)) else { return };
    probe.stop();
    let mut server = Peer::start_in(&namespace, &of_server);
    let (mut passing, mut staying) = (Peer::start_in(&namespace, &of_client), Peer::start_in(&namespace, &of_client));
    let mut daemon = daemon(&bpffs.pins());
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
    let groups = daemon.get("/v1/cgroups");
    assert_eq!(ss::connections(&namespace, &[port, born_unseen]), (11, 11));
    assert_eq!((open_of(&groups, &of_server), open_of(&groups, &of_client)), ((11, 0), (0, 11)));

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
fn a_clean_stop_leaves_no_pin_and_no_program() {
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    assert_eq!(seen(&first).pins.state, PinState::Pinned);
    let before = attached(&seen(&first));
    let own: BTreeSet<String> = attached_now().difference(&before).cloned().collect();
    assert!(own.iter().any(|program| program.contains("inet_sock_set_s")), "{own:?}");
    assert!(fs::read_dir(bpffs.pins()).unwrap().count() > 8);
    first.stop();
    assert!(!bpffs.pins().exists());
    assert_eq!(own.intersection(&attached_now()).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn a_plane_that_hands_over_leaves_its_programs_to_the_next() {
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let group = Cgroup::create("handed-over").unwrap();
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let mut peer = Peer::start_in(&namespace, &group);
    let port = peer.listen("127.0.0.1", 16);
    peer.connect("127.0.0.1", port, 3);
    eventually(&first, "3 queued", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total == Some(3))
    });
    let since = seen(&first).pins.counting_since_ns;
    first.hand_over();

    peer.connect("127.0.0.1", port, 2);
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    let now = seen(&second);
    assert_eq!((now.pins.state, now.pins.counting_since_ns, now.pins.note.as_str()), (PinState::Adopted, since, ""));
    assert_eq!(now.hooks.iter().filter(|hook| hook.active).count(), seen(&second).hooks.len());
    assert_eq!(listener(&now, &namespace, port).unwrap().enqueued_total, Some(5));
    assert_eq!(as_ss(&now, &namespace), ss::listeners(&namespace));
    assert_eq!(open_in(&now, group.path()), (5, 5));
    second.stop();
    assert!(!bpffs.pins().exists());
}

#[test]
fn a_listener_older_than_the_programs_keeps_its_totals_across_lives() {
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
}

#[test]
fn other_settings_start_clean_and_say_so() {
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let before = attached(&seen(&first));
    first.hand_over();
    let left: BTreeSet<String> = attached_now().difference(&before).cloned().collect();
    assert!(!left.is_empty());
    let fewer = Options { max_listeners: Some(512), ..pinned_in(&bpffs.pins()) };
    let second = plane_with(fewer).unwrap();
    let now = seen(&second);
    assert_eq!(now.pins.state, PinState::Pinned);
    assert!(now.pins.note.contains("kernel.max_listeners was 16384 and is 512"), "{}", now.pins.note);
    assert_eq!(left.intersection(&attached_now()).collect::<Vec<_>>(), Vec::<&String>::new(), "the old ones are gone");
}

#[test]
fn half_made_pins_are_cleared_and_never_mixed_with_new_ones() {
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    first.hand_over();
    for (lost, reason) in [
        ("manifest", "was not finished"),
        ("link_inet_sock_set_state_twin", "link inet_sock_set_state_twin is gone"),
        ("map_CGROUPS", "map CGROUPS"),
    ] {
        fs::remove_file(bpffs.pins().join(lost)).unwrap();
        let next = plane_with(pinned_in(&bpffs.pins())).unwrap();
        let now = seen(&next);
        assert_eq!(now.pins.state, PinState::Pinned, "without {lost}");
        assert!(now.pins.note.starts_with("started clean") && now.pins.note.contains(reason), "{}", now.pins.note);
        next.hand_over();
    }
    let last = plane_with(pinned_in(&bpffs.pins())).unwrap();
    assert_eq!(seen(&last).pins.state, PinState::Adopted);
}

#[test]
fn a_second_daemon_counts_for_itself_and_leaves_the_first_ones_pins_alone() {
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    let before = fs::read_dir(bpffs.pins()).unwrap().count();
    let second = plane_with(pinned_in(&bpffs.pins())).unwrap();
    let now = seen(&second);
    assert_eq!(now.pins.state, PinState::Unavailable);
    assert!(now.pins.note.contains(&format!("in use by process {}", std::process::id())), "{}", now.pins.note);
    assert!(now.degraded.iter().any(|line| line.starts_with("counts end with the daemon")));
    second.stop();
    assert_eq!(fs::read_dir(bpffs.pins()).unwrap().count(), before);
    let required = PinOptions { folder: bpffs.pins(), required: true };
    let refused = kernel::spawn(Options { pins: Some(required), ..options(Tier::Tracepoint) });
    assert!(matches!(refused, Err(PlaneError::Pins(_))), "{refused:?}");
    first.stop();
}

#[test]
fn without_a_writable_bpffs_counting_goes_on_unpinned() {
    let Some(bpffs) = bpffs() else { return };
    bpffs.make_read_only().unwrap();
    let elsewhere = std::env::temp_dir().join("governor-no-bpffs");
    for (folder, reason) in [(bpffs.pins(), "Read-only file system"), (elsewhere.clone(), "not on a bpffs")] {
        let Some(plane) = plane_with(pinned_in(&folder)) else { return };
        let now = seen(&plane);
        assert_eq!(now.pins.state, PinState::Unavailable);
        assert!(now.pins.note.contains(reason), "{}", now.pins.note);
        assert!(now.hooks.iter().any(|hook| hook.active && hook.hook.contains("inet_sock_set_state")));
    }
    assert!(!elsewhere.exists());
}

#[test]
fn a_tier_without_programs_removes_what_an_earlier_one_pinned() {
    let Some(bpffs) = bpffs() else { return };
    let Some(first) = plane_with(pinned_in(&bpffs.pins())) else { return };
    first.hand_over();
    let second = kernel::spawn(Options { forced_tier: Some(Tier::Netlink), ..pinned_in(&bpffs.pins()) }).unwrap();
    let now = seen(&second);
    assert_eq!(now.pins.state, PinState::Off);
    assert!(now.pins.note.contains("removed"), "{}", now.pins.note);
    assert!(!bpffs.pins().exists());
}

#[test]
fn doctor_cleans_up_after_a_dead_daemon_and_refuses_while_one_lives() {
    let Some(bpffs) = bpffs() else { return };
    let Some(probe) = plane_with(options(Tier::Tracepoint)) else { return };
    let before = attached(&seen(&probe));
    probe.stop();
    let mut daemon = daemon(&bpffs.pins());
    let said = |daemon: &Daemon| {
        let output = daemon.clean();
        (output.status.code(), String::from_utf8(output.stdout).expect("it prints text"))
    };
    let (code, text) = said(&daemon);
    assert!(code == Some(1) && text.contains("nothing is removed: another governord is running"), "{text}");
    assert_eq!(daemon.get("/v1/status")["pins"]["state"], "pinned");

    daemon.kill();
    let left: BTreeSet<String> = attached_now().difference(&before).cloned().collect();
    // One that watches the kernel on the same pins and has other sockets.
    let other = plane_with(pinned_in(&bpffs.pins())).expect("the tier worked before");
    let (code, text) = said(&daemon);
    assert!(code == Some(1) && text.contains("in use by process"), "{text}");
    other.hand_over();

    let (code, text) = said(&daemon);
    assert_eq!(code, Some(0), "{text}");
    for part in ["proxy.sock", "control.sock", "manifest", "link_inet_sock_set_state", "map_LISTENERS"] {
        assert!(text.lines().any(|line| line.starts_with("removed ") && line.ends_with(part)), "{part}: {text}");
    }
    assert!(!bpffs.pins().exists() && !daemon.socket().exists() && !daemon.control_socket().exists());
    assert_eq!(left.intersection(&attached_now()).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(said(&daemon), (Some(0), "there is nothing to remove\n".to_owned()));
}
