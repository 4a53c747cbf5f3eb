//! Listeners that are not one plain socket, and queues whose clients are gone.

use crate::world::{eventually, listener, listeners_in, namespace, open_in, plane, sees, tiers};
use governor_kernel::accounting::groups::groups;
use governor_observation::{FindingKind, HookEvent, Protocol, Tier};
use support::machine::cgroup::Cgroup;
use support::machine::nstat;
use support::machine::ss;
use support::programs::peer::Peer;

#[test]
fn dead_connections_keep_their_place_and_are_named() {
    let _machine = support::alone();
    for tier in tiers() {
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
        let seen = eventually(&plane, "3 of 3 gone", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 3 && row.abandoned == Some(3))
        });
        if sees(&seen, HookEvent::Accept) {
            eventually(&plane, "2 of the 4 accepted were gone", |seen| {
                listener(seen, &namespace, port)
                    .is_some_and(|row| (row.accepted_total, row.abandoned_total) == (Some(4), Some(2)))
            });
        } else {
            assert_eq!(listener(&seen, &namespace, port).unwrap().abandoned_total, None);
        }
    }
}

#[test]
fn fast_open_connections_are_in_the_queue_before_they_are_established() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        let of_server = Cgroup::create("fast-server").unwrap();
        let of_client = Cgroup::create("fast-client").unwrap();
        // Client and server, data with the SYN, and no cookie asked for on either side.
        assert!(namespace.set("ipv4/tcp_fastopen", "519"));
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut client = Peer::start_in(&namespace, &of_client);
        let port = server.listen_fast("127.0.0.1", 5, 16);
        client.connect_fast("127.0.0.1", port, 6);
        let seen = eventually(&plane, "a full queue", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 6 && row.is_full() == Some(true))
        });
        assert_eq!(nstat::counters(&namespace, &["TcpExtTCPFastOpenPassive"]), [6]);
        if tier >= Tier::Tracepoint && sees(&seen, HookEvent::Enqueue) {
            eventually(&plane, "6 entered", |seen| {
                listener(seen, &namespace, port).is_some_and(|row| row.enqueued_total == Some(6))
            });
        }
        server.accept(port, 6);
        eventually(&plane, "6 on both sides", |seen| {
            open_in(seen, of_server.path()) == (6, 0) && open_in(seen, of_client.path()) == (0, 6)
        });
        client.close_connections();
        server.close_all();
        let seen = eventually(&plane, "nothing open", |seen| {
            open_in(seen, of_server.path()) == (0, 0) && open_in(seen, of_client.path()) == (0, 0)
        });
        assert_eq!((seen.health.drift, seen.health.untracked), (0, 0));
    }
}

#[test]
fn deferred_connections_are_in_no_queue_before_they_say_something() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = server.listen_deferred("127.0.0.1", 5);
        client.connect("127.0.0.1", port, 3);
        let seen = eventually(&plane, "the listener", |seen| listener(seen, &namespace, port).is_some());
        assert_eq!(listener(&seen, &namespace, port).unwrap().depth, 0, "silent clients are not queued");
        assert_eq!(ss::half_open(&namespace, port), 3);
        client.say(0, 1);
        let seen = eventually(&plane, "the one that spoke", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 1 && row.abandoned == Some(0))
        });
        if tier >= Tier::Tracepoint && sees(&seen, HookEvent::Enqueue) {
            // The kernel's table and the programs' counts are of two moments of a tick.
            let seen = eventually(&plane, "one that entered", |seen| {
                listener(seen, &namespace, port)
                    .is_some_and(|row| (row.enqueued_total, row.accepted_total) == (Some(1), Some(0)))
            });
            let row = listener(&seen, &namespace, port).unwrap();
            assert!(row.oldest_queued_seconds.is_some_and(|age| age < 30.0), "from when it entered, not from its SYN");
        }
        // The kernel drops the bare end of each handshake. It refuses nothing, and that is known on every tier.
        let seen = eventually(&plane, "drops that are no overflows", |seen| {
            listener(seen, &namespace, port)
                .is_some_and(|row| row.drops_total >= Some(3) && row.overflows_total == Some(0))
        });
        let namespace_row = seen.namespaces.iter().find(|row| row.netns == namespace.inode()).unwrap();
        assert!(namespace_row.findings.iter().all(|finding| finding.kind != FindingKind::HalfOpenPressure));
    }
}

#[test]
fn connections_by_syn_cookie_enter_the_queue_like_any_other() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        let of_server = Cgroup::create("cookie-server").unwrap();
        assert!(namespace.set("ipv4/tcp_syncookies", "2"));
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut client = Peer::start(&namespace);
        let port = server.listen("::", 64);
        client.connect("127.0.0.1", port, 6);
        client.connect("::1", port, 4);
        let seen =
            eventually(&plane, "10 queued", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 10));
        assert_eq!(nstat::counters(&namespace, &["TcpExtSyncookiesRecv"]), [10]);
        if tier >= Tier::Tracepoint && sees(&seen, HookEvent::Enqueue) {
            let row = listener(&seen, &namespace, port).unwrap();
            assert_eq!((row.enqueued_total, row.depth_peak), (Some(10), Some(10)));
        }
        server.accept(port, 10);
        eventually(&plane, "10 open", |seen| open_in(seen, of_server.path()) == (10, 0));
        server.close_all();
        eventually(&plane, "nothing open", |seen| open_in(seen, of_server.path()) == (0, 0));
    }
}

#[test]
fn an_mptcp_listener_is_listed_once_and_named() {
    let _machine = support::alone();
    for tier in tiers() {
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

        // One that speaks Multipath TCP, too: accept hands over another socket than the one that was queued.
        client.connect_mptcp("127.0.0.1", port, 1);
        server.accept(port, 3);
        if tier >= Tier::Tracepoint && sees(&seen, HookEvent::Enqueue) {
            eventually(&plane, "3 accepted, each with its wait", |seen| {
                listener(seen, &namespace, port).is_some_and(|row| {
                    let waits = row.sojourn.map(|sojourn| sojourn.count);
                    row.accepted_total == Some(3) && waits.is_none_or(|waits| waits == 3)
                })
            });
        }
    }
}

#[test]
fn backlog_nought_holds_one() {
    let _machine = support::alone();
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
