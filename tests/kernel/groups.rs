//! SO_REUSEPORT groups: each member's queue, and what becomes of it, and of handshakes in the middle, when a member closes.

use crate::world::{eventually, listeners_in, namespace, plane, sees, tiers};
use governor_user::kernel::{
    groups::groups,
    view::{HookEvent, ListenerView, Tier},
};
use support::peer::Peer;

/// Whether the queue of a listener that closes goes to another of its group.
pub(crate) const MIGRATE: &str = "ipv4/tcp_migrate_req";

#[test]
fn members_of_a_reuse_port_group_are_rows_of_their_own_and_the_group_is_as_full_as_the_fullest() {
    for tier in tiers() {
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
    for (tier, migrate) in tiers().flat_map(|tier| [(tier, "0"), (tier, "1")]) {
        let Some(namespace) = namespace() else { return };
        if !namespace.set(MIGRATE, migrate) {
            support::skip("this kernel has no tcp_migrate_req");
            return;
        }
        let Some(plane) = plane(tier) else { return };
        let mut server = Peer::start(&namespace);
        let mut client = Peer::start(&namespace);
        let port = server.listen_group("127.0.0.1", 100, 2);
        client.connect("127.0.0.1", port, 40);
        // The kernel's table and the programs' counts are of two moments of a tick.
        let seen = eventually(&plane, "40 queued", |seen| {
            let rows = listeners_in(seen, &namespace);
            let all = |row: &ListenerView| row.enqueued_total == Some(row.depth.into());
            let counted = !sees(seen, HookEvent::Enqueue) || rows.iter().all(all);
            rows.len() == 2 && rows.iter().map(|row| row.depth).sum::<u32>() == 40 && counted
        });
        let before = listeners_in(&seen, &namespace);
        server.close_member();
        let seen = eventually(&plane, "one member", |seen| listeners_in(seen, &namespace).len() == 1);
        let left = listeners_in(&seen, &namespace).remove(0);
        let survivor = before.iter().find(|row| row.cookie == left.cookie).unwrap();
        if migrate == "1" && left.depth == survivor.depth {
            support::skip("tcp_migrate_req has no effect on this kernel");
            return;
        }
        let expected = if migrate == "1" { 40 } else { survivor.depth };
        assert_eq!(left.depth, expected, "tcp_migrate_req={migrate}");
        assert_eq!(left.accepted_total, survivor.accepted_total.map(|_| 0), "nothing was accepted");
        if tier >= Tier::Tracepoint && migrate == "1" && sees(&seen, HookEvent::Enqueue) {
            assert_eq!(left.enqueued_total, survivor.enqueued_total, "nothing arrived");
            assert!(left.oldest_queued_seconds >= survivor.oldest_queued_seconds, "what is handed on keeps its age");
            server.accept_of_member(40);
            let seen = eventually(&plane, "40 accepted", |seen| {
                listeners_in(seen, &namespace).iter().all(|row| row.accepted_total == Some(40) && row.depth == 0)
            });
            let left = listeners_in(&seen, &namespace).remove(0);
            assert_eq!(left.enqueued_total, survivor.enqueued_total, "nothing arrived");
            if sees(&seen, HookEvent::Accept) {
                assert_eq!(left.sojourn.map(|sojourn| sojourn.count), Some(40), "each has one wait, over both queues");
            }
        }
    }
}
