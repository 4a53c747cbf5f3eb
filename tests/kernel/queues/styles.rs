//! Every way to accept counts each accept once and returns to nothing after the close, whoever closes; also for those
//! that slept in accept before the programs came.

use crate::world::{best_plane, eventually, listener, namespace, open_in, sees};
use governor_observation::{Basis, HookEvent, ListenerView};
use support::machine::cgroup::Cgroup;
use support::programs::peer::Peer;
use support::ring;
use support::skip;

const CONNECTIONS: u32 = 20;

/// Those that this kernel has.
fn styles() -> Vec<&'static str> {
    let mut styles = vec!["asleep", "many", "events", "workers"];
    if ring::is_available() {
        styles.push("ring");
    } else {
        skip("no io_uring here");
    }
    styles
}

/// When the server begins to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    BeforeAttach,
    AfterAttach,
}

fn accepts_count_once(begins: Begins) {
    for (index, style) in styles().into_iter().enumerate() {
        let Some(namespace) = namespace() else { return };
        let of_owner = Cgroup::create(&format!("style-owner-{style}")).expect("cgroups can be made");
        let of_server = Cgroup::create(&format!("style-server-{style}")).expect("cgroups can be made");
        let of_client = Cgroup::create(&format!("style-client-{style}")).expect("cgroups can be made");
        let mut server = Peer::start_in(&namespace, &of_owner);
        let mut client = Peer::start_in(&namespace, &of_client);
        let port = server.listen("127.0.0.1", 64);
        // The listener stays its owner's; whoever accepts is of another group.
        of_server.add(server.pid());
        if begins == Begins::BeforeAttach {
            server.begin_accepting(style, port, CONNECTIONS);
        }
        let Some(plane) = best_plane() else { return };
        if begins == Begins::AfterAttach {
            server.begin_accepting(style, port, CONNECTIONS);
        }
        eventually(&plane, "the listener", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total.is_some())
        });
        client.connect("127.0.0.1", port, CONNECTIONS);
        server.finish_accepting();

        let sees_accepts = sees(&plane.observations().borrow(), HookEvent::Accept);
        let (counts, other) = if sees_accepts { (&of_server, &of_owner) } else { (&of_owner, &of_server) };
        let seen = eventually(&plane, style, |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.accepted_total == Some(CONNECTIONS.into()))
                && open_in(seen, counts.path()) == (CONNECTIONS.into(), 0)
        });
        let row = listener(&seen, &namespace, port).expect("it was seen just now");
        assert_eq!((row.enqueued_total, row.depth), (Some(CONNECTIONS.into()), 0), "{style}");
        assert_eq!(open_in(&seen, other.path()), (0, 0), "{style}: each connection counts in one group");
        let group = seen.cgroups.iter().flatten().find(|group| group.id == counts.id());
        let group = group.expect("it was seen just now");
        assert_eq!(group.inbound_basis, if sees_accepts { Basis::Acceptor } else { Basis::Owner });
        assert_eq!(group.inbound_owned.is_some(), sees_accepts);
        if sees_accepts {
            eventually(&plane, "the owner beside the acceptor", |seen| {
                let owner = seen.cgroups.iter().flatten().find(|group| group.id == of_owner.id());
                owner.is_some_and(|owner| (owner.inbound, owner.inbound_owned) == (0, Some(CONNECTIONS.into())))
            });
        }
        if let Some(sojourn) = row.sojourn {
            assert_eq!(sojourn.count, u64::from(CONNECTIONS), "{style}: each accept has one wait");
        }

        if index % 2 == 0 {
            client.close_connections();
            server.close_all();
        } else {
            server.close_all();
            client.close_connections();
        }
        let seen = eventually(&plane, "nothing open", |seen| {
            open_in(seen, counts.path()) == (0, 0) && open_in(seen, of_client.path()) == (0, 0)
        });
        assert_eq!((seen.health.drift, seen.health.untracked), (0, 0), "{style}");
    }
}

#[test]
fn every_style_of_accepting_counts_once() {
    let _machine = support::alone();
    accepts_count_once(Begins::AfterAttach);
}

#[test]
fn every_style_of_accepting_counts_once_when_it_slept_before_attach() {
    let _machine = support::alone();
    accepts_count_once(Begins::BeforeAttach);
}

#[test]
fn an_accept_that_fails_counts_nothing() {
    let _machine = support::alone();
    const QUEUED: u32 = 5;
    let Some(namespace) = namespace() else { return };
    let Some(plane) = best_plane() else { return };
    let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
    let port = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", port, QUEUED);
    assert_eq!(server.accept_without_descriptors(port, 10), 10, "no descriptor, no accept");
    let measured = |row: &ListenerView| row.sojourn.as_ref().map(|sojourn| sojourn.count);
    let seen = eventually(&plane, "what waits", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total == Some(QUEUED.into()))
    });
    let row = listener(&seen, &namespace, port).expect("it was seen just now");
    assert_eq!((row.depth, row.accepted_total), (QUEUED, Some(0)));
    assert!(measured(&row).unwrap_or(0) == 0);

    server.accept(port, QUEUED);
    let seen = eventually(&plane, "what was accepted", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| {
            row.accepted_total == Some(QUEUED.into()) && measured(&row).is_none_or(|count| count == u64::from(QUEUED))
        })
    });
    assert_eq!(listener(&seen, &namespace, port).map(|row| row.depth), Some(0));
}
