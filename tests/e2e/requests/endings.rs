//! Every ending a request can have, by the thousand, in front of a gateway and a daemon that are killed meanwhile: at the
//! end nothing is in flight, whoever is asked. Nothing may come back by an expiry or a reclaim: that would hide a leak.
//! Short in a normal run; `GOVERNOR_FULL=1` makes it 10,000 requests.

use crate::gateway::websocket;
use crate::signals::metrics::scrape;
use crate::site::{Program, accounts, gateway_with, stats, upstream};
use crate::world::{SOON, client, soon, until};
use governor_client::AcquireRequest;
use rustix::net::sockopt::set_socket_linger;
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::programs::daemon::{Daemon, Setup, free_port};
use support::random::Random;

/// Members and their slots: fewer than there are clients at a time, so that some always wait.
const MEMBERS: u32 = 2;
const SLOTS: u32 = 4;
const CLIENTS: u64 = 16;

/// How a request is to end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Complete,
    Slow,
    Malformed,
    UpstreamError,
    UpstreamCut,
    Timeout,
    Panic,
    PanicInBody,
    ClientResets,
    ClientCloses,
    ClientHalfCloses,
    /// Most likely before it was granted, or while its grant is on its way.
    ClientLeavesAtOnce,
    WebSocket,
    WebSocketReset,
}

const ALL: [Ending; 14] = [
    Ending::Complete,
    Ending::Slow,
    Ending::Malformed,
    Ending::UpstreamError,
    Ending::UpstreamCut,
    Ending::Timeout,
    Ending::Panic,
    Ending::PanicInBody,
    Ending::ClientResets,
    Ending::ClientCloses,
    Ending::ClientHalfCloses,
    Ending::ClientLeavesAtOnce,
    Ending::WebSocket,
    Ending::WebSocketReset,
];

impl Ending {
    /// Path and body of the request.
    fn request(self, random: &mut Random) -> (&'static str, String) {
        let path = match self {
            Self::Panic => "/v1/panic/chat/completions",
            Self::PanicInBody => "/v1/panic-in-body/chat/completions",
            Self::Malformed => return ("/v1/chat/completions", "{".to_owned()),
            Self::Complete
            | Self::Slow
            | Self::UpstreamError
            | Self::UpstreamCut
            | Self::Timeout
            | Self::ClientResets
            | Self::ClientCloses
            | Self::ClientHalfCloses
            | Self::ClientLeavesAtOnce
            | Self::WebSocket
            | Self::WebSocketReset => "/v1/chat/completions",
        };
        let (words, simulate) = match self {
            Self::Slow => (4, json!({ "delay_ms": random.within(1, 100), "word_ms": 20 })),
            Self::UpstreamError => (1, json!({ "status": random.pick(&[500, 502, 503, 504]) })),
            Self::UpstreamCut => (5, json!({ "cut_after": random.within(1, 3), "word_ms": 5 })),
            Self::Timeout => (1, json!({ "hang": true })),
            Self::ClientResets | Self::ClientCloses | Self::ClientLeavesAtOnce => (5_000, json!({ "word_ms": 10 })),
            Self::Complete
            | Self::Malformed
            | Self::Panic
            | Self::PanicInBody
            | Self::ClientHalfCloses
            | Self::WebSocket
            | Self::WebSocketReset => (random.within(1, 5), json!({ "word_ms": random.within(1, 10) })),
        };
        (path, json!({ "model": "m", "stream": true, "max_tokens": words, "simulate": simulate }).to_string())
    }

