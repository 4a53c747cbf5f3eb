//! The counters of a whole network namespace, held against `nstat`.

use crate::world::{eventually, listener, namespace, plane};
use governor_observation::{FindingKind, NamespaceView, Observation, Tier};
use support::machine::netns::Netns;
use support::machine::nstat;
use support::programs::peer::Peer;

fn of(seen: &Observation, namespace: &Netns) -> Option<NamespaceView> {
    seen.namespaces.iter().find(|row| row.netns == namespace.inode()).cloned()
}

#[test]
fn overflows_and_drops_of_a_namespace_equal_nstat_and_are_its_own() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(bystander) = crate::world::namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let _present = Peer::start(&bystander);
    eventually(&plane, "both namespaces", |seen| of(seen, &namespace).is_some() && of(seen, &bystander).is_some());
    let port = server.listen("127.0.0.1", 4);
    client.begin("127.0.0.1", port, 8);

    let seen = eventually(&plane, "3 refused at least once", |seen| {
        of(seen, &namespace).is_some_and(|row| row.counters.listen_overflows >= Some(3))
    });
    let row = of(&seen, &namespace).unwrap();
    assert_eq!(row.counters.passive_opens, Some(5), "a full queue holds one more than the backlog");
    let finding = &row.findings[0];
    assert_eq!((finding.kind, finding.critical), (FindingKind::AcceptQueueFull, true), "{:?}", row.findings);
    assert!(finding.text.contains("attempts") && finding.text.contains("holds at most 4 + 1"), "{}", finding.text);
    assert!(row.findings.iter().all(|finding| finding.kind != FindingKind::DroppedOtherwise));
    let elsewhere = of(&seen, &bystander).unwrap();
    assert_eq!((elsewhere.counters.listen_overflows, elsewhere.counters.listen_drops), (Some(0), Some(0)));

    // The clients try again now and then; once they are gone nothing moves any more.
    drop(client);
    drop(server);
    let oracle = nstat::counters(&namespace, &["TcpExtListenOverflows", "TcpExtListenDrops"]);
    eventually(&plane, "what nstat says", |seen| {
        of(seen, &namespace).is_some_and(|row| {
            [row.counters.listen_overflows, row.counters.listen_drops] == [Some(oracle[0]), Some(oracle[1])]
        })
    });
}

#[test]
fn a_namespace_is_not_judged_by_the_daemons_own() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let _present = Peer::start(&namespace);
    let seen = eventually(&plane, "the namespace", |seen| of(seen, &namespace).is_some());
    assert_eq!(seen.namespaces.iter().filter(|row| row.home).count(), 1, "the host's counters appear once");
    let row = of(&seen, &namespace).unwrap();
    assert!(!row.home && row.somaxconn.is_some());
}

#[test]
fn a_namespace_that_ends_takes_its_counters_along_and_a_new_one_starts_at_its_own() {
    let _machine = support::alone();
    let Some(first) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let fill = |namespace: &Netns, clients: u32| {
        let (mut server, mut client) = (Peer::start(namespace), Peer::start(namespace));
        let port = server.listen("127.0.0.1", 1);
        client.begin("127.0.0.1", port, 2 + clients);
        (server, client)
    };
    let peers = fill(&first, 5);
    eventually(&plane, "5 refused", |seen| {
        of(seen, &first).is_some_and(|row| row.counters.listen_overflows >= Some(5))
    });
    drop(peers);
    drop(first);
    let Some(second) = namespace() else { return };
    let _peers = fill(&second, 1);
    // The inode number may be that of the first: it counts on then, and never to less than it had.
    let seen = eventually(&plane, "the new namespace", |seen| {
        of(seen, &second).is_some_and(|row| row.counters.listen_overflows >= Some(1))
    });
    assert!(of(&seen, &second).unwrap().counters.listen_overflows.unwrap() < 1_000_000, "no wrapped difference");
}

#[test]
fn half_open_floods_press_on_no_accept_queue() {
    let _machine = support::alone();
    const FLOOD: u32 = 20;
    const NAMES: [&str; 5] = [
        "TcpExtSyncookiesSent",
        "TcpExtTCPReqQFullDoCookies",
        "TcpExtTCPReqQFullDrop",
        "TcpExtListenDrops",
        "TcpExtListenOverflows",
    ];
    // A table of backlog 8 holds 9.
    for (cookies, expected) in [("1", [11, 11, 0, 0, 0]), ("0", [0, 0, 11, 11, 0]), ("2", [20, 20, 0, 0, 0])] {
        let Some(namespace) = namespace() else { return };
        namespace.add_nowhere().unwrap();
        assert!(namespace.set("ipv4/tcp_syncookies", cookies));
        let Some(plane) = plane(Tier::Tracepoint) else { return };
        let mut server = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 8);
        eventually(&plane, "the namespace", |seen| of(seen, &namespace).is_some());
        server.spoof(port, FLOOD);
        assert_eq!(nstat::counters(&namespace, &NAMES), expected, "tcp_syncookies={cookies}");

        let seen = eventually(&plane, "half-open pressure", |seen| {
            let findings = of(seen, &namespace).map(|row| row.findings).unwrap_or_default();
            findings.iter().any(|finding| finding.kind == FindingKind::HalfOpenPressure)
        });
        let findings = of(&seen, &namespace).unwrap().findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].critical, cookies == "0", "only without cookies are real clients turned away");
        let seen = eventually(&plane, "no overflow, whatever was dropped", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.overflows_total == Some(0))
        });
        let row = listener(&seen, &namespace, port).unwrap();
        assert_eq!((row.depth, row.drops_total), (0, Some(expected[3])));

        // A real client, which the kernel lets in by a cookie or not at all.
        let mut client = Peer::start(&namespace);
        client.begin("127.0.0.1", port, 1);
        let opened = nstat::counters(&namespace, &["TcpPassiveOpens"]);
        assert_eq!(opened, [u64::from(cookies != "0")], "tcp_syncookies={cookies}");
    }
}
