//! The one task that touches the socket: connects, reconnects with jitter, reads, writes and keeps time for
//! [`Exchange`], which decides what is said. A socket that refuses, is missing or is busy (`EAGAIN`: its queue is full)
//! is the same to callers: they wait within `Config::patience`, then the fallback decides.

use std::future;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use governor_common::wire::codec::parse_reply;
use governor_common::wire::error::ParseError;
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::Overload;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use crate::client::{Command, Queue, View, WeakQueue};
use crate::config::Config;
use crate::exchange::{Broken, Exchange, Said};
use crate::signals::{self, Shown};

/// Commands taken up before the socket gets its turn; enough to fill a few writes.
const COMMANDS_PER_TURN: usize = 256;

/// Reads before commands get their turn.
const READS_PER_TURN: usize = 16;

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
pub(crate) fn start(config: Config, commands: mpsc::UnboundedReceiver<Command>, queue: &Queue) -> View {
    let (overload_sender, overload) = watch::channel(Overload::default());
    let (connected_sender, connected) = watch::channel(false);
    let now = Instant::now();
    let tiers = broadcast::Sender::new(TIERS_ASKED);
    let asked = tiers.downgrade();
    let said = Said { overload: overload_sender, connected: connected_sender, tiers };
    let (page_sender, page) = watch::channel(None);
    let exchange = Exchange::new(&config, queue.downgrade(), said, now);
    let session = Session {
        socket: config.socket,
        exchange,
        commands,
        queue: queue.downgrade(),
        stream: None,
        page: page_sender,
        inbound: BytesMut::new(),
        pause: SHORTEST_PAUSE,
        attempt_at: now,
    };
    tokio::spawn(session.run());
    View { overload, connected, tiers: asked, page }
}

struct Session {
    socket: PathBuf,
    exchange: Exchange,
    commands: mpsc::UnboundedReceiver<Command>,
    queue: WeakQueue,
    stream: Option<UnixStream>,
    page: watch::Sender<Option<Arc<Shown>>>,
    inbound: BytesMut,
    pause: Duration,
    attempt_at: Instant,
}