    /// One request to its end. Errors are endings too: the gateway may be dead.
    fn play(self, gateway: SocketAddr, key: u64, random: &mut Random) -> io::Result<()> {
        let mut stream = TcpStream::connect(gateway)?;
        stream.set_read_timeout(Some(SOON))?;
        if matches!(self, Self::WebSocket | Self::WebSocketReset) {
            return self.chat(stream);
        }
        let (path, body) = self.request(random);
        let head =
            format!("Host: x\r\nAuthorization: Bearer sk-{key}\r\nContent-Type: application/json\r\nConnection: close");
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        let mut first = [0; 1];
        if matches!(self, Self::ClientLeavesAtOnce) {
            thread::sleep(Duration::from_millis(random.below(30)));
            if random.chance(50) {
                set_socket_linger(&stream, Some(Duration::ZERO))?;
            }
            return Ok(());
        }
        if matches!(self, Self::ClientHalfCloses) {
            stream.shutdown(Shutdown::Write)?;
        }
        stream.read_exact(&mut first)?;
        if matches!(self, Self::ClientResets) {
            set_socket_linger(&stream, Some(Duration::ZERO))?;
        } else if !matches!(self, Self::ClientCloses) {
            stream.read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }

    fn chat(self, mut stream: TcpStream) -> io::Result<()> {
        write!(stream, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\n{}\r\n\r\n", websocket::HANDSHAKE)?;
        let mut first = [0; 12];
        stream.read_exact(&mut first)?;
        if matches!(self, Self::WebSocketReset) {
            set_socket_linger(&stream, Some(Duration::ZERO))?;
        }
        Ok(())
    }
}

/// The gateway that serves now; its address changes when it is killed.
struct Site {
    gateway: Mutex<(Program, SocketAddr)>,
    begun: AtomicU64,
}

impl Site {
    fn address(&self) -> SocketAddr {
        self.gateway.lock().unwrap().1
    }

    /// Waits until so many requests have begun.
    fn wait(&self, begun: u64) {
        let bound = Instant::now() + Duration::from_secs(300);
        while self.begun.load(Ordering::Relaxed) < begun {
            assert!(Instant::now() < bound, "requests hang: {:?} have begun", self.begun);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn start(upstream: &Program, daemon: &Daemon) -> (Program, SocketAddr) {
    let gateway = gateway_with(upstream, &daemon.socket(), &["--test-routes", "--first-byte-timeout-ms", "400"]);
    let address = gateway.address;
    (gateway, address)
}

/// Connections to this port that the kernel has and nobody has given up: not the listener, not what only waits for its name
/// to be free.
fn open_connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && !["0A", "06"].contains(&row[3])).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_ends_in_whatever_way_nothing_is_in_flight_at_the_end() {
    let full = std::env::var_os("GOVERNOR_FULL").is_some_and(|value| value == "1");
    let requests: u64 = if full { 10_000 } else { 1_000 };
    let metrics = free_port();
    let lines = "[pools.chat.park]\nmax_wait = \"2s\"\n[pools.chat.cooldown]\noverloaded = \"100ms\"\n";
    let setup = Setup::new(&accounts(MEMBERS, SLOTS, lines)).tier("auto");
    let mut daemon = setup.metrics(metrics).start();
    // An account lets go of a call a moment after its client: it must not be what refuses.
    let upstream = Arc::new(upstream(MEMBERS, 8 * SLOTS));
    let site = Arc::new(Site { gateway: Mutex::new(start(&upstream, &daemon)), begun: AtomicU64::new(0) });
    let governor = client(&daemon.socket()).await;
    let signals = governor.signals();

    let played = tokio::task::spawn_blocking({
        let (site, upstream) = (site.clone(), upstream.clone());
        move || {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let site = site.clone();
                    thread::spawn(move || {
                        let mut random = Random::new(number);
                        let (mut met, mut failed) = (0, 0);
                        while site.begun.fetch_add(1, Ordering::Relaxed) < requests {
                            let ending = *random.pick(&ALL).unwrap();
                            met += 1;
                            failed += u64::from(ending.play(site.address(), number % 5, &mut random).is_err());
                        }
                        (met, failed)
                    })
                })
                .collect();
            let mut lost = Vec::new();
            for eighth in 1..8 {
                site.wait(requests * eighth / 8);
                match eighth {
                    2 | 5 | 7 => {
                        let mut gateway = site.gateway.lock().unwrap();
                        gateway.0.kill();
                        *gateway = start(&upstream, &daemon);
                    }
                    3 | 6 => {
                        lost.push(daemon.get("/v1/status")["lost"].clone());
                        daemon.kill();
                        daemon.restart().unwrap();
                    }
                    _ => {}
                }
            }
            let ends: Vec<(u64, u64)> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            (daemon, ends, lost)
        }
    });
    let (daemon, ends, mut lost) = played.await.unwrap();
    let met: u64 = ends.iter().map(|(met, _)| met).sum();
    let failed: u64 = ends.iter().map(|(_, failed)| failed).sum();
    assert!(met == requests && failed * 2 < met, "{failed} of {met} got no answer: most of them should");

    // The daemon, the metrics, the page, the provider and the kernel.
    let status = daemon.wait_for("/v1/status", |status| status["node"]["counted"] == 0 && status["awaited"] == 0);
    lost.push(status["lost"].clone());
    daemon.wait_for("/v1/pools", |pools| {
        let pool = &pools[0];
        pool["in_flight"] == 0 && pool["parked"] == 0 && pool["capacity"] == MEMBERS * SLOTS
    });
    assert_eq!(daemon.get("/v1/leases"), json!([]));
    let connections = ["told", "asked"].map(|end| format!("governor_client_connections{{end=\"{end}\"}}"));
    until("the metrics are at rest", move || {
        let series = scrape(metrics);
        let at_rest = |name: &str| series.get(name) == Some(&0.0);
        let names = [
            "governor_in_flight",
            "governor_parked",
            "governor_pool_in_flight{pool=\"chat\"}",
            "governor_leases_awaited",
        ];
        (names.into_iter().all(at_rest) && connections.iter().all(|name| at_rest(name))).then_some(())
    })
    .await;
    until("the page is at rest", move || {
        let page = signals.read()?;
        let pool = signals.pool("chat")?;
        ((page.node_counted, pool.in_flight, pool.parked) == (0, 0, 0)).then_some(())
    })
    .await;
    let (address, port) = (upstream.address, site.address().port());
    until("the provider is at rest", move || (stats(address)["in_flight"] == 0).then_some(())).await;
    until("the kernel has no connection of a client", move || (open_connections(port) == 0).then_some(())).await;
    assert!(lost.iter().all(|lost| *lost == json!([])), "every slot came back by itself: {lost:?}");

    // And all of it can be had.
    let mut leases = Vec::new();
    for _ in 0..MEMBERS * SLOTS {
        leases.push(soon(governor.acquire(AcquireRequest::new("chat").max_wait(Duration::ZERO))).await.unwrap());
    }
    soon(governor.acquire(AcquireRequest::new("chat").max_wait(Duration::ZERO))).await.expect_err("and no more");
}
