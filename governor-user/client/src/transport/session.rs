//! The one task that keeps the connection: connects, reconnects with jitter, reads, and keeps time for the conversation
//! behind the [`SharedConnection`]; it writes what no calling thread has written. A socket that refuses, is missing or
//! is busy (`EAGAIN`: its queue is full) is the same to callers: they wait within `Config::patience`, then the fallback
//! decides.

use crate::config::Config;
use crate::lease::queue::{Next, Queue};
use crate::protocol::exchange::{Broken, Exchange, Publisher};
use crate::signals::{self, Greeting, Shown};
use crate::transport::connection::Connection;
use crate::transport::shared_connection::{After, SharedConnection};
use crate::transport::timer::Timer;
use governor_common::wire::KeyHash;
use governor_common::wire::reply::Overload;
use governor_common::wire::socket::Socket;
use std::future;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, watch};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

/// Room for one read of a greeting.
const GREETING: usize = 1024;

/// Pause after a first failure, doubled after each further one up to `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Pause when the daemon is there and its queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Pause when the daemon or the socket's mode denies this proxy.
const DENIED_PAUSE: Duration = Duration::from_secs(5);

/// Questions for tiers kept for a slow reader.
const TIERS_ASKED: usize = 256;

/// How long the last frames may take when the proxy stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// Starts the task.
pub(crate) fn start(config: Config) -> View {
    let (overload_sender, overload) = watch::channel(Overload::default());
    let (connected_sender, connected) = watch::channel(false);
    let (page_sender, page) = watch::channel(None);
    let now = Instant::now();
    let tiers = broadcast::Sender::new(TIERS_ASKED);
    let asked = tiers.downgrade();
    let publisher = Publisher { overload: overload_sender, connected: connected_sender, tiers };
    let queue = Queue::new();
    let exchange = Exchange::new(&config, queue.downgrade(), publisher, now);
    let connection = Arc::new(SharedConnection::new(&queue, Connection::new(exchange, page.clone())));
    let session = Session {
        path: config.socket,
        connection: connection.clone(),
        socket: None,
        page: page_sender,
        greeting: vec![0; GREETING].into(),
        pause: SHORTEST_PAUSE,
        attempt_at: now,
        timer: Timer::new(now),
        linger: Timer::new(now),
    };
    tokio::spawn(session.run());
    View { queue, connection, overload, connected, tiers: asked, page }
}

/// What the session's task publishes, and the ways to it.
pub(crate) struct View {
    pub(crate) queue: Queue,
    pub(crate) connection: Arc<SharedConnection>,
    pub(crate) overload: watch::Receiver<Overload>,
    pub(crate) connected: watch::Receiver<bool>,
    pub(crate) tiers: broadcast::WeakSender<KeyHash>,
    pub(crate) page: watch::Receiver<Option<Arc<Shown>>>,
}

struct Session {
    path: PathBuf,
    connection: Arc<SharedConnection>,
    /// `None` while there is no connection.
    socket: Option<Arc<Socket>>,
    page: watch::Sender<Option<Arc<Shown>>>,
    /// Where greetings are read to.
    greeting: Box<[u8]>,
    pause: Duration,
    attempt_at: Instant,
    timer: Timer,
    /// For batched releases, which come in such numbers that it stays armed.
    linger: Timer,
}

/// What the task waits for.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    /// The greeting, with what comes along.
    greeting: bool,
    /// Room for bytes that are to be written.
    room: bool,
}

/// What the socket has.
enum Sign {
    /// A greeting, or a part of it.
    Greeting(io::Result<Greeting>),
    /// Something else, which the conversation has taken.
    Read(io::Result<After>),
    /// Room for more.
    Room,
}

impl Session {
    async fn run(mut self) {
        loop {
            if self.socket.is_none() && Instant::now() >= self.attempt_at {
                self.connect().await;
            }
            let Some((next, wants)) = self.turn() else { return };
            match next {
                // Others may go on queueing for ever.
                Next::Busy => {
                    consume_budget().await;
                    continue;
                }
                Next::Closed => break,
                Next::Rest => {}
            }
            self.wait(wants).await;
        }
        self.farewell().await;
    }

    /// Reads until there is something else to do.
    async fn wait(&mut self, wants: Wants) {
        loop {
            let shared = &self.connection;
            let sign = tokio::select! {
                biased;
                () = shared.notified() => return,
                () = self.timer.rings() => return,
                () = self.linger.rings() => return,
                sign = sign(self.socket.as_deref(), shared, &mut self.greeting, wants) => sign,
            };
            match sign {
                Sign::Read(Ok(After::Reading)) => {}
                Sign::Read(Ok(After::Turn)) | Sign::Room => return,
                Sign::Greeting(read) => return self.greet(read),
                Sign::Read(Err(error)) => return self.greet(Err(error)),
            }
        }
    }

