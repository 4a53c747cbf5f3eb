//! Refused packets and queue ages against the running kernel, in private network namespaces. The oracle is the
//! namespace's own count of refused packets, and the clock.

use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::programs::selftest::in_private_namespace;
use crate::programs::tracepoint::{ListenerReading, Options, Tracepoint};
use crate::tables::netstat::{self, named};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{AddressFamily, SocketType};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

fn skip(reason: &str) {
    assert!(std::env::var_os("GOVERNOR_REQUIRE_KERNEL").is_none_or(|value| value != "1"), "required, but {reason}");
    println!("SKIP: {reason}");
}

/// The attached tier, or a line that says why this test proves nothing here.
fn attached() -> Option<Tracepoint> {
    let options = Options { cgroup_root: v2_root(), ..Options::default() };
    Tracepoint::attach(&options).map_err(|error| skip(&error.to_string())).ok()
}

fn v2_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4).map(PathBuf::from)
}

fn listen(backlog: i32) -> (TcpListener, u64, u16) {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    rustix::net::listen(&listener, backlog).unwrap();
    let cookie = socket_cookie(&listener).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, cookie, port)
}

/// Begins a connection and does not wait for it.
fn begin(address: SocketAddr) -> OwnedFd {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    let _under_way = rustix::net::connect(&socket, &address);
    socket
}

fn reading_of(tracepoint: &mut Tracepoint, cookie: u64) -> ListenerReading {
    let reading = tracepoint.read().unwrap();
    reading.listeners.into_iter().find(|listener| listener.cookie == cookie).expect("the listener is tracked")
}

fn kernel_overflows() -> u64 {
    named(netstat::read_here().unwrap().values).listen_overflows.unwrap()
}

