//! Connections of every ending, with the plane started anew in between: nothing may be left on any gauge. Short in a
//! normal run; `GOVERNOR_FULL=1` makes it 100,000 connections.

use crate::variants::MIGRATE;
use crate::world::{eventually, listeners_in, namespace, open_in, options, plane_with};
use governor_user::kernel::{Options, view::Tier};
use std::time::Duration;
use support::{cgroup::Cgroup, netns::Netns, peer::Peer};

/// Connections a round.
const BATCH: u32 = 50;

/// How the connections of a round end. Rounds take turns.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Accepted, the client closes first.
    ByClient,
    /// Accepted, the server closes first.
    ByServer,
    /// Accepted, the client resets.
    Reset,
    /// The client closes while half of them still wait.
    AbandonedInQueue,
    /// The client resets while half of them still wait.
    ResetInQueue,
    /// The listener closes on half of them.
    ListenerClosed,
    /// The server is killed.
    ServerKilled,
    /// Both are killed and their network namespace deleted.
    NamespaceDeleted,
    /// One of two sockets of a group closes and hands its queue on.
    Migrated,
}

const ENDINGS: [Ending; 9] = [
    Ending::ByClient,
    Ending::ByServer,
    Ending::Reset,
    Ending::AbandonedInQueue,
    Ending::ResetInQueue,
    Ending::ListenerClosed,
    Ending::ServerKilled,
    Ending::NamespaceDeleted,
    Ending::Migrated,
];

#[test]
fn nothing_is_left_of_connections_of_every_ending_across_restarts() {
    let full = std::env::var_os("GOVERNOR_FULL").is_some_and(|value| value == "1");
    let (rounds, rounds_a_life) = if full { (2_000, 100) } else { (100, 25) };
    let Some(namespace) = namespace() else { return };
    let of_server = Cgroup::create("campaign-server").unwrap();
    let of_client = Cgroup::create("campaign-client").unwrap();
    let busy = Options { audit_every: Duration::from_millis(200), ..options(Tier::Tracepoint) };
    // Without it the queue is lost, which is an ending too.
    let _handed_on = namespace.set(MIGRATE, "1");
    // Survives every life of the plane, and is counted in each.
    let (mut server, mut client) = (Peer::start_in(&namespace, &of_server), Peer::start_in(&namespace, &of_client));
    let steady = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", steady, 3);

    let Some(mut plane) = plane_with(busy.clone()) else { return };
    for (round, ending) in (0..rounds).zip(ENDINGS.iter().cycle()) {
        play(*ending, &namespace, &of_server, &of_client);
        if round % rounds_a_life == rounds_a_life - 1 {
            let seen = eventually(&plane, "only what stays", |seen| {
                open_in(seen, of_server.path()) == (3, 0)
                    && open_in(seen, of_client.path()) == (0, 3)
                    && listeners_in(seen, &namespace).len() == 1
            });
            let health = seen.health;
            let wrong = (health.drift, health.untracked, health.lost_events);
            assert_eq!(wrong, (0, 0, 0), "by round {round} of {rounds}, {ending:?}: {health:?}");
            plane.stop();
            // What happens while nobody watches is in the next life's seed.
            play(*ending, &namespace, &of_server, &of_client);
            plane = plane_with(busy.clone()).expect("the tier worked before");
        }
    }
    client.close_all();
    server.close_all();
    let seen = eventually(&plane, "nothing", |seen| {
        open_in(seen, of_server.path()) == (0, 0)
            && open_in(seen, of_client.path()) == (0, 0)
            && listeners_in(seen, &namespace).is_empty()
    });
    let audits = seen.health.audits;
    let seen = eventually(&plane, "an audit at rest", |seen| seen.health.audits > audits + 1);
    assert_eq!((seen.health.drift, seen.health.untracked, seen.health.lost_events), (0, 0, 0));
}

/// One round: [`BATCH`] connections that are all gone at its end.
fn play(ending: Ending, namespace: &Netns, of_server: &Cgroup, of_client: &Cgroup) {
    if matches!(ending, Ending::NamespaceDeleted) {
        let passing = Netns::create().expect("a namespace could be made before");
        let (mut server, mut client) = (Peer::start_in(&passing, of_server), Peer::start_in(&passing, of_client));
        let port = server.listen("127.0.0.1", 128);
        client.connect("127.0.0.1", port, BATCH);
        server.accept(port, BATCH / 2);
        return;
    }
    let (mut server, mut client) = (Peer::start_in(namespace, of_server), Peer::start_in(namespace, of_client));
    if matches!(ending, Ending::Migrated) {
        let port = server.listen_group("127.0.0.1", 128, 2);
        client.connect("127.0.0.1", port, BATCH);
        server.close_member();
        client.close_connections();
        server.close_all();
        return;
    }
    let port = server.listen("127.0.0.1", 128);
    client.connect("127.0.0.1", port, BATCH);
    let accepted = match ending {
        Ending::AbandonedInQueue | Ending::ResetInQueue | Ending::ListenerClosed => BATCH / 2,
        Ending::ByClient
        | Ending::ByServer
        | Ending::Reset
        | Ending::ServerKilled
        | Ending::NamespaceDeleted
        | Ending::Migrated => BATCH,
    };
    server.accept(port, accepted);
    match ending {
        Ending::ByClient | Ending::AbandonedInQueue => client.close_connections(),
        Ending::Reset | Ending::ResetInQueue => client.reset_connections(),
        Ending::ByServer => server.close_connections(),
        Ending::ListenerClosed => server.close_all(),
        Ending::ServerKilled | Ending::NamespaceDeleted | Ending::Migrated => {}
    }
    // Dropping a peer kills it: whatever is open ends with its process, the server's first.
    drop(server);
    drop(client);
}