impl Session {
    async fn run(mut self) {
        loop {
            let now = Instant::now();
            if self.exchange.wants_look(now) {
                let still = self.page.borrow().as_ref().map(|page| page.is_stale());
                self.exchange.handle_heartbeat(still, now);
            }
            if let Err(broken) = self.exchange.handle_timeout(now) {
                self.disconnect(broken, now);
                continue;
            }
            if self.stream.is_none() && now >= self.attempt_at {
                self.connect().await;
            }
            self.write();

            let wake = match &self.stream {
                Some(_) => self.exchange.poll_timeout(),
                None => Some(self.exchange.poll_timeout().map_or(self.attempt_at, |at| at.min(self.attempt_at))),
            };
            let writing = !self.exchange.poll_output().is_empty();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => break,
                },
                () = ready(self.stream.as_ref(), writing) => self.read(),
                () = until(wake) => {}
            }
        }
        self.farewell().await;
    }

    /// Takes up a command and those queued behind it, so that their frames leave together.
    fn take(&mut self, first: Command) {
        let now = Instant::now();
        let mut next = Some(first);
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = next else { break };
            self.queue.counters().queued.fetch_sub(1, Ordering::Relaxed);
            self.exchange.handle_command(command, now);
            next = self.commands.try_recv().ok();
        }
        if let Some(command) = next {
            self.queue.counters().queued.fetch_sub(1, Ordering::Relaxed);
            self.exchange.handle_command(command, now);
        }
    }

    /// A connect to a Unix socket succeeds or fails at once, so awaiting it stalls nobody.
    async fn connect(&mut self) {
        let attempt = UnixStream::connect(&self.socket).await;
        let now = Instant::now();
        match attempt {
            Ok(stream) => {
                self.stream = Some(stream);
                self.inbound.clear();
                // It belongs to the daemon that was; whoever looks meanwhile is told what frames say.
                self.page.send_replace(None);
                self.exchange.handle_connected(now);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.attempt_at = now + jittered(BUSY_PAUSE),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                warn!(socket = %self.socket.display(), %error, "the governor's socket denies this process");
                self.attempt_at = now + jittered(DENIED_PAUSE);
            }
            Err(error) => {
                debug!(socket = %self.socket.display(), %error, "the governor is not there");
                self.back_off(now);
            }
        }
    }

    fn disconnect(&mut self, broken: Broken, now: Instant) {
        self.stream = None;
        self.exchange.handle_disconnected(now);
        match broken {
            Broken::Retry => self.back_off(now),
            Broken::Denied => self.attempt_at = now + jittered(DENIED_PAUSE),
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.attempt_at = now + jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn write(&mut self) {
        let page = &self.page;
        // Without a page nobody tells that slots are not scarce.
        let scarce = || page.borrow().as_ref().is_none_or(|shown| shown.is_scarce());
        self.exchange.say_releases(scarce, Instant::now());
        let Some(stream) = &self.stream else { return };
        let out = self.exchange.poll_output();
        while !out.is_empty() {
            match stream.try_write(out) {
                Ok(written) => out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    debug!(%error, "the connection to the governor broke");
                    return self.disconnect(Broken::Retry, Instant::now());
                }
            }
        }
    }

    fn read(&mut self) {
        let now = Instant::now();
        for _ in 0..READS_PER_TURN {
            let Some(stream) = &self.stream else { return };
            self.inbound.reserve(READ_CHUNK);
            // The page comes with the greeting.
            let read = if self.exchange.is_greeting() {
                signals::receive(stream, &mut self.inbound, &self.page)
            } else {
                stream.try_read_buf(&mut self.inbound)
            };
            let read = match read {
                Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => Err(error),
            };
            if let Err(error) = read {
                debug!(%error, "the connection to the governor broke");
                return self.disconnect(Broken::Retry, now);
            }
            if let Err(broken) = self.hear(now) {
                return self.disconnect(broken, now);
            }
        }
    }

    /// Hands every whole frame to the exchange.
    fn hear(&mut self, now: Instant) -> Result<(), Broken> {
        loop {
            let frame = match decode_frame(&mut self.inbound) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => {
                    warn!(%error, "the governor's bytes make no sense");
                    return Err(Broken::Retry);
                }
            };
            match parse_reply(&frame) {
                Ok(reply) => {
                    self.exchange.handle_reply(reply, frame.request, now)?;
                    self.pause = SHORTEST_PAUSE;
                }
                // A newer daemon may say what this build need not understand.
                Err(error @ ParseError::Unknown { .. }) => debug!(%error, "skipped a frame"),
                Err(error @ ParseError::Malformed { .. }) => {
                    warn!(%error, "the governor's bytes make no sense");
                    return Err(Broken::Retry);
                }
            }
        }
    }

    /// Everyone is gone: says the last releases and hangs up.
    async fn farewell(mut self) {
        let Some(stream) = self.stream.take() else { return };
        self.exchange.say_releases(|| true, Instant::now());
        let out = self.exchange.poll_output();
        let said = timeout(FAREWELL, async {
            while !out.is_empty() {
                stream.writable().await?;
                match stream.try_write(out) {
                    Ok(written) => out.advance(written),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        if !matches!(said.await, Ok(Ok(()))) {
            debug!("the last releases were not said: the daemon frees them with the session");
        }
    }
}

/// Waits until the connection, if there is one, can be read or takes what is to be written.
async fn ready(stream: Option<&UnixStream>, writing: bool) {
    let Some(stream) = stream else { return future::pending().await };
    let interest = if writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    // An error shows at the read that follows.
    drop(stream.ready(interest).await);
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}

/// Between half of `pause` and all of it, so that a crowd does not return together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}
