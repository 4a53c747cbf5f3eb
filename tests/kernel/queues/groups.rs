//! SO_REUSEPORT groups: each member's queue, and what becomes of it, and of handshakes in the middle, when a member closes.

use crate::world::{eventually, inbound_on, listeners_in, namespace, open_in, plane, sees, tiers};
use governor_kernel::Plane;
use governor_kernel::accounting::groups::groups;
use governor_observation::{HookEvent, ListenerView, Observation, Tier};
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::machine::nstat;
use support::machine::ss;
use support::programs::peer::Peer;

/// Whether the queue of a listener that closes goes to another of its group.
pub(crate) const MIGRATE: &str = "ipv4/tcp_migrate_req";

#[test]
fn members_of_a_reuse_port_group_are_rows_of_their_own_and_the_group_is_as_full_as_the_fullest() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = server.listen_group("127.0.0.1", 3, 2);
        client.begin("127.0.0.1", port, 40);

        let seen = eventually(&plane, "both full", |seen| {
            let rows = listeners_in(seen, &namespace);
            rows.len() == 2 && rows.iter().all(|row| row.depth == 4)
        });
        let groups = groups(&listeners_in(&seen, &namespace));
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!((group.members, group.depth, group.full), (2, 8, Some(2)));
        assert_eq!((group.worst_utilisation, group.cookies.len()), (Some(1.0), 2));
    }
}

#[test]
fn closing_a_member_loses_its_queue_unless_migration_is_on() {
    let _machine = support::alone();
    for (tier, migrate) in tiers().flat_map(|tier| [(tier, "0"), (tier, "1")]) {
        let Some(namespace) = namespace() else { return };
        if !hands_on(&namespace, migrate) {
            return;
        }
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = server.listen_group("127.0.0.1", 100, 2);
        client.connect("127.0.0.1", port, 40);
        // The kernel's table and the programs' counts are of two moments of a tick.
        let seen = eventually(&plane, "40 queued", |seen| {
            let rows = listeners_in(seen, &namespace);
            let all = |row: &ListenerView| row.enqueued_total == Some(row.depth.into());
            let counted = !sees(seen, HookEvent::Enqueue) || rows.iter().all(all);
            rows.len() == 2 && rows.iter().map(|row| row.depth).sum::<u32>() == 40 && counted
        });
        let before = listeners_in(&seen, &namespace);
        server.close_member();
        // A table read in the middle of the close has neither the closing member nor all that it handed on.
        let of_survivor = |left: &ListenerView| before.iter().find(|row| row.cookie == left.cookie).unwrap();
        let seen = eventually(&plane, "one member, with all that is left", |seen| {
            let rows = listeners_in(seen, &namespace);
            let expected = |left: &ListenerView| if migrate == "1" { 40 } else { of_survivor(left).depth };
            rows.len() == 1 && rows[0].depth == expected(&rows[0])
        });
        let left = listeners_in(&seen, &namespace).remove(0);
        let survivor = of_survivor(&left);
        assert_eq!(left.accepted_total, survivor.accepted_total.map(|_| 0), "nothing was accepted");
        if tier >= Tier::Tracepoint && migrate == "1" && sees(&seen, HookEvent::Enqueue) {
            assert_eq!(left.enqueued_total, survivor.enqueued_total, "nothing arrived");
            assert!(left.oldest_queued_seconds >= survivor.oldest_queued_seconds, "what is handed on keeps its age");
            server.accept_of_member(40);
            let seen = eventually(&plane, "40 accepted", |seen| {
                listeners_in(seen, &namespace).iter().all(|row| row.accepted_total == Some(40) && row.depth == 0)
            });
            let left = listeners_in(&seen, &namespace).remove(0);
            assert_eq!(left.enqueued_total, survivor.enqueued_total, "nothing arrived");
            if sees(&seen, HookEvent::Accept) {
                assert_eq!(left.sojourn.map(|sojourn| sojourn.count), Some(40), "each has one wait, over both queues");
            }
        }
    }
}

/// How a handshake that was in the middle when its listener closed comes to the listener that goes on with it. The kernel
/// copies the request either way (`inet_reqsk_clone`), before it is a connection or as it becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handover {
    /// By the request's timer, which sends the SYN-ACK again.
    ByTimer,
    /// By what the client sends.
    ByClient,
}

#[test]
fn handshakes_of_a_closing_member_that_are_in_the_middle_arrive_once_at_another() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        if !hands_on(&namespace, "1") {
            return;
        }
        let of_server = Cgroup::create("half-server").unwrap();
        let of_clients = Cgroup::create("half-clients").unwrap();
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut clients = std::array::from_fn(|_| Peer::start_in(&namespace, &of_clients));
        for handover in [Handover::ByTimer, Handover::ByClient] {
            let open = |seen: &Observation| [&of_server, &of_clients].map(|group| open_in(seen, group.path()));
            hand_over(handover, (tier, &plane, &namespace), &mut server, &mut clients, open);
            server.close_all();
            clients.iter_mut().for_each(Peer::close_connections);
            let seen = eventually(&plane, "nothing open", |seen| open(seen) == [(0, 0); 2]);
            let lost = seen.closed.iter().filter(|place| place.netns == namespace.inode());
            let lost: u64 = lost.filter_map(|place| place.lost).sum();
            assert_eq!((lost, seen.health.drift, seen.health.untracked), (0, 0, 0), "{tier}, {handover:?}");
        }
    }
}