    /// Does what is due. `None`: the conversation cannot go on.
    fn turn(&mut self) -> Option<(Next, Wants)> {
        let shared = self.connection.clone();
        let mut connection = shared.connection()?;
        let now = Instant::now();
        shared.take_up(&mut connection, now);
        if connection.exchange.wants_look(now) {
            let still = self.page.borrow().as_ref().map(|page| page.is_stale());
            connection.exchange.handle_heartbeat(still, now);
        }
        let ended = connection.exchange.handle_timeout(now);
        connection.write(now, now);
        if let Err(broken) = ended.and_then(|()| connection.broken()) {
            self.disconnect(&mut connection, broken, now);
            // What waits may be decided without the daemon now.
            return Some((Next::Busy, Wants::default()));
        }
        self.timer.set_by(connection.exchange.poll_timeout());
        self.timer.set_by(self.socket.is_none().then_some(self.attempt_at));
        self.linger.set_by(connection.exchange.lingers_until());
        connection.alarm = [self.timer.at(), self.linger.at()].into_iter().flatten().min();
        let wants = Wants { greeting: connection.exchange.is_greeting(), room: connection.is_writing() };
        let attended = self.linger.at().is_some() && !connection.is_scarce();
        drop(connection);
        Some((shared.rest(attended), wants))
    }

    /// A connect to a Unix socket succeeds or fails at once, so awaiting it stalls no other task.
    async fn connect(&mut self) {
        let attempt = UnixStream::connect(&self.path).await;
        let attempt = attempt.and_then(|stream| Socket::new(stream.into_std()?));
        let now = Instant::now();
        match attempt {
            Ok(socket) => {
                let socket = Arc::new(socket);
                self.socket = Some(socket.clone());
                // The page belongs to the previous connection; until the next one comes, readers get what frames say.
                self.page.send_replace(None);
                if let Some(mut connection) = self.connection.connection() {
                    connection.connected(socket, now);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.attempt_at = now + jittered(BUSY_PAUSE),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                warn!(socket = %self.path.display(), %error, "the governor's socket denies this process");
                self.attempt_at = now + jittered(DENIED_PAUSE);
            }
            Err(error) => {
                debug!(socket = %self.path.display(), %error, "the governor is not there");
                self.back_off(now);
            }
        }
    }

    fn disconnect(&mut self, connection: &mut Connection, broken: Broken, now: Instant) {
        self.socket = None;
        connection.disconnected(now);
        match broken {
            Broken::Retry => self.back_off(now),
            Broken::Denied => self.attempt_at = now + jittered(DENIED_PAUSE),
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.attempt_at = now + jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Takes the greeting, or a part of it, and the page that comes along.
    fn greet(&mut self, read: io::Result<Greeting>) {
        let shared = self.connection.clone();
        let (Some(mut connection), now) = (shared.connection(), Instant::now()) else { return };
        match read {
            Ok(Greeting { count: 0, .. }) => self.lose(&mut connection, &ErrorKind::UnexpectedEof.into(), now),
            Err(error) => self.lose(&mut connection, &error, now),
            Ok(Greeting { count, descriptor }) => {
                if let Some(descriptor) = descriptor {
                    signals::show(descriptor, &self.page);
                }
                connection.hear(self.greeting.get(..count).unwrap_or_default(), now);
                if connection.exchange.is_open() {
                    self.pause = SHORTEST_PAUSE;
                }
            }
        }
    }

    fn lose(&mut self, connection: &mut Connection, error: &io::Error, now: Instant) {
        debug!(%error, socket = %self.path.display(), "the connection to the governor broke");
        self.disconnect(connection, Broken::Retry, now);
    }

    /// Everyone is gone: says the last releases and hangs up.
    async fn farewell(&mut self) {
        let last = self.connection.connection().and_then(|mut connection| connection.hang_up(Instant::now()));
        let Some((socket, out)) = last else { return };
        if !matches!(timeout(FAREWELL, socket.write_all(&out)).await, Ok(Ok(()))) {
            debug!("the last releases were not said: the daemon frees them with the session");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.end();
    }
}

/// Waits until the connection, if there is one, has something to read or room for what is to be written.
async fn sign(socket: Option<&Socket>, shared: &SharedConnection, greeting: &mut [u8], wants: Wants) -> Sign {
    let Some(socket) = socket else { return future::pending().await };
    let read = async {
        if wants.greeting {
            Sign::Greeting(signals::receive(socket, greeting).await)
        } else {
            Sign::Read(socket.read_with(|_| shared.listen()).await)
        }
    };
    tokio::select! {
        sign = read => sign,
        // An error shows at the next write.
        _ = socket.writable(), if wants.room => Sign::Room,
    }
}

/// Between half of `pause` and all of it, so that a crowd does not return together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}
