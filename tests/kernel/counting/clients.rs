//! Clients of leases: the end of a connection is told by whichever tier there is, once and for whoever is its cause.

use crate::world::{options, tiers};
use governor_common::wire::request::ClientSocket;
use governor_kernel as kernel;
use governor_kernel::Plane;
use governor_kernel::clients::{ClientWatch, Finding, News, Question, Round};
use governor_observation::Tier;
use rustix::net::sockopt::{set_socket_linger, socket_cookie};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longest wait for what takes milliseconds.
const SOON: Duration = Duration::from_secs(20);

/// Connections that end at once.
const MANY: usize = 300;

/// A connection: the client's end, the proxy's, and what the proxy says of it.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    socket: ClientSocket,
}

impl Connection {
    fn open(address: &str) -> Self {
        let listener = TcpListener::bind(address).expect("loopback has a free port");
        let bound = listener.local_addr().expect("a bound socket has an address");
        let client = TcpStream::connect(bound).expect("the listener listens");
        let (server, peer) = listener.accept().expect("a connection waits");
        let cookie = Some(socket_cookie(&server).expect("every socket has a cookie"));
        let socket = ClientSocket { local: server.local_addr().expect("a connection has two ends"), peer, cookie };
        Self { client, server, socket }
    }

    fn cookie(&self) -> u64 {
        self.socket.cookie.expect("it was asked for")
    }
}

/// A watch by the programs of this tier, which live as long as the plane.
struct Watch {
    clients: ClientWatch<usize>,
    news: Receiver<News<usize>>,
    _plane: Plane,
}

impl Watch {
    fn on(tier: Tier) -> Self {
        let mut plane = kernel::spawn(options(tier)).expect("it starts on some tier");
        let closings = plane.take_closings();
        assert_eq!(closings.is_some(), tier >= Tier::Tracepoint, "{tier}");
        let (tell, news) = mpsc::channel();
        let clients = ClientWatch::start(closings, move |told| drop(tell.send(told))).expect("a thread is left");
        Self { clients, news, _plane: plane }
    }

    fn ask(&self, sockets: &[ClientSocket]) -> Vec<Finding<usize>> {
        let proxy = Some(std::process::id());
        let question = |(of, socket): (usize, &ClientSocket)| Question { of, proxy, socket: *socket };
        let questions = sockets.iter().enumerate().map(question).collect();
        assert!(self.clients.ask(Round { questions, forget: Vec::new() }));
        match self.news.recv_timeout(SOON).expect("it is told soon") {
            News::Found(found) => found,
            News::Closed(cookies) => panic!("nobody closed {cookies:?}"),
        }
    }

    /// The next ends that are told, until there are so many.
    fn ends(&self, count: usize) -> Vec<u64> {
        let mut ends = Vec::new();
        while ends.len() < count {
            match self.news.recv_timeout(SOON).expect("it is told soon") {
                News::Closed(cookies) => ends.extend(cookies),
                News::Found(found) => panic!("nobody asked: {found:?}"),
            }
        }
        ends.sort_unstable();
        ends
    }
}

#[test]
fn every_way_a_connection_ends_is_told_once_and_a_half_closed_one_has_not_ended() {
    let _machine = support::alone();
    for tier in tiers().filter(|tier| *tier >= Tier::Tracepoint) {
        let watch = Watch::on(tier);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let [reset, closed, aborted, half, kept] = std::array::from_fn(|_| Connection::open(address));
            let sockets = [&reset, &closed, &aborted, &half, &kept].map(|connection| connection.socket);
            let found = watch.ask(&sockets);
            assert!(found.len() == 5 && found.iter().all(|found| !found.gone && found.followed), "{found:?}");
            let mut expected = [reset.cookie(), closed.cookie(), aborted.cookie()];
            expected.sort_unstable();
            // The client resets; the proxy closes and then the client; the proxy resets.
            set_socket_linger(&reset.client, Some(Duration::ZERO)).unwrap();
            drop(reset.client);
            drop(closed.server);
            drop(closed.client);
            set_socket_linger(&aborted.server, Some(Duration::ZERO)).unwrap();
            drop(aborted.server);
            half.client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(watch.ends(3), expected, "{tier}, {address}");
            drop(reset.server);
            let still = watch.ask(&[half.socket, kept.socket]);
            assert!(still.iter().all(|found| !found.gone && found.followed), "{still:?}");
            let both = (half.cookie().min(kept.cookie()), half.cookie().max(kept.cookie()));
            drop((half, kept));
            assert_eq!(watch.ends(2), [both.0, both.1], "each once");
        }
    }
}

#[test]
fn a_connection_that_ended_before_it_was_named_is_found_at_once() {
    let _machine = support::alone();
    for tier in tiers() {
        let watch = Watch::on(tier);
        let (over, open) = (Connection::open("127.0.0.1:0"), Connection::open("127.0.0.1:0"));
        let sockets = [over.socket, open.socket, ClientSocket { cookie: None, ..open.socket }];
        drop(over);
        let found = watch.ask(&sockets);
        let gone: Vec<bool> = found.iter().map(|found| found.gone).collect();
        assert_eq!(gone, [true, false, false], "{tier}");
        let follows = tier >= Tier::Tracepoint;
        assert!(found[1..].iter().all(|found| found.cookie == open.socket.cookie && found.followed == follows));
        let cookie = open.cookie();
        drop(open);
        if follows {
            assert_eq!(watch.ends(1), [cookie], "one connection, whatever it was known by");
        }
    }
}

#[test]
fn hundreds_of_ends_at_once_are_all_told() {
    let _machine = support::alone();
    for tier in tiers().filter(|tier| *tier >= Tier::Tracepoint) {
        let watch = Watch::on(tier);
        let connections: Vec<_> = (0..MANY).map(|_| Connection::open("127.0.0.1:0")).collect();
        let sockets: Vec<_> = connections.iter().map(|connection| connection.socket).collect();
        let mut expected: Vec<_> = connections.iter().map(Connection::cookie).collect();
        expected.sort_unstable();
        assert!(watch.ask(&sockets).iter().all(|found| found.followed));
        drop(connections);
        assert_eq!(watch.ends(MANY), expected, "{tier}");
    }
}
