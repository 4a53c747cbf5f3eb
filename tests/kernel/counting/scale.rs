//! Many sockets, opened and closed again.

use crate::world::{
    as_ss, eventually, exact, inbound_on, listener, listeners_in, namespace, open_in, options, plane, plane_with,
    tiers_of_programs,
};
use governor_kernel::Options;
use governor_observation::{Observation, Tier};
use std::time::Duration;
use support::machine::cgroup::Cgroup;
use support::machine::nstat;
use support::machine::ss;
use support::programs::peer::Peer;

const LISTENERS: usize = 500;
const CONNECTIONS_EACH: u32 = 10;
const ACCEPTED_EACH: u32 = 7;

#[test]
fn five_hundred_listeners_and_five_thousand_connections_equal_ss_and_end_at_zero() {
    let _machine = support::alone();
    for tier in [exact(), Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let of_server = Cgroup::create("many-server").unwrap();
        let of_client = Cgroup::create("many-client").unwrap();
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut client = Peer::start_in(&namespace, &of_client);
        let ports: Vec<u16> = (0..LISTENERS).map(|_| server.listen("127.0.0.1", 16)).collect();
        for port in &ports {
            client.connect("127.0.0.1", *port, CONNECTIONS_EACH);
            server.accept(*port, ACCEPTED_EACH);
        }
        let all = u64::from(CONNECTIONS_EACH) * u64::try_from(LISTENERS).unwrap();
        let left = CONNECTIONS_EACH - ACCEPTED_EACH;
        let inbound = inbound_on(tier, all, all - u64::from(left) * u64::try_from(LISTENERS).unwrap());

        let seen = eventually(&plane, "every socket", |seen| {
            let rows = listeners_in(seen, &namespace);
            rows.len() == LISTENERS
                && rows.iter().all(|row| row.depth == left)
                && (tier == Tier::Netlink || rows.iter().all(|row| row.enqueued_total == Some(CONNECTIONS_EACH.into())))
                && open_in(seen, of_server.path()) == (inbound, 0)
                && open_in(seen, of_client.path()) == (0, all)
        });
        assert_eq!(as_ss(&seen, &namespace), ss::listeners(&namespace));
        assert_eq!(ss::connections(&namespace, &ports), (all, all));
        if tier != Tier::Netlink {
            for row in listeners_in(&seen, &namespace) {
                assert_eq!(row.accepted_total, Some(ACCEPTED_EACH.into()), "port {}", row.port);
            }
        }

        client.close_all();
        server.close_all();
        let seen = eventually(&plane, "nothing", |seen| {
            listeners_in(seen, &namespace).is_empty()
                && open_in(seen, of_server.path()) == (0, 0)
                && open_in(seen, of_client.path()) == (0, 0)
        });
        assert_eq!((seen.health.drift, seen.health.untracked, seen.health.lost_events), (0, 0, 0));
        let audits = seen.health.audits;
        let seen = eventually(&plane, "an audit at rest", |seen| seen.health.audits > audits);
        assert_eq!(seen.health.drift, 0);
    }
}

#[test]
fn ends_that_a_delayed_acknowledgement_brings_are_counted() {
    let _machine = support::alone();
    const CONNECTIONS: u32 = 40;
    let all = u64::from(CONNECTIONS);
    for tier in tiers_of_programs() {
        let Some(namespace) = namespace() else { return };
        namespace.delay_acknowledgements().unwrap();
        let of_client = Cgroup::create("delayed-client").unwrap();
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start_in(&namespace, &of_client);
        let port = server.listen("127.0.0.1", 64);
        // One batch may end on the time of a task that no program runs on, see `Netns`; not three in a row.
        let seen_whole = (0..3).any(|_| {
            client.connect("127.0.0.1", port, CONNECTIONS);
            server.accept(port, CONNECTIONS);
            let open = eventually(&plane, "all open", |seen| open_in(seen, of_client.path()).1 == all);
            client.close_connections();
            let ended = eventually(&plane, "all ended", |seen| open_in(seen, of_client.path()) == (0, 0));
            server.close_connections();
            ended.health.drift == open.health.drift
        });
        assert!(seen_whole, "{tier}: {:?}", plane.observations().borrow().health);
        let delayed = nstat::counters(&namespace, &["TcpExtDelayedACKs"])[0];
        assert!(delayed >= all, "{delayed} acknowledgements waited");
    }
}

#[test]
fn counts_do_not_drift_while_connections_come_and_go_during_audits() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let of_server = Cgroup::create("churn-server").unwrap();
    let of_client = Cgroup::create("churn-client").unwrap();
    let busy = Options { audit_every: Duration::from_millis(100), ..options(exact()) };
    let Some(plane) = plane_with(busy) else { return };
    let mut server = Peer::start_in(&namespace, &of_server);
    let mut client = Peer::start_in(&namespace, &of_client);
    let port = server.listen("127.0.0.1", 64);
    let mut rounds = 0;
    let observations = plane.observations();
    while rounds < 200 || observations.borrow().health.audits < 3 {
        client.connect("127.0.0.1", port, 20);
        server.accept(port, 20);
        client.close_connections();
        server.close_connections();
        rounds += 1;
        assert!(rounds < 20_000, "no audit completed: {:?}", observations.borrow().health);
    }

    let seen = eventually(&plane, "nothing open and everything accepted", |seen| {
        open_in(seen, of_server.path()) == (0, 0)
            && open_in(seen, of_client.path()) == (0, 0)
            && listener(seen, &namespace, port).is_some_and(|row| row.accepted_total == Some(20 * rounds))
    });
    assert_eq!(seen.health.drift, 0, "{:?}", seen.health);
}

#[test]
fn listeners_beyond_the_map_are_counted_and_evict_nobody() {
    let _machine = support::alone();
    const TRACKED: u32 = 512;
    const ALL: usize = 600;
    let Some(namespace) = namespace() else { return };
    // No audit: it would count those again that still have no entry.
    let small = Options { max_listeners: Some(TRACKED), audit_every: Duration::from_secs(600), ..options(exact()) };
    let Some(plane) = plane_with(small) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let ports: Vec<u16> = (0..ALL).map(|_| server.listen("127.0.0.1", 16)).collect();

    let all = eventually(&plane, "every listener, tracked or not", |seen| {
        listeners_in(seen, &namespace).len() == ALL && seen.health.untracked >= 88
    });
    // Counts are read before the tables: the last listeners may be in these rows without the entry they have.
    let seen = eventually(&plane, "counts as new as the rows", |seen| seen.taken_ns > all.taken_ns);
    let tracked = |seen: &Observation| -> Vec<u16> {
        let rows = listeners_in(seen, &namespace).into_iter().filter(|row| row.enqueued_total.is_some());
        rows.map(|row| row.port).collect()
    };
    let before = tracked(&seen);
    // Listeners of the rest of the machine have entries too.
    assert!(before.len() <= ALL - 88 && before.len() > 300, "{} tracked", before.len());
    client.connect("127.0.0.1", ports[0], 1);
    let seen = eventually(&plane, "the first is still tracked", |seen| {
        listener(seen, &namespace, ports[0]).is_some_and(|row| row.enqueued_total == Some(1))
    });
    assert_eq!(tracked(&seen), before);
    assert_eq!(as_ss(&seen, &namespace), ss::listeners(&namespace));
}
