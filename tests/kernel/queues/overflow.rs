//! Packets refused for a full accept queue, per listener and stage, held against the kernel's own count of the namespace.

use crate::world::{eventually, listener, namespace, plane, tiers_of_programs};
use governor_kernel::Plane;
use governor_observation::{HookEvent, Observation};
use support::machine::netns::Netns;
use support::machine::nstat;
use support::programs::peer::Peer;

const OVERFLOWS: &str = "TcpExtListenOverflows";

/// Whether both stages are seen here. Older kernels do not give a reason for dropping a packet, and say so.
fn sees_both_stages(plane: &Plane) -> bool {
    let seen = plane.observations().borrow().clone();
    [HookEvent::OverflowSyn, HookEvent::OverflowAck].iter().all(|event| {
        let hooks: Vec<_> = seen.hooks.iter().filter(|hook| hook.event == Some(*event)).collect();
        assert!(hooks.iter().any(|hook| hook.active || !hook.note.is_empty()), "{hooks:?}");
        hooks.iter().any(|hook| hook.active)
    })
}

/// Overflows at either stage of the listener on `port`.
fn stages(seen: &Observation, namespace: &Netns, port: u16) -> Option<(u64, u64)> {
    let row = listener(seen, namespace, port)?;
    row.overflow_syn_total.zip(row.overflow_ack_total)
}

#[test]
fn refused_syns_of_both_families_sum_to_the_kernels_count() {
    let _machine = support::alone();
    for tier in tiers_of_programs() {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        if !sees_both_stages(&plane) {
            continue;
        }
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let (one, other) = (server.listen("127.0.0.1", 4), server.listen("::", 2));
        client.connect("127.0.0.1", one, 5);
        client.connect("::1", other, 3);
        // Full queues are looked at before anything is refused.
        eventually(&plane, "full and nothing refused", |seen| {
            [one, other].iter().all(|port| {
                listener(seen, &namespace, *port)
                    .is_some_and(|row| row.is_full() == Some(true) && row.overflows_total == Some(0))
            })
        });
        let awake = plane.observations().borrow().taken_ns;
        eventually(&plane, "two more looks", |seen| seen.taken_ns > awake + 50_000_000);
        client.begin("127.0.0.1", one, 3);
        client.begin("::1", other, 2);
        client.begin("127.0.0.1", other, 1);

        eventually(&plane, "6 refused once", |seen| {
            stages(seen, &namespace, one).is_some_and(|(syn, _)| syn >= 3)
                && stages(seen, &namespace, other).is_some_and(|(syn, _)| syn >= 3)
        });
        drop(client);
        let oracle = nstat::counters(&namespace, &[OVERFLOWS])[0];
        let seen = eventually(&plane, "what nstat says", |seen| {
            let total = |port| listener(seen, &namespace, port).and_then(|row| row.overflows_total);
            total(one).zip(total(other)).is_some_and(|(one, other)| one + other == oracle)
        });
        let row = listener(&seen, &namespace, one).unwrap();
        assert_eq!((row.overflow_ack_total, row.overflows_since_seconds), (Some(0), None), "nothing was missed");
    }
}

#[test]
fn last_packets_of_handshakes_refused_sum_to_the_kernels_count() {
    let _machine = support::alone();
    for tier in tiers_of_programs() {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        if !sees_both_stages(&plane) {
            continue;
        }
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        for address in ["127.0.0.1", "::1"] {
            // Six are let in while the queue is empty, and enter it when they speak: three find room.
            let port = server.listen_deferred(address, 8);
            client.connect(address, port, 6);
            server.relisten(port, 2);
            client.say(0, 6);
            eventually(&plane, "3 queued, 3 refused", |seen| {
                listener(seen, &namespace, port).is_some_and(|row| row.depth == 3)
                    && stages(seen, &namespace, port).is_some_and(|(_, ack)| ack >= 3)
            });
            client.close_connections();
            server.close_all();
        }
        let port = server.listen_deferred("127.0.0.1", 8);
        client.connect("127.0.0.1", port, 4);
        server.relisten(port, 1);
        let before = nstat::counters(&namespace, &[OVERFLOWS])[0];
        client.say(0, 4);
        // Each tries again now and then; at rest both counts are the same.
        drop(client);
        eventually(&plane, "what nstat says", |seen| {
            let oracle = nstat::counters(&namespace, &[OVERFLOWS])[0] - before;
            stages(seen, &namespace, port).is_some_and(|(syn, ack)| ack >= 2 && syn + ack == oracle)
        });
    }
}

#[test]
fn cookies_refused_at_their_return_sum_to_the_kernels_count() {
    let _machine = support::alone();
    for tier in tiers_of_programs() {
        let Some(namespace) = namespace() else { return };
        assert!(namespace.set("ipv4/tcp_syncookies", "2"));
        let Some(plane) = plane(tier) else { return };
        if !sees_both_stages(&plane) {
            continue;
        }
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        for address in ["127.0.0.1", "::1"] {
            // The server misses the end of the handshakes, and hears of all four clients when they speak.
            let port = server.listen(address, 1);
            server.hear_syns_only(port);
            client.connect(address, port, 4);
            server.hear_all(port);
            let before = nstat::counters(&namespace, &[OVERFLOWS])[0];
            client.say(0, 4);
            let seen = eventually(&plane, "2 queued, 2 refused", |seen| {
                let oracle = nstat::counters(&namespace, &[OVERFLOWS])[0] - before;
                listener(seen, &namespace, port).is_some_and(|row| row.depth == 2)
                    && stages(seen, &namespace, port).is_some_and(|(syn, ack)| ack >= 2 && syn + ack == oracle)
            });
            assert_eq!(stages(&seen, &namespace, port).map(|(syn, _)| syn), Some(0));
            client.close_connections();
            server.close_all();
        }
    }
}

#[test]
fn a_syn_refused_for_too_many_half_open_connections_is_no_overflow() {
    let _machine = support::alone();
    for tier in tiers_of_programs() {
        const NAMES: [&str; 2] = ["TcpExtTCPReqQFullDrop", "TcpExtListenOverflows"];
        let Some(namespace) = namespace() else { return };
        namespace.add_nowhere().unwrap();
        assert!(namespace.set("ipv4/tcp_syncookies", "0"));
        let Some(plane) = plane(tier) else { return };
        if !sees_both_stages(&plane) {
            continue;
        }
        let (mut server, mut client) = (Peer::start(&namespace), Peer::start(&namespace));
        let port = server.listen("127.0.0.1", 4);
        server.spoof(port, 2);
        client.connect("127.0.0.1", port, 3);
        server.relisten(port, 1);
        // Both tables are over the limit now, and the kernel looks at the half-open one first.
        let seen = eventually(&plane, "a full queue", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.is_full() == Some(true))
        });
        eventually(&plane, "two more looks", |later| later.taken_ns > seen.taken_ns + 50_000_000);
        client.begin("127.0.0.1", port, 3);
        assert_eq!(nstat::counters(&namespace, &NAMES), [3, 0]);
        let begun = plane.observations().borrow().taken_ns;
        let seen = eventually(&plane, "a look at it", |seen| seen.taken_ns > begun + 50_000_000);
        assert_eq!(stages(&seen, &namespace, port), Some((0, 0)));
    }
}
