//! The ladder: each tier gives what it can, says what it cannot, and invents nothing.

use crate::world::{as_ss, eventually, listener, namespace, options, plane};
use governor_kernel as kernel;
use governor_kernel::Options;
use governor_kernel::PlaneError;
use governor_observation::{HookEvent, Tier};
use support::machine::ss;
use support::programs::peer::Peer;

#[test]
fn the_netlink_tier_alone_gives_depth_backlog_and_drops() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Netlink) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 4);
    client.begin("127.0.0.1", port, 8);

    let seen = eventually(&plane, "a full queue and its drops", |seen| {
        listener(seen, &namespace, port)
            .is_some_and(|row| row.depth == 5 && row.drops_total.is_some_and(|drops| drops >= 3))
    });
    assert_eq!(as_ss(&seen, &namespace), ss::listeners(&namespace));
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!((row.backlog, row.tier), (Some(4), Tier::Netlink));
    assert_eq!((row.depth_peak, row.enqueued_total, row.accepted_total), (None, None, None));
    assert_eq!(row.overflows_total, None);
}

#[test]
fn the_procfs_tier_gives_depth_and_no_backlog() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = plane(Tier::Procfs) else { return };
    let mut server = Peer::start(&namespace);
    let mut client = Peer::start(&namespace);
    let port = server.listen("127.0.0.1", 16);
    client.connect("127.0.0.1", port, 10);

    let seen =
        eventually(&plane, "ten queued", |seen| listener(seen, &namespace, port).is_some_and(|row| row.depth == 10));
    let row = listener(&seen, &namespace, port).unwrap();
    assert_eq!((row.cookie, row.backlog, row.drops_total, row.overflows_total), (None, None, None, None));
    assert_eq!(seen.cgroups, None);
    assert!(seen.degraded.iter().any(|line| line.contains("procfs")));
}

#[test]
fn requiring_more_than_works_is_a_start_failure_with_the_reason() {
    let _machine = support::alone();
    match kernel::spawn(Options { require: Some(Tier::Trampoline), ..Options::default() }) {
        Ok(plane) => assert_eq!(plane.observations().borrow().tier, Tier::Trampoline),
        Err(PlaneError::Tier { required, available, reason }) => {
            assert_eq!(required, Tier::Trampoline);
            assert!(available < Tier::Trampoline);
            assert!(reason.contains("trampoline:"), "{reason}");
        }
        Err(error) => panic!("{error}"),
    }

    let forced = Options { require: Some(Tier::Netlink), ..options(Tier::Procfs) };
    assert!(matches!(kernel::spawn(forced), Err(PlaneError::Tier { available: Tier::Procfs, .. })));
}

#[test]
fn a_tier_says_why_it_is_less_than_was_asked_for_and_nothing_else() {
    let _machine = support::alone();
    let all = [Tier::Trampoline, Tier::Tracepoint, Tier::Netlink];
    // Where none is named, the tracepoint tier is what is asked for: it needs no rights that many hosts refuse.
    for (options, asked) in [(Options::default(), Tier::Tracepoint), (options(Tier::Trampoline), Tier::Trampoline)] {
        let plane = kernel::spawn(options).unwrap();
        let seen = plane.observations().borrow().clone();
        for tier in all {
            let is_named = seen.degraded.iter().any(|line| line.starts_with(tier.as_str()));
            assert_eq!(is_named, seen.tier < tier && tier <= asked, "{tier}: {:?}", seen.degraded);
        }
        assert!(!seen.hooks.is_empty());
    }
}

#[test]
fn programs_of_others_on_the_hooks_are_named() {
    let _machine = support::alone();
    let Some(first) = plane(Tier::Tracepoint) else { return };
    let second = kernel::spawn(options(Tier::Tracepoint)).unwrap();
    let seen = second.observations().borrow().clone();
    assert!(seen.hooks.iter().any(|hook| hook.hook.contains("inet_sock_set_s") && hook.note.contains("left alone")));
    second.stop();
    drop(first);
}

#[test]
fn stopping_closes_the_channel() {
    let _machine = support::alone();
    let plane = kernel::spawn(options(Tier::Netlink)).unwrap();
    let observations = plane.observations();
    plane.stop();
    assert!(observations.has_changed().is_err());
}

#[test]
fn a_hundred_accepts_are_a_hundred_by_whatever_hook_and_unknown_without_one() {
    let _machine = support::alone();
    for tier in [Tier::Trampoline, Tier::Netlink] {
        let Some(namespace) = namespace() else { return };
        let plane = kernel::spawn(options(tier)).unwrap();
        let hooks = plane.observations().borrow().hooks.clone();
        let sees_enqueues = hooks.iter().any(|hook| hook.event == Some(HookEvent::Enqueue) && hook.active);
        for hook in hooks.iter().filter(|hook| hook.event.is_some()) {
            let fire = hook.candidates.iter().filter(|candidate| candidate.fires).count();
            assert_eq!(fire > 0, hook.active, "{hook:?}");
            let unexplained =
                hook.candidates.iter().filter(|candidate| !candidate.fires && candidate.reason.is_empty());
            assert!(hook.active || unexplained.count() == 0, "it says why not: {hook:?}");
        }
        let mut peer = Peer::start(&namespace);
        let port = peer.listen("127.0.0.1", 128);
        for _ in 0..10 {
            peer.connect("127.0.0.1", port, 10);
            peer.accept(port, 10);
        }
        let expected = (sees_enqueues && tier != Tier::Netlink).then_some(100);
        eventually(&plane, "100 accepts, or nothing known of them", |seen| {
            listener(seen, &namespace, port).is_some_and(|row| row.depth == 0 && row.accepted_total == expected)
        });
    }
}