#[test]
fn syns_refused_over_either_family_are_counted_while_they_are_watched() {
    let Some(mut tracepoint) = attached() else { return };
    if v2_root().is_none() {
        return skip("no cgroup2 is mounted");
    }
    let ran = in_private_namespace(|| {
        let (_listener, cookie, port) = listen(1);
        let (v4, v6) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        let _queued = [TcpStream::connect(v4).unwrap(), TcpStream::connect(v6).unwrap()];
        let _unseen = begin(v4);
        assert_eq!((kernel_overflows(), reading_of(&mut tracepoint, cookie).overflow_syn), (1, Some(0)));

        assert_eq!(tracepoint.watch_syns(), Ok(()));
        assert!(tracepoint.read().unwrap().syns_since_ns.is_some());
        let before = kernel_overflows();
        let _refused: Vec<_> = [v4, v6, v6, v4, v6].map(begin).into();
        // Nothing can have been tried again yet but the one from before.
        let seen = reading_of(&mut tracepoint, cookie);
        assert_eq!(seen.overflow_syn, Some(kernel_overflows() - before));
        assert!(seen.overflow_syn >= Some(5));
        assert_eq!(seen.overflow_ack, Some(0));

        tracepoint.unwatch_syns();
        let before = reading_of(&mut tracepoint, cookie).overflow_syn;
        let _unseen = begin(v6);
        assert_eq!(reading_of(&mut tracepoint, cookie).overflow_syn, before);
        assert_eq!(tracepoint.read().unwrap().syns_since_ns, None);
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn a_syn_to_a_listener_with_room_is_no_refusal() {
    let Some(mut tracepoint) = attached() else { return };
    if v2_root().is_none() {
        return skip("no cgroup2 is mounted");
    }
    let ran = in_private_namespace(|| {
        let (_listener, cookie, port) = listen(8);
        assert_eq!(tracepoint.watch_syns(), Ok(()));
        let _queued: Vec<_> = (0..9).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
        assert_eq!((kernel_overflows(), reading_of(&mut tracepoint, cookie).overflow_syn), (0, Some(0)));
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn the_age_of_a_queue_is_that_of_its_oldest_connection() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let (listener, cookie, port) = listen(8);
        let mut moments = vec![kernel_monotonic_ns()];
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
            moments.push(kernel_monotonic_ns());
        }
        for waiting in (1..=3).rev() {
            let queue = tracepoint.scan_queues().unwrap()[&cookie];
            let came = queue.oldest_ns.unwrap();
            let between = (moments[3 - waiting], moments[4 - waiting]);
            assert!(between.0 <= came && came <= between.1, "{came} is not in {between:?}");
            assert_eq!((queue.depth, queue.abandoned), (u32::try_from(waiting).unwrap(), Some(0)));
            drop(listener.accept().unwrap());
        }
        assert_eq!(tracepoint.scan_queues().unwrap().get(&cookie), None, "nothing waits");
        // The head as at the last enqueue.
        let head = reading_of(&mut tracepoint, cookie).oldest_queued_ns.unwrap();
        assert!(moments[0] <= head && head <= moments[1]);
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn connections_from_before_have_no_age_and_clients_gone_are_counted_however_they_went() {
    let ran = in_private_namespace(|| {
        let (listener, cookie, port) = listen(8);
        let clients: Vec<_> = (0..5).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
        let Some(mut tracepoint) = attached() else { return };
        let queue = tracepoint.scan_queues().unwrap()[&cookie];
        assert_eq!((queue.depth, queue.oldest_ns, queue.abandoned), (5, None, Some(0)));
        let mut clients = clients.into_iter();
        drop(clients.next());
        let reset = clients.next().unwrap();
        rustix::net::sockopt::set_socket_linger(&reset, Some(std::time::Duration::ZERO)).unwrap();
        drop(reset);
        let queue = tracepoint.scan_queues().unwrap()[&cookie];
        assert_eq!((queue.depth, queue.abandoned), (5, Some(2)), "one closed, one reset");
        drop((listener, clients));
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn what_is_queued_when_a_listener_closes_is_lost() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let (listener, cookie, port) = listen(8);
        let _clients: Vec<_> = (0..5).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
        drop(listener.accept().unwrap());
        drop(tracepoint.read().unwrap());
        drop(listener);
        let events = tracepoint.read().unwrap().events;
        let closed = events.into_iter().find(|event| event.listener.cookie == cookie).expect("it closed");
        assert_eq!((closed.listener.lost, closed.listener.enqueued), (Some(4), Some(5)));
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

/// Two members of a group, with the queue of the first handed on when it closes; `None` where the kernel cannot.
fn group() -> Option<(TcpListener, TcpListener, u16)> {
    std::fs::write("/proc/sys/net/ipv4/tcp_migrate_req", "1").ok()?;
    let member = |port| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_reuseport(&socket, true).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        rustix::net::listen(&socket, 100).unwrap();
        TcpListener::from(socket)
    };
    let first = member(0);
    let port = first.local_addr().unwrap().port();
    Some((first, member(port), port))
}

#[test]
fn a_queue_that_is_handed_on_is_not_lost_and_keeps_its_age_and_its_connections_do_not_arrive_again() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let Some((first, second, port)) = group() else { return println!("SKIP: this kernel has no tcp_migrate_req") };
        let (closing, staying) = (socket_cookie(&first).unwrap(), socket_cookie(&second).unwrap());
        let _clients: Vec<_> = (0..40).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
        let before = tracepoint.scan_queues().unwrap();
        let arrived = reading_of(&mut tracepoint, staying).enqueued;
        drop(first);

        let closed = tracepoint.read().unwrap().closed;
        let closed = closed.into_iter().find(|listener| listener.cookie == closing).unwrap();
        assert_eq!((closed.lost, closed.depth), (Some(0), before[&closing].depth));
        let queue = tracepoint.scan_queues().unwrap()[&staying];
        assert_eq!(queue.depth, 40);
        assert_eq!(queue.oldest_ns, before.values().filter_map(|queue| queue.oldest_ns).min());
        let _late = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let now = reading_of(&mut tracepoint, staying);
        assert_eq!(now.enqueued, arrived.map(|arrived| arrived + 1));
        // A kernel that wakes no reader shows nothing.
        assert!([0, u64::from(closed.depth)].map(Some).contains(&now.moved), "{now:?}");
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn without_migration_the_queue_of_a_member_is_lost() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let Some((first, second, port)) = group() else { return println!("SKIP: this kernel has no tcp_migrate_req") };
        std::fs::write("/proc/sys/net/ipv4/tcp_migrate_req", "0").unwrap();
        let cookie = socket_cookie(&first).unwrap();
        let _clients: Vec<_> = (0..40).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
        let queued = tracepoint.scan_queues().unwrap()[&cookie].depth;
        drop(first);
        let closed = tracepoint.read().unwrap().closed;
        let closed = closed.into_iter().find(|listener| listener.cookie == cookie).unwrap();
        assert_eq!(closed.lost, Some(queued.into()));
        assert_eq!(tracepoint.scan_queues().unwrap()[&socket_cookie(&second).unwrap()].depth, 40 - queued);
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}
