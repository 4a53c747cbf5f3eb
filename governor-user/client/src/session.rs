//! The one task that keeps the connection: connects, reconnects with jitter, reads, and keeps time for the conversation
//! behind the [`Line`]; it writes what nobody else has written. A socket that refuses, is missing or is busy (`EAGAIN`:
//! its queue is full) is the same to callers: they wait within `Config::patience`, then the fallback decides.

use std::future;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use governor_common::wire::codec::read_reply;
use governor_common::wire::error::ParseError;
use governor_common::wire::frame::next_frame;
use governor_common::wire::reply::Overload;
use governor_common::wire::socket::Socket;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, watch};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use crate::alarm::Alarm;
use crate::client::View;
use crate::config::Config;
use crate::exchange::{Broken, Exchange, Said};
use crate::line::{Line, Next, Queue};
use crate::signals::{self, Greeting, Shown};
use crate::talk::Talk;

/// Room for one read.
const READ_CHUNK: usize = 16 * 1024;

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
pub(crate) fn start(config: Config) -> (Queue, View) {
    let (overload_sender, overload) = watch::channel(Overload::default());
    let (connected_sender, connected) = watch::channel(false);
    let (page_sender, page) = watch::channel(None);
    let now = Instant::now();
    let tiers = broadcast::Sender::new(TIERS_ASKED);
    let asked = tiers.downgrade();
    let said = Said { overload: overload_sender, connected: connected_sender, tiers };
    let queue = Queue::new(|back| Talk::new(Exchange::new(&config, back, said, now), page.clone()));
    let session = Session {
        path: config.socket,
        line: queue.line(),
        socket: None,
        page: page_sender,
        chunk: vec![0; READ_CHUNK].into(),
        inbound: BytesMut::new(),
        pause: SHORTEST_PAUSE,
        attempt_at: now,
        timer: Alarm::new(now),
        linger: Alarm::new(now),
    };
    tokio::spawn(session.run());
    (queue, View { overload, connected, tiers: asked, page })
}

struct Session {
    path: PathBuf,
    line: Arc<Line>,
    /// `None` while there is no connection.
    socket: Option<Arc<Socket>>,
    page: watch::Sender<Option<Arc<Shown>>>,
    /// Where reads go.
    chunk: Box<[u8]>,
    /// What was read and is no whole frame yet.
    inbound: BytesMut,
    pause: Duration,
    attempt_at: Instant,
    timer: Alarm,
    /// For releases that wait for company, which come in such numbers that it stays set.
    linger: Alarm,
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
    /// A greeting, or a part of it, in the front of the chunk.
    Greeting(io::Result<Greeting>),
    /// So many bytes, there too.
    Read(io::Result<usize>),
    /// Room for more.
    Room,
}

