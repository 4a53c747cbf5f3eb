//! Listeners that are not one plain socket, and queues whose clients are gone.

use crate::world::{eventually, listener, listeners_in, namespace, open_in, plane};
use governor_user::kernel::{
    groups::groups,
    view::{Protocol, Tier},
};
use std::fs;
use support::{cgroup::Cgroup, netns::Netns, peer::Peer};

const TIERS: [Tier; 2] = [Tier::Tracepoint, Tier::Netlink];

#[test]
fn dead_connections_keep_their_place_and_are_named() {
    for tier in TIERS {
        let Some(namespace) = namespace() else { return };
        let of_server = Cgroup::create("dead-queue").unwrap();
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut client = Peer::start(&namespace);
        let mut stayer = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 64);
        stayer.connect("127.0.0.1", port, 2);
        client.connect("127.0.0.1", port, 5);
        eventually(&plane, "7 that wait", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 7 && row.abandoned == Some(0))
        });
        client.close_connections();
        eventually(&plane, "5 of 7 gone", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 7 && row.abandoned == Some(5))
        });
        if tier == Tier::Netlink {
            eventually(&plane, "only the live ones in the owner's group", |seen| {
                open_in(seen, of_server.path()) == (2, 0)
            });
        }
        // The two that stayed came first; accept of a dead one still works.
        server.accept(port, 4);
        eventually(&plane, "3 of 3 gone", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 3 && row.abandoned == Some(3))
        });
    }
}

#[test]
fn members_of_a_reuse_port_group_are_rows_of_their_own_and_the_group_is_as_full_as_the_fullest() {
    for tier in TIERS {
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
    for migrate in ["0", "1"] {
        let Some(namespace) = namespace() else { return };
        if !set_migration(&namespace, migrate) {
            support::skip("this kernel has no tcp_migrate_req");
            return;
        }
        let Some(plane) = plane(Tier::Netlink) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = server.listen_group("127.0.0.1", 100, 2);
        client.connect("127.0.0.1", port, 40);
        let seen = eventually(&plane, "40 queued", |seen| {
            let rows = listeners_in(seen, &namespace);
            rows.len() == 2 && rows.iter().map(|row| row.depth).sum::<u32>() == 40
        });
        let before = listeners_in(&seen, &namespace);
        server.close_member();
        let seen = eventually(&plane, "one member", |seen| listeners_in(seen, &namespace).len() == 1);
        let left = listeners_in(&seen, &namespace).remove(0);
        let survivor = before.iter().find(|row| row.cookie == left.cookie).unwrap();
        let expected = if migrate == "1" { 40 } else { survivor.depth };
        assert_eq!(left.depth, expected, "tcp_migrate_req={migrate}");
    }
}

#[test]
fn an_mptcp_listener_is_listed_once_and_named() {
    for tier in TIERS {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = match server.listen_mptcp("127.0.0.1", 5) {
            Ok(port) => port,
            Err(error) => {
                support::skip(&format!("this kernel has no MPTCP: {}", error.trim()));
                return;
            }
        };
        client.connect("127.0.0.1", port, 2);
        let seen =
            eventually(&plane, "2 queued", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 2));
        let rows = listeners_in(&seen, &namespace);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].protocol, rows[0].backlog), (Protocol::Mptcp, Some(5)));
    }
}

#[test]
fn backlog_nought_holds_one() {
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 0);
    client.begin("127.0.0.1", port, 3);
    let seen =
        eventually(&plane, "one queued", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 1));
    let group = groups(&listeners_in(&seen, &namespace)).remove(0);
    assert_eq!((group.full, group.backlog), (Some(1), Some(0)));
}

/// Whether this kernel takes it.
pub(crate) fn set_migration(namespace: &Netns, value: &str) -> bool {
    let script = format!("echo {value} > /proc/sys/net/ipv4/tcp_migrate_req");
    let command = ["netns", "exec", namespace.name(), "sh", "-c", &script];
    fs::exists("/proc/sys/net/ipv4/tcp_migrate_req").unwrap_or(false)
        && std::process::Command::new("ip").args(command).status().is_ok_and(|status| status.success())
}
