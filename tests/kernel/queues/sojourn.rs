//! How long connections waited in the accept queue: a wait that is known lands in its bucket, however the connection came.

use crate::world::{best_plane, eventually, inside, listener, namespace, sees};
use governor_common::abi::{bucket_of, upper_bound_seconds};
use governor_observation::{HookEvent, SojournView};
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Has one connection wait in the queue; the shortest and the longest that it can have waited, by this process's clock.
fn wait_in_queue(listener: &TcpListener, target: SocketAddr, delay: Duration) -> (Duration, Duration) {
    let before_connect = Instant::now();
    let _client = TcpStream::connect(target).expect("the listener has room");
    let connected = Instant::now();
    thread::sleep(delay);
    let before_accept = Instant::now();
    let _accepted = listener.accept().expect("one connection waits");
    (before_accept - connected, before_connect.elapsed())
}

fn bucket(wait: Duration) -> usize {
    bucket_of(wait.as_nanos().try_into().expect("a wait of this test is short"))
}

/// The bucket of the only wait of a histogram.
fn only_bucket(sojourn: &SojournView) -> usize {
    assert_eq!((sojourn.count, sojourn.buckets.len()), (1, 1), "{sojourn:?}");
    (0..)
        .find(|index| upper_bound_seconds(*index) == sojourn.buckets[0].up_to_seconds)
        .expect("a bound of the histogram")
}

#[test]
fn a_known_wait_lands_within_one_bucket() {
    let _machine = support::alone();
    let Some(namespace) = namespace() else { return };
    let Some(plane) = best_plane() else { return };
    let measured = sees(&plane.observations().borrow(), HookEvent::Accept);
    for (bind, target) in [("127.0.0.1", "127.0.0.1"), ("::", "::1"), ("::", "127.0.0.1")] {
        for milliseconds in [1, 10, 100] {
            let delay = Duration::from_millis(milliseconds);
            inside(&namespace, || {
                let bound = TcpListener::bind((bind, 0)).unwrap();
                let port = bound.local_addr().unwrap().port();
                let (shortest, longest) = wait_in_queue(&bound, SocketAddr::new(target.parse().unwrap(), port), delay);
                assert!(shortest >= delay);

                let seen = eventually(&plane, "one accept", |seen| {
                    listener(seen, &namespace, port).is_some_and(|row| {
                        row.accepted_total == Some(1) && row.sojourn.as_ref().is_none_or(|sojourn| sojourn.count == 1)
                    })
                });
                let sojourn = listener(&seen, &namespace, port).unwrap().sojourn;
                if !measured {
                    assert_eq!(sojourn, None, "what is not measured is unknown");
                    return;
                }
                let sojourn = sojourn.expect("the hook is active");
                let of = format!("{bind} for {target}, {delay:?}: {sojourn:?}, {shortest:?} to {longest:?}");
                assert!((shortest.as_secs_f64()..=longest.as_secs_f64()).contains(&sojourn.sum_seconds), "{of}");
                let found = only_bucket(&sojourn);
                assert!(bucket(shortest) <= found + 1 && found <= bucket(longest) + 1, "{of}");
            });
        }
    }
}
