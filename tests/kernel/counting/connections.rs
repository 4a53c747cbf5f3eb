//! Connections per cgroup.

use crate::world::{eventually, listener, namespace, open_in, plane};
use governor_observation::{Basis, Tier};
use support::machine::cgroup::Cgroup;
use support::machine::ss;
use support::programs::peer::Peer;

#[test]
fn connections_per_cgroup_equal_ss_and_return_to_zero() {
    let _machine = support::alone();
    for tier in [Tier::Tracepoint, Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        // Before the plane: a hybrid host counts per cgroup only if there are groups.
        let of_server = Cgroup::create("server").unwrap();
        let of_client = Cgroup::create("client").unwrap();
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &of_server);
        let mut client = Peer::start_in(&namespace, &of_client);
        let port = server.listen("::", 64);
        client.connect("127.0.0.1", port, 12);
        client.connect("::1", port, 8);
        server.accept(port, 15);

        let seen = eventually(&plane, "20 on both sides", |seen| {
            open_in(seen, of_server.path()) == (20, 0) && open_in(seen, of_client.path()) == (0, 20)
        });
        assert_eq!(ss::connections(&namespace, &[port]), (20, 20));
        let group = seen.cgroups.iter().flatten().find(|group| group.id == of_server.id()).unwrap();
        assert_eq!(group.inbound_basis, Basis::Owner);
        let row = listener(&seen, &namespace, port).unwrap();
        assert_eq!(row.owner_cgroup.as_deref(), Some(of_server.path()));

        // The client closes first: its side ends in TIME_WAIT, which is not an open connection any more.
        client.close_connections();
        server.close_all();
        eventually(&plane, "nothing open", |seen| {
            open_in(seen, of_server.path()) == (0, 0) && open_in(seen, of_client.path()) == (0, 0)
        });
        assert_eq!(ss::connections(&namespace, &[port]), (0, 0));
        let seen = eventually(&plane, "an audit", |seen| seen.health.audits > 0);
        assert_eq!((seen.health.drift, seen.health.untracked), (0, 0));
    }
}

#[test]
fn connections_that_existed_before_are_seeded() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let of_server = Cgroup::create("old-server").unwrap();
    let of_client = Cgroup::create("old-client").unwrap();
    let mut server = Peer::start_in(&namespace, &of_server);
    let mut client = Peer::start_in(&namespace, &of_client);
    let port = server.listen("127.0.0.1", 64);
    client.connect("127.0.0.1", port, 9);
    let Some(plane) = plane(Tier::Tracepoint) else { return };

    eventually(&plane, "9 old ones on both sides", |seen| {
        open_in(seen, of_server.path()) == (9, 0) && open_in(seen, of_client.path()) == (0, 9)
    });
    client.close_connections();
    server.close_all();
    eventually(&plane, "nothing open", |seen| {
        open_in(seen, of_server.path()) == (0, 0) && open_in(seen, of_client.path()) == (0, 0)
    });
}

#[test]
fn the_root_of_a_host_with_v1_controllers_is_nobodys_group() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let _group = Cgroup::create("bystander").unwrap();
    let mut peer = Peer::start(&namespace);
    let port = peer.listen("127.0.0.1", 16);
    peer.connect("127.0.0.1", port, 3);
    let hybrid = std::fs::read_to_string("/proc/self/cgroup").unwrap().lines().count() > 1;
    // Connections are read less often than listeners.
    let seen = eventually(&plane, "the queue, and whose connections nobody can tell", |seen| {
        listener(seen, &namespace, port).is_some_and(|row| row.depth == 3)
            && (!hybrid || seen.degraded.iter().any(|line| line.contains("v2 root")))
    });
    if hybrid {
        assert!(seen.cgroups.iter().flatten().all(|group| group.path.as_deref() != Some("/")));
    }
}

#[test]
fn counts_follow_the_path_of_a_cgroup_that_is_made_again() {
    let _machine = support::alone();
    for tier in [Tier::Tracepoint, Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let first = Cgroup::create("again").unwrap();
        let (path, old_id) = (first.path().to_owned(), first.id());
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start_in(&namespace, &first);
        let mut client = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 64);
        client.connect("127.0.0.1", port, 10);
        eventually(&plane, "10 in the first", |seen| open_in(seen, &path) == (10, 0));
        drop((server, first));

        let second = Cgroup::create("again").unwrap();
        assert_ne!(second.id(), old_id, "a folder made again has another id");
        let mut server = Peer::start_in(&namespace, &second);
        let mut client = Peer::start(&namespace);
        let port = server.listen("127.0.0.1", 64);
        client.connect("127.0.0.1", port, 4);
        let seen = eventually(&plane, "4 in the second, by the same path", |seen| {
            open_in(seen, &path) == (4, 0) && !seen.cgroups.iter().flatten().any(|group| group.id == old_id)
        });
        let groups: Vec<_> =
            seen.cgroups.iter().flatten().filter(|group| group.path.as_deref() == Some(path.as_str())).collect();
        assert_eq!(groups.iter().map(|group| group.id).collect::<Vec<_>>(), [second.id()]);
    }
}
