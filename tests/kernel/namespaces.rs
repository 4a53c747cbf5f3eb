//! Namespaces come and go.

use crate::world::{eventually, listener, listeners_in, namespace, plane};
use governor_user::kernel::view::Tier;
use support::peer::Peer;

#[test]
fn a_namespace_that_vanishes_takes_its_listeners_along() {
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
