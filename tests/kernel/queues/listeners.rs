//! One listener at a time: depth, backlog, totals, drops.

use crate::world::{as_ss, eventually, exact, listener, listeners_in, namespace, options, plane, plane_with};
use governor_kernel::Options;
use governor_kernel::Plane;
use governor_observation::{Family, Tier};
use std::time::Duration;
use support::machine::ss;
use support::programs::peer::Peer;

#[test]
fn depth_backlog_and_accepted_equal_ss_at_rest() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(exact()) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", port, 7);
    server.accept(port, 4);

    let seen = eventually(&plane, "7 in, 4 out", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total == Some(7) && row.depth == 3)
    });
    assert_eq!(as_ss(&seen, &namespace), ss::listeners(&namespace));
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!((row.accepted_total, row.backlog), (Some(4), Some(16)));
    assert_eq!((row.drops_total, row.overflows_total), (Some(0), Some(0)));
    assert!(row.cookie.is_some());
    eventually(&plane, "the process that holds it", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.pids == [server.pid()])
    });
}

#[test]
fn a_burst_over_the_backlog_gives_its_peak_although_nobody_polled_then() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 4);
    let slow = Options { tick: Duration::from_secs(3), ..options(exact()) };
    let Some(plane) = plane_with(slow) else { return };
    let polled_at = |plane: &Plane| plane.observations().borrow().taken_ns;

    // Filled and emptied between two polls, so that the peak can only come from the kernel's events.
    let before = polled_at(&plane);
    eventually(&plane, "the next poll", |seen| seen.taken_ns != before);
    let before = polled_at(&plane);
    client.begin("127.0.0.1", port, 8);
    server.accept(port, 5);
    assert_eq!(polled_at(&plane), before, "the plane polled during the burst: this machine is too slow for the test");

    let seen = eventually(&plane, "the peak", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.depth_peak == Some(5))
    });
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!(row.backlog, Some(4), "a full queue holds one more than the backlog");
    // Three were refused at least once; that they are drops is known, and that they are overflows where all SYNs are seen.
    assert!(row.drops_total.is_some_and(|drops| drops >= 3), "{row:?}");
    let known = (exact() == Tier::Trampoline).then_some(row.drops_total).flatten();
    assert_eq!(row.overflows_total, known);
}

#[test]
fn sockets_that_existed_before_are_seeded() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", port, 5);
    server.accept(port, 2);
    let Some(plane) = plane(exact()) else { return };

    let seen = eventually(&plane, "the old listener", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total.is_some())
    });
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!((row.depth, row.enqueued_total, row.accepted_total), (3, Some(3), Some(0)));
    server.accept(port, 3);
    client.connect("127.0.0.1", port, 1);
    eventually(&plane, "4 since first seen", |seen| {
        listener(seen, &namespace, port)
            .is_some_and(|row| row.enqueued_total == Some(4) && row.accepted_total == Some(3))
    });
}

#[test]
fn dual_stack_and_mapped_listeners_are_seen_once() {
    let _machine = support::alone();
    for tier in [exact(), Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let dual = server.listen("::", 16);
        let mapped = server.listen("::ffff:127.0.0.1", 16);
        client.connect("127.0.0.1", dual, 2);
        client.connect("::1", dual, 1);
        client.connect("127.0.0.1", mapped, 1);

        let seen = eventually(&plane, "both queues", |seen| {
            let depth = |port| listener(seen, &namespace, port).map(|row| row.depth);
            depth(dual) == Some(3) && depth(mapped) == Some(1)
        });
        assert_eq!(listeners_in(&seen, &namespace).len(), 2);
        assert_eq!(listener(&seen, &namespace, dual).unwrap().family, Family::Ipv6);
        assert_eq!(listener(&seen, &namespace, mapped).unwrap().family, Family::Ipv4);
        if tier != Tier::Netlink {
            eventually(&plane, "each enqueue counted once", |seen| {
                listener(seen, &namespace, dual).is_some_and(|row| row.enqueued_total == Some(3))
            });
        }
    }
}

#[test]
fn a_queue_of_dead_connections_is_still_deep() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 64);
    client.connect("127.0.0.1", port, 5);
    client.close_connections();
    eventually(&plane, "5 dead ones", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 5));
}

#[test]
fn failed_accepts_are_no_accepts() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(exact()) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 50);
    client.connect("127.0.0.1", port, 5);
    assert_eq!(server.accept_without_descriptors(port, 10_000), 10_000);
    let seen = eventually(&plane, "5 queued", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.depth == 5 && row.enqueued_total == Some(5))
    });
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!((row.accepted_total, row.drops_total, row.overflows_total), (Some(0), Some(0), Some(0)));
    assert_eq!(seen.health.lost_events, 0);
    server.accept(port, 5);
    eventually(&plane, "5 accepted", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.accepted_total == Some(5))
    });
}
