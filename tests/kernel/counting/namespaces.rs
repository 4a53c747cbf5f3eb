//! Namespaces come and go.

use crate::world::{eventually, listener, listeners_in, namespace, plane};
use governor_observation::{Observation, Tier};
use std::{collections::BTreeMap, thread, time::Duration};
use support::programs::peer::Peer;

#[test]
fn a_namespace_that_vanishes_takes_its_listeners_along() {
    let _machine = support::alone();
    for tier in [Tier::Tracepoint, Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 16);
        eventually(&plane, "the listener", |seen| listener(seen, &namespace, port).is_some());
        let inode = namespace.inode();
        drop(server);
        drop(namespace);
        eventually(&plane, "nothing of it", |seen| seen.listeners.iter().all(|row| row.netns != inode));
    }
}

#[test]
fn the_same_port_in_two_namespaces_is_two_listeners() {
    let _machine = support::alone();
    let Some(first) = namespace() else { return };
    let Some(second) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let (mut one, mut other) = (Peer::start(&first), Peer::start(&second));
    one.listen("127.0.0.1", 16);
    other.listen("127.0.0.1", 17);
    let seen = eventually(&plane, "both", |seen| {
        listeners_in(seen, &first).len() == 1 && listeners_in(seen, &second).len() == 1
    });
    assert_eq!(listeners_in(&seen, &first)[0].backlog, Some(16));
    assert_eq!(listeners_in(&seen, &second)[0].backlog, Some(17));
}

#[test]
fn a_steady_listener_is_in_every_observation_while_others_come_and_go() {
    let _machine = support::alone();
    for tier in [Tier::Tracepoint, Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let (mut steady, mut passing) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = steady.listen("127.0.0.1", 16);
        steady.connect("127.0.0.1", port, 3);
        eventually(&plane, "its queue", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 3));
        let observations = plane.observations();
        let churn = thread::spawn(move || {
            for _ in 0..15 {
                for _ in 0..100 {
                    passing.listen("127.0.0.1", 1);
                }
                passing.close_all();
            }
        });
        let mut looks = 0;
        let mut last = 0;
        while !churn.is_finished() || looks < 20 {
            let seen = observations.borrow().clone();
            if seen.taken_ns != last {
                // A table that could not be read whole would be reported, never shown as one without the listener.
                let row = listener(&seen, &namespace, port);
                assert!(row.as_ref().is_some_and(|row| row.depth == 3), "{tier}, look {looks}: {row:?}");
                (looks, last) = (looks + 1, seen.taken_ns);
            }
            thread::sleep(Duration::from_millis(2));
        }
        churn.join().unwrap();
    }
}

#[test]
fn counters_never_fall_while_namespaces_come_and_go() {
    let _machine = support::alone();
    let Some(plane) = plane(Tier::Netlink) else { return };
    // By inode number, which a later namespace may get again.
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut check = |seen: &Observation| {
        for row in &seen.namespaces {
            let Some(overflows) = row.counters.listen_overflows else { continue };
            let before = highest.insert(row.netns, overflows).unwrap_or_default();
            assert!(overflows >= before && overflows < 1_000_000, "{}: {before}, then {overflows}", row.netns);
        }
    };
    for round in 1..=8 {
        let Some(passing) = namespace() else { return };
        let (mut server, mut client) = (Peer::start(&passing), Peer::start(&passing));
        let port = server.listen("127.0.0.1", 1);
        client.begin("127.0.0.1", port, 2 + round);
        let seen = eventually(&plane, "what it refused", |seen| {
            let row = seen.namespaces.iter().find(|row| row.netns == passing.inode());
            row.is_some_and(|row| row.counters.listen_overflows >= Some(round.into()))
        });
        check(&seen);
        drop((server, client));
        check(&plane.observations().borrow());
    }
}