/// What there is to do after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// A turn like any other.
    Turn,
    /// More reading: the answers were handed out, and that is all.
    Reading,
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
            tokio::select! {
                biased;
                () = self.line.called() => return,
                () = self.timer.rings() => return,
                () = self.linger.rings() => return,
                sign = sign(self.socket.as_deref(), &mut self.chunk, wants) => {
                    if self.read(sign) == After::Turn {
                        return;
                    }
                }
            }
        }
    }

    /// Does what is due. `None`: the conversation cannot go on.
    fn turn(&mut self) -> Option<(Next, Wants)> {
        let line = self.line.clone();
        let mut talk = line.talk()?;
        let now = Instant::now();
        line.take_up(&mut talk, now);
        if talk.exchange.wants_look(now) {
            let still = self.page.borrow().as_ref().map(|page| page.is_stale());
            talk.exchange.handle_heartbeat(still, now);
        }
        let mut ended = talk.exchange.handle_timeout(now);
        talk.write(now, now);
        if talk.is_broken() {
            ended = ended.and(Err(Broken::Retry));
        }
        if let Err(broken) = ended {
            self.disconnect(&mut talk, broken, now);
            // What waits may be decided without the daemon now.
            return Some((Next::Busy, Wants::default()));
        }
        self.timer.set_by(talk.exchange.poll_timeout());
        self.timer.set_by(self.socket.is_none().then_some(self.attempt_at));
        self.linger.set_by(talk.exchange.lingers_until());
        talk.alarm = [self.timer.at(), self.linger.at()].into_iter().flatten().min();
        let wants = Wants { greeting: talk.exchange.is_greeting(), room: talk.is_writing() };
        let attended = self.linger.at().is_some() && !talk.is_scarce();
        drop(talk);
        Some((line.rest(attended), wants))
    }

    /// A connect to a Unix socket succeeds or fails at once, so awaiting it stalls nobody.
    async fn connect(&mut self) {
        let attempt = UnixStream::connect(&self.path).await;
        let attempt = attempt.and_then(|stream| Socket::new(stream.into_std()?));
        let now = Instant::now();
        match attempt {
            Ok(socket) => {
                let socket = Arc::new(socket);
                self.socket = Some(socket.clone());
                self.inbound.clear();
                // It belongs to the daemon that was; whoever looks meanwhile is told what frames say.
                self.page.send_replace(None);
                if let Some(mut talk) = self.line.talk() {
                    talk.connected(socket, now);
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

    fn disconnect(&mut self, talk: &mut Talk, broken: Broken, now: Instant) {
        self.socket = None;
        talk.disconnected(now);
        match broken {
            Broken::Retry => self.back_off(now),
            Broken::Denied => self.attempt_at = now + jittered(DENIED_PAUSE),
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.attempt_at = now + jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn read(&mut self, sign: Sign) -> After {
        let line = self.line.clone();
        let (Some(mut talk), now) = (line.talk(), Instant::now()) else { return After::Turn };
        let (heard, after) = match sign {
            Sign::Room => (Ok(()), After::Turn),
            Sign::Greeting(read) => {
                (self.receive(read).and_then(|count| self.hear(count, &mut talk, now)), After::Turn)
            }
            Sign::Read(read) => (self.take(read).and_then(|count| self.hear(count, &mut talk, now)), After::Reading),
        };
        if let Err(broken) = heard {
            self.disconnect(&mut talk, broken, now);
            return After::Turn;
        }
        talk.write(now, now);
        if talk.needs_task() { After::Turn } else { after }
    }

    /// How many bytes came.
    fn take(&self, read: io::Result<usize>) -> Result<usize, Broken> {
        let error = match read {
            Ok(0) => ErrorKind::UnexpectedEof.into(),
            Ok(count) => return Ok(count),
            Err(error) => error,
        };
        debug!(%error, socket = %self.path.display(), "the connection to the governor broke");
        Err(Broken::Retry)
    }

    /// The page comes with the greeting.
    fn receive(&self, read: io::Result<Greeting>) -> Result<usize, Broken> {
        let read = read.map(|Greeting { count, descriptor }| {
            if let Some(descriptor) = descriptor {
                signals::show(descriptor, &self.page);
            }
            count
        });
        self.take(read)
    }

    /// Hands every whole frame to the exchange, mostly from where it was read to.
    fn hear(&mut self, count: usize, talk: &mut Talk, now: Instant) -> Result<(), Broken> {
        let fresh = self.chunk.get(..count).unwrap_or_default();
        let heard = if self.inbound.is_empty() {
            let mut left = fresh;
            hear(&mut left, talk, now)?;
            self.inbound.extend_from_slice(left);
            count - left.len()
        } else {
            self.inbound.extend_from_slice(fresh);
            let mut left = &self.inbound[..];
            hear(&mut left, talk, now)?;
            let heard = self.inbound.len() - left.len();
            self.inbound.advance(heard);
            heard
        };
        if heard > 0 {
            self.pause = SHORTEST_PAUSE;
        }
        Ok(())
    }

    /// Everyone is gone: says the last releases and hangs up.
    async fn farewell(&mut self) {
        let last = self.line.talk().and_then(|mut talk| talk.hang_up(Instant::now()));
        let Some((socket, out)) = last else { return };
        if !matches!(timeout(FAREWELL, socket.write_all(&out)).await, Ok(Ok(()))) {
            debug!("the last releases were not said: the daemon frees them with the session");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.line.end();
    }
}

/// Waits until the connection, if there is one, has something to read, which is then in the front of `chunk`, or room for
/// what is to be written.
async fn sign(socket: Option<&Socket>, chunk: &mut [u8], wants: Wants) -> Sign {
    let Some(socket) = socket else { return future::pending().await };
    let read = async {
        if wants.greeting {
            Sign::Greeting(signals::receive(socket, chunk).await)
        } else {
            Sign::Read(socket.read(chunk).await)
        }
    };
    tokio::select! {
        sign = read => sign,
        // An error shows at the next write.
        _ = socket.writable(), if wants.room => Sign::Room,
    }
}

/// Hands every whole frame at the front of `bytes` to the exchange.
fn hear(bytes: &mut &[u8], talk: &mut Talk, now: Instant) -> Result<(), Broken> {
    loop {
        let frame = match next_frame(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(error) => {
                warn!(%error, "the governor's bytes make no sense");
                return Err(Broken::Retry);
            }
        };
        match read_reply(frame) {
            Ok(reply) => talk.exchange.handle_reply(reply, frame.request, now)?,
            // A newer daemon may say what this build need not understand.
            Err(error @ ParseError::Unknown { .. }) => debug!(%error, "skipped a frame"),
            Err(error @ ParseError::Malformed { .. }) => {
                warn!(%error, "the governor's bytes make no sense");
                return Err(Broken::Retry);
            }
        }
    }
}

/// Between half of `pause` and all of it, so that a crowd does not return together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}
