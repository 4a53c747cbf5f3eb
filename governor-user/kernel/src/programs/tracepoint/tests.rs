//! The tracepoint tier against the running kernel, in private network namespaces. Every test identifies its own sockets
//! by cookie and its own connections by a cgroup of its own, because the hooks see the whole machine.

use super::*;
use crate::programs::selftest::in_private_namespace;
use governor_common::abi::EventKind;
use governor_observation::Family;
use rustix::net::sockopt::socket_cookie;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The attached tier, or a line that says why this test proves nothing here.
fn attached() -> Option<Tracepoint> {
    match Tracepoint::attach(&Options::default()) {
        Ok(tracepoint) => Some(tracepoint),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn skip(reason: &str) {
    assert!(std::env::var_os("GOVERNOR_REQUIRE_KERNEL").is_none_or(|value| value != "1"), "required, but {reason}");
    println!("SKIP: {reason}");
}

/// Reads until `done`, for at most five seconds; gives back the last reading either way.
fn read_until(tracepoint: &mut Tracepoint, done: impl Fn(&Reading) -> bool) -> Reading {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let reading = tracepoint.read().unwrap();
        if done(&reading) || Instant::now() >= deadline {
            return reading;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn listener_of(reading: &Reading, cookie: u64) -> Option<ListenerReading> {
    reading.listeners.iter().find(|listener| listener.cookie == cookie).cloned()
}

fn open_of(reading: &Reading, cgroup: u64) -> OpenConnections {
    let cgroups = reading.cgroups.as_ref().unwrap();
    cgroups.iter().find(|(id, _)| *id == cgroup).map(|(_, open)| *open).unwrap_or_default()
}

fn own_netns() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
}

/// A threaded cgroup-v2 folder that the calling thread sits in; left and removed on drop.
struct Folder {
    path: PathBuf,
    parent: PathBuf,
    id: u64,
}

impl Folder {
    /// `None` where there is no writable cgroup v2.
    fn enter(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        let own = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        let parent = PathBuf::from(root).join(own);
        let path = parent.join(format!("governor-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let id = fs::metadata(&path).unwrap().ino();
        let folder = Self { path, parent, id };
        fs::write(folder.path.join("cgroup.type"), "threaded").ok()?;
        fs::write(folder.path.join("cgroup.threads"), "0").ok()?;
        Some(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = fs::write(self.parent.join("cgroup.threads"), "0");
        let _gone = fs::remove_dir(&self.path);
    }
}

fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

#[test]
fn every_connection_is_counted_once_and_is_gone_when_closed() {
    const COUNT: usize = 10;
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let Some(folder) = Folder::enter("count") else { return skip("no cgroup v2 to write to") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cookie = socket_cookie(&listener).unwrap();
        let clients = connect(address, COUNT);

        let reading = read_until(&mut tracepoint, |reading| {
            listener_of(reading, cookie).is_some_and(|listener| listener.enqueued == Some(10))
        });
        let seen = listener_of(&reading, cookie).unwrap();
        assert_eq!((seen.enqueued, seen.depth_peak, seen.depth), (Some(10), Some(10), 10));
        assert_eq!((seen.backlog, seen.port, seen.address), (128, address.port(), address.ip()));
        assert_eq!((seen.netns, seen.owner_cgroup), (own_netns(), Some(folder.id)));
        assert_eq!(open_of(&reading, folder.id), OpenConnections { inbound: 10, outbound: 10 });

        let accepted: Vec<_> = (0..COUNT).map(|_| listener.accept().unwrap()).collect();
        drop(clients);
        drop(accepted);
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
        assert_eq!(listener_of(&reading, cookie).unwrap().depth_peak, Some(10), "the peak stays");

        drop(listener);
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while events.is_empty() && Instant::now() < deadline {
            let reading = tracepoint.read().unwrap();
            assert!(reading.untracked == 0 && reading.lost_events == 0);
            events.extend(reading.events.into_iter().filter(|event| event.listener.cookie == cookie));
        }
        assert_eq!(events.len(), 1, "one event: closed");
        assert_eq!((events[0].kind, events[0].listener.enqueued), (EventKind::Closed, Some(10)));
        assert_eq!(listener_of(&tracepoint.read().unwrap(), cookie), None, "no entry is left behind");
        assert!(tracepoint.forget_cgroup(folder.id).unwrap());
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn a_quick_mark_is_there_for_as_long_as_its_connection_is_open() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let cookies = [&client, &server].map(|socket| socket_cookie(socket).unwrap());
        // Where accepts are seen, the accepted end has another kind of mark, which the kernel frees with the socket.
        let held = cookies.map(|cookie| tracepoint.loaded.maps.quick_mark(cookie).unwrap().is_some());
        assert_eq!(held, [true, !tracepoint.read().unwrap().sees_accepts]);
        drop((client, server));
        let deadline = Instant::now() + Duration::from_secs(5);
        let left = |cookie| tracepoint.loaded.maps.quick_mark(cookie).unwrap().is_some();
        while cookies.into_iter().any(left) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(cookies.map(left), [false, false]);
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn the_place_of_a_connection_whose_close_nobody_saw_is_freed_by_the_audit_that_finds_it_gone() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let Some(folder) = Folder::enter("stale") else { return skip("no cgroup v2 to write to") };
        let netns = own_netns();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stays = TcpStream::connect(address).unwrap();
        let goes = TcpStream::connect(address).unwrap();
        let servers = [listener.accept().unwrap(), listener.accept().unwrap()];
        let [there, gone] = [&stays, &goes].map(|socket| socket_cookie(socket).unwrap());
        let mark = tracepoint.loaded.maps.quick_mark(gone).unwrap().expect("an outbound end has one");
        drop(goes);
        let open = OpenConnections { inbound: 2, outbound: 1 };
        read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == open);
        tracepoint.loaded.maps.leave_behind(mark, u32::try_from(netns).unwrap());

        let audit = |tracepoint: &mut Tracepoint| {
            let mut audit = tracepoint.begin_audit().unwrap();
            audit.add(netns, &tracepoint.scan(netns).unwrap());
            let drift = tracepoint.finish_audit(audit).unwrap().total;
            (drift, [there, gone].map(|cookie| tracepoint.loaded.maps.quick_mark(cookie).unwrap().is_some()))
        };
        assert_eq!(audit(&mut tracepoint), (0, [true, true]), "one audit alone proves nothing");
        assert_eq!(audit(&mut tracepoint), (1, [true, false]));
        assert_eq!(audit(&mut tracepoint), (0, [true, false]));
        assert_eq!(open_of(&tracepoint.read().unwrap(), folder.id), open);

        drop((stays, servers));
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn connections_that_find_no_place_for_a_quick_mark_are_counted_too() {
    const THREADS: u32 = 4;
    const EACH: u32 = 50;
    /// Fewer than any machine has connections, so that places change hands while others are taken.
    const PLACES: u32 = 8;
    let mut tracepoint = match Tracepoint::attach(&Options { quick_marks: Some(PLACES), ..Options::default() }) {
        Ok(tracepoint) => tracepoint,
        Err(error) => return skip(&error.to_string()),
    };
    let ran = in_private_namespace(|| {
        let Some(folder) = Folder::enter("places") else { return skip("no cgroup v2 to write to") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients = connect(address, 20);
        let servers: Vec<_> = clients.iter().map(|_| listener.accept().unwrap()).collect();
        let churn = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            for round in 0..EACH {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (server, _) = listener.accept().unwrap();
                if round % 2 == 0 { drop((client, server)) } else { drop((server, client)) }
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(churn))));
        let open = OpenConnections { inbound: 20, outbound: 20 };
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == open);
        assert_eq!(open_of(&reading, folder.id), open);
        let scan = tracepoint.scan(own_netns()).unwrap();
        assert_eq!((scan.seeded, scan.uncounted, scan.cgroups[&folder.id]), (0, 0, open));

        drop((clients, servers, listener));
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
        let netns = u32::try_from(own_netns()).unwrap();
        let counted = tracepoint.loaded.maps.cgroups().unwrap()[&CgroupKey::new(folder.id, netns)];
        let came = u64::from(THREADS * EACH + 20);
        assert_eq!((counted.inbound_opened, counted.outbound_opened), (came, came), "each once");
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn what_was_open_before_is_seeded_and_an_audit_finds_no_drift() {
    let ran = in_private_namespace(|| {
        let Some(folder) = Folder::enter("seed") else { return skip("no cgroup v2 to write to") };
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cookie = socket_cookie(&listener).unwrap();
        let mut clients = connect(SocketAddr::from(([127, 0, 0, 1], port)), 3);
        clients.extend(connect(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)), 2));
        let accepted = listener.accept().unwrap();

        let Some(mut tracepoint) = attached() else { return };
        let scan = tracepoint.scan(own_netns()).unwrap();
        assert_eq!(scan.seeded, 10, "five connections, both ends");
        assert_eq!(scan.cgroups[&folder.id], OpenConnections { inbound: 5, outbound: 5 });
        assert_eq!((scan.listeners[&cookie].depth, scan.uncounted), (4, 0));
        let reading = tracepoint.read().unwrap();
        assert_eq!(open_of(&reading, folder.id), OpenConnections { inbound: 5, outbound: 5 });
        let seen = listener_of(&reading, cookie).unwrap();
        assert_eq!((seen.opened_ns, seen.enqueued, seen.family), (None, Some(0), Family::Ipv6));

        let mut audit = tracepoint.begin_audit().unwrap();
        let scan = tracepoint.scan(own_netns()).unwrap();
        assert_eq!(scan.seeded, 0, "everything is marked already");
        audit.add(own_netns(), &scan);
        let drift = audit.finish(&tracepoint.loaded.maps.cgroups().unwrap(), &BTreeMap::new(), &BTreeMap::new());
        assert_eq!((drift.total, drift.doubts), (0, BTreeMap::new()));

        drop((clients, accepted, listener));
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn a_changed_backlog_is_reported_at_the_next_enqueue() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cookie = socket_cookie(&listener).unwrap();
        rustix::net::listen(&listener, 7).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut kinds = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while kinds.len() < 2 && Instant::now() < deadline {
            let reading = tracepoint.read().unwrap();
            let own = reading.events.into_iter().filter(|event| event.listener.cookie == cookie);
            kinds.extend(own.map(|event| (event.kind, event.previous_backlog, event.listener.backlog)));
        }
        assert_eq!(kinds, [(EventKind::Opened, None, 128), (EventKind::Relistened, Some(128), 7)]);
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn debug_messages_are_off_unless_asked_for() {
    for (log, what) in [(false, "off"), (true, "on")] {
        let mut tracepoint = match Tracepoint::attach(&Options { log, ..Options::default() }) {
            Ok(tracepoint) => tracepoint,
            Err(error) => return skip(&error.to_string()),
        };
        assert_eq!(tracepoint.loaded.log.is_some(), log, "switched {what}");
        tracepoint.read().unwrap();
    }
}

#[test]
fn many_threads_lose_no_count() {
    const THREADS: usize = 8;
    const EACH: usize = 50;
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 4096).unwrap();
        let address = listener.local_addr().unwrap();
        let cookie = socket_cookie(&listener).unwrap();
        let clients: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| connect(address, EACH))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let reading = read_until(&mut tracepoint, |reading| {
            listener_of(reading, cookie).is_some_and(|listener| listener.enqueued == Some(400))
        });
        let seen = listener_of(&reading, cookie).unwrap();
        assert_eq!((clients.len(), seen.enqueued, seen.depth_peak), (400, Some(400), Some(400)));
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn a_socket_connected_to_itself_is_one_outbound_connection() {
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let Some(folder) = Folder::enter("self") else { return skip("no cgroup v2 to write to") };
        let socket = tcp_socket(None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 4040))).unwrap();
        rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 1], 4040))).unwrap();
        let open = open_of(&tracepoint.read().unwrap(), folder.id);
        assert_eq!(open, OpenConnections { inbound: 0, outbound: 1 });
        drop(socket);
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

#[test]
fn an_mptcp_connection_is_counted_by_its_tcp_side_only() {
    const IPPROTO_MPTCP: u32 = 262;
    let Some(mut tracepoint) = attached() else { return };
    let ran = in_private_namespace(|| {
        let mptcp = || tcp_socket(Some(rustix::net::Protocol::from_raw(IPPROTO_MPTCP.try_into().unwrap())));
        let Some(folder) = Folder::enter("mptcp") else { return skip("no cgroup v2 to write to") };
        let Ok(listener) = mptcp() else { return skip("this kernel has no MPTCP") };
        rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 4040))).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        let client = mptcp().unwrap();
        rustix::net::connect(&client, &SocketAddr::from(([127, 0, 0, 1], 4040))).unwrap();
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id).inbound == 1);
        assert_eq!(open_of(&reading, folder.id), OpenConnections { inbound: 1, outbound: 1 });
        let own = own_netns();
        let listeners: Vec<_> = reading.listeners.iter().filter(|listener| listener.netns == own).collect();
        assert_eq!(listeners.len(), 1, "one listener, its TCP side");
        assert_eq!((listeners[0].enqueued, listeners[0].backlog), (Some(1), 8));
        drop((client, listener));
        let reading = read_until(&mut tracepoint, |reading| open_of(reading, folder.id) == OpenConnections::default());
        assert_eq!(open_of(&reading, folder.id), OpenConnections::default());
    });
    if ran.is_none() {
        skip("no right to a private network namespace");
    }
}

fn tcp_socket(protocol: Option<rustix::net::Protocol>) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, protocol)
}
