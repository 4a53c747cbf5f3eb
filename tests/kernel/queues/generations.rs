//! A socket that stops listening and begins again: the cookie and the inode stay, and the counts go on.

use crate::world::{eventually, inside, listener, namespace, plane, sees, tiers};
use governor_kernel::Plane;
use governor_observation::{HookEvent, ListenerView, Observation, Tier};
use rustix::net::Shutdown;
use std::net::{TcpListener, TcpStream};
use support::machine::netns::Netns;

/// A port that was bound by its number stays bound while the socket does not listen.
const PORT: u16 = 8080;

/// A listener, its clients and what is known of it.
struct Scene<'a> {
    tier: Tier,
    plane: &'a Plane,
    namespace: &'a Netns,
    bound: TcpListener,
    open: Vec<TcpStream>,
}

impl Scene<'_> {
    fn arrive(&mut self, count: usize) {
        let clients = (0..count).map(|_| TcpStream::connect(("127.0.0.1", PORT)).expect("the listener has room"));
        self.open.extend(clients);
    }

    fn accept(&mut self, count: usize) {
        let accepted = (0..count).map(|_| self.bound.accept().expect("one connection waits").0);
        self.open.extend(accepted);
    }

    fn pause(&self) {
        rustix::net::shutdown(&self.bound, Shutdown::Read).expect("a listener can be shut down");
    }

    fn resume(&self) {
        rustix::net::listen(&self.bound, 64).expect("the port is still its own");
    }

    /// Waits until the totals are these, where they are counted, and returns the row.
    fn shows(&self, enqueued: u64, accepted: u64, depth: u32) -> ListenerView {
        let what = format!("{}: {enqueued} in, {accepted} out, {depth} there", self.tier);
        let expected = |seen: &Observation| {
            listener(seen, self.namespace, PORT).filter(|row| {
                let totals = (row.enqueued_total, row.accepted_total) == (Some(enqueued), Some(accepted));
                row.depth == depth && (totals || !sees(seen, HookEvent::Enqueue))
            })
        };
        let seen = eventually(self.plane, &what, |seen| expected(seen).is_some());
        expected(&seen).expect("just seen")
    }

    /// Waits until so many generations of the listener have ended, where that is seen, and have lost so many connections.
    fn lost(&self, generations: u64, lost: u64) {
        if self.tier < Tier::Tracepoint {
            return;
        }
        eventually(self.plane, &format!("{}: {generations} ended and lost {lost}", self.tier), |seen| {
            let mut places = seen.closed.iter().filter(|place| place.netns == self.namespace.inode());
            places.any(|place| place.port == PORT && (place.listeners, place.lost) == (generations, Some(lost)))
        });
    }
}

#[test]
fn counts_go_on_over_a_pause_and_a_resume() {
    let _machine = support::alone();
    for tier in tiers() {
        let Some(namespace) = namespace() else { return };
        let Some(plane) = plane(tier) else { return };
        inside(&namespace, || {
            let bound = TcpListener::bind(("127.0.0.1", PORT)).expect("nobody else is here");
            let mut scene = Scene { tier, plane: &plane, namespace: &namespace, bound, open: Vec::new() };
            scene.arrive(40);
            scene.accept(37);
            let first = scene.shows(40, 37, 3);

            // Within one tick: no observation finds it gone.
            scene.pause();
            scene.resume();
            scene.arrive(2);
            scene.accept(1);
            let second = scene.shows(42, 38, 1);
            assert_eq!((second.cookie, second.inode), (first.cookie, first.inode), "{tier}");
            scene.lost(1, 3);

            // For longer: its row is gone and comes back.
            scene.pause();
            eventually(&plane, "the row is gone", |seen| listener(seen, &namespace, PORT).is_none());
            let ticks = |seen: &Observation| seen.taken_ns / 20_000_000;
            let before = ticks(&plane.observations().borrow());
            eventually(&plane, "it is gone for a while", |seen| ticks(seen) > before + 5);
            scene.lost(2, 4);
            scene.resume();
            scene.arrive(3);
            scene.accept(3);
            let third = scene.shows(45, 41, 0);
            assert_eq!(third.cookie, first.cookie, "{tier}");
            let measured = third.sojourn.map_or(41, |sojourn| sojourn.count);
            assert_eq!(measured, 41, "{tier}: every accept has its wait");
        });
    }
}