/// One of two members closes in the middle of handshakes; in the end everything is accepted at the other. `open` tells what
/// is open on either side.
fn hand_over(
    handover: Handover,
    (tier, plane, namespace): (Tier, &Plane, &Netns),
    server: &mut Peer,
    [first, later, leaver]: &mut [Peer; 3],
    open: impl Fn(&Observation) -> [(u64, u64); 2],
) {
    let [handed_before, opened_before] = counts(namespace);
    let port = server.listen_group("127.0.0.1", 100, 2);
    first.connect("127.0.0.1", port, 20);
    let of_both = |seen: &_| listeners_in(seen, namespace).iter().map(|row| row.depth).sum::<u32>();
    eventually(plane, "20 queued", |seen| of_both(seen) == 20);

    // The member that will close hears no end of a handshake, the other one all of them.
    server.hear_syns_only_of_member(0);
    later.connect("127.0.0.1", port, 20);
    leaver.connect("127.0.0.1", port, 20);
    let half_open = || u32::try_from(ss::half_open(namespace, port)).expect("at most 60");
    let seen = eventually(plane, "all queued but those in the middle", |seen| {
        let rows = listeners_in(seen, namespace);
        let all = |row: &ListenerView| row.enqueued_total == Some(row.depth.into());
        let counted = !sees(seen, HookEvent::Enqueue) || rows.iter().all(all);
        of_both(seen) + half_open() == 60 && counted
    });
    let in_the_middle = 60 - of_both(&seen);
    let before = listeners_in(&seen, namespace);
    let counts_enqueues = sees(&seen, HookEvent::Enqueue);
    let counts_accepts = sees(&seen, HookEvent::Accept);
    if handover == Handover::ByTimer {
        server.hear_syns_only_of_member(1);
    }
    server.close_member();
    let seen = eventually(plane, "one member", |seen| listeners_in(seen, namespace).len() == 1);
    let cookie = listeners_in(&seen, namespace).remove(0).cookie;
    let (left, closed): (Vec<_>, Vec<_>) = before.iter().partition(|row| row.cookie == cookie);
    let (left, closed) = (left[0], closed[0]);
    assert!(in_the_middle > 0 && closed.depth > 0, "60 connections fall to both of two");

    if handover == Handover::ByTimer {
        // Every request has been handed on and is in the middle still: nothing arrived by that.
        eventually(plane, "requests at the other member", |_| {
            counts(namespace)[0] - handed_before == u64::from(closed.depth + in_the_middle)
        });
        let seen = eventually(plane, "what waited", |seen| of_both(seen) == 60 - in_the_middle);
        assert_eq!(half_open(), in_the_middle);
        assert_eq!(listeners_in(&seen, namespace)[0].enqueued_total, left.enqueued_total, "nothing arrived");
        server.hear_all_of_member(0);
    }
    later.say(0, 20);
    leaver.say(0, 20);
    eventually(plane, "all queued", |seen| {
        let row = listeners_in(seen, namespace).remove(0);
        let arrived = u64::from(left.depth + in_the_middle);
        row.depth == 60
            && row.abandoned == Some(0)
            && (!counts_enqueues || (row.enqueued_total, row.accepted_total) == (Some(arrived), Some(0)))
            && open(seen) == [(inbound_on(tier, 60, 0), 0), (0, 60)]
    });
    assert_eq!(half_open(), 0);
    let handed = counts(namespace)[0] - handed_before;
    assert_eq!(handed, u64::from(closed.depth + in_the_middle));

    leaver.close_connections();
    eventually(plane, "20 of 60 gone", |seen| listeners_in(seen, namespace)[0].abandoned == Some(20));
    server.accept_of_member(60);
    eventually(plane, "60 accepted", |seen| {
        let row = listeners_in(seen, namespace).remove(0);
        let waits = row.sojourn.as_ref().map(|sojourn| sojourn.count);
        row.depth == 0
            && (!counts_enqueues || row.accepted_total == Some(60))
            && (!counts_accepts || (row.abandoned_total, waits) == (Some(20), Some(60)))
            && open(seen)[0] == (60, 0)
    });
    assert_eq!(counts(namespace)[1] - opened_before, 60, "each became one connection");
}

/// Sets whether the kernel hands on; `false`, and a line that says why, where it cannot. One that has the setting need not
/// have the code, but then it does not count either.
fn hands_on(namespace: &Netns, migrate: &str) -> bool {
    let works = namespace.set(MIGRATE, migrate) && nstat::knows(namespace, "TcpExtTCPMigrateReqSuccess");
    if !works {
        support::skip("this kernel hands no request on");
    }
    works
}

/// Requests that the kernel handed on to another listener of their group, queued ones among them, and connections that came.
fn counts(namespace: &Netns) -> [u64; 2] {
    let names = ["TcpExtTCPMigrateReqSuccess", "TcpPassiveOpens", "TcpExtTCPMigrateReqFailure"];
    let counts = nstat::counters(namespace, &names);
    assert_eq!(counts[2], 0, "there is room");
    [counts[0], counts[1]]
}
