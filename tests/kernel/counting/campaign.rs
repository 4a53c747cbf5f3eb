//! Connections of every ending, with the daemon killed or stopped in between: nothing may be left on any gauge or in any
//! map. Short in a normal run; `GOVERNOR_FULL=1` makes it 100,000 connections.

use crate::daemons::life::{bpffs, cgroup_entries, daemon, listener_entries, open_of, row_of, rows_in, wrong};
use crate::queues::groups::MIGRATE;
use crate::world::namespace;
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::programs::peer::Peer;

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
    let _machine = support::alone();
    let full = std::env::var_os("GOVERNOR_FULL").is_some_and(|value| value == "1");
    let (rounds, rounds_a_life) = if full { (2_000, 100) } else { (100, 25) };
    let Some(namespace) = namespace() else { return };
    let Some(bpffs) = bpffs() else { return };
    let pins = bpffs.pins();
    let of_server = Cgroup::create("campaign-server").unwrap();
    let of_client = Cgroup::create("campaign-client").unwrap();
    // Without it the queue is lost, which is an ending too.
    let _handed_on = namespace.set(MIGRATE, "1");
    // Survives every life of the daemon, and is counted in each.
    let (mut server, mut client) = (Peer::start_in(&namespace, &of_server), Peer::start_in(&namespace, &of_client));
    let steady = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", steady, 3);
    server.accept(steady, 3);

    let Some(mut daemon) = daemon(&pins) else { return };
    let mut lives = 0;
    let mut came = 0;
    for (round, ending) in (0..rounds).zip(ENDINGS.iter().cycle()) {
        play(*ending, &namespace, &of_server, &of_client);
        if round % rounds_a_life != rounds_a_life - 1 {
            continue;
        }
        let by = format!("by round {round} of {rounds}, {ending:?}, life {lives}");
        daemon.wait_for("/v1/cgroups", |groups| {
            open_of(groups, &of_server) == (3, 0) && open_of(groups, &of_client) == (0, 3)
        });
        let rows = daemon.wait_for("/v1/listeners", |rows| rows_in(rows, &namespace).len() == 1);
        assert_eq!(row_of(&rows, &namespace, steady).unwrap()["accepted_total"], came, "{by}");
        let status = daemon.get("/v1/status");
        assert_eq!(wrong(&status), [0, 0, 0], "{by}: {status:#}");

        // Every other life ends with a crash, and the next one goes on with its counts. After a stop all begins anew.
        let crash = lives % 2 == 0;
        if crash {
            daemon.kill();
        } else {
            daemon.halt();
        }
        // Nobody watches.
        play(*ending, &namespace, &of_server, &of_client);
        let mut passer = Peer::start_in(&namespace, &of_client);
        passer.connect("127.0.0.1", steady, 2);
        server.accept(steady, 2);
        passer.reset_connections();
        daemon.restart().unwrap();
        let status = daemon.get("/v1/status");
        assert_eq!(status["pins"]["state"], if crash { "adopted" } else { "pinned" }, "{by}: {status:#}");
        came = if crash { came + 2 } else { 0 };
        lives += 1;
    }
    client.close_all();
    server.close_all();
    daemon.wait_for("/v1/cgroups", |groups| {
        open_of(groups, &of_server) == (0, 0) && open_of(groups, &of_client) == (0, 0)
    });
    daemon.wait_for("/v1/listeners", |rows| rows_in(rows, &namespace).is_empty());
    let audits = daemon.get("/v1/status")["kernel"]["audits"].as_u64().unwrap();
    let status = daemon.wait_for("/v1/status", |status| status["kernel"]["audits"].as_u64() > Some(audits + 1));
    assert_eq!(wrong(&status), [0, 0, 0], "{status:#}");

    drop((server, client));
    let (netns, cgroups) = (namespace.inode(), [of_server.id(), of_client.id()]);
    drop((namespace, of_server, of_client));
    daemon.wait_for("/v1/status", |_| listener_entries(&pins, &[netns]) == 0 && cgroup_entries(&pins, &cgroups) == 0);
    assert!(daemon.stop().success());
    assert!(!pins.exists());
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
