//! The conversation with the daemon as a state machine: commands, frames and time go in, bytes and answers come out.
//! Owns every unanswered request and every live lease of this process. Opens no socket and reads no clock; `transport`
//! does both.
//!
//! ```text
//!  Down ──connected──▶ Greeting ──Welcome──▶ Up ──Drain──▶ Draining
//!   ▲                     │                  ▲ │ heartbeat      │
//!   │                     │                  │ ▼ stalls         │
//!   │                     │                 Still               │
//!   └─────────────────────┴──────disconnected─┴─────────────────┘
//! ```
//!
//! In every state but `Up` requests wait. Once that has lasted for the configured patience the daemon is *away* and the
//! fallback decides what waits and what comes. `Welcome`, or a heartbeat that moves again, ends it: all leases are
//! registered, then all requests sent.

mod idle;
mod leases;
mod link;
mod requests;
mod table;

use crate::config::Config;
use crate::lease::queue::{Command, WeakQueue};
use crate::lease::refused::Refused;
use crate::lease::request::AcquireRequest;
use crate::lease::{Lease, LeaseState};
use crate::protocol::fallback::LocalShare;
use bytes::BytesMut;
use governor_common::wire::codec::{RELEASES_PER_FRAME, encode_release, encode_request};
use governor_common::wire::error::EncodeError;
use governor_common::wire::reply::{Overload, Reply};
use governor_common::wire::request::Request;
use governor_common::wire::{KeyHash, VERSION};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use table::Table;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::Instant;
use tracing::{info, warn};

/// Batching delay: a release waits at most this long for a frame to travel with.
const LINGER: Duration = Duration::from_millis(2);

type Answer = oneshot::Sender<Result<Lease, Refused>>;
type Moved = oneshot::Sender<Result<Arc<str>, Refused>>;
type Resumed = oneshot::Sender<Result<(), Refused>>;

/// First version of the protocol that knows parents, suspended leases, tiers and clients.
const SINCE_TWO: u16 = 2;

/// The state of the conversation.
pub(crate) struct Exchange {
    name: String,
    patience: Duration,
    max_wait: Duration,
    link: Link,
    /// Version of the session.
    version: u16,
    /// Since when nothing can be asked of the daemon; `None` while it can.
    unserved: Option<Instant>,
    away: bool,
    last_session: Option<u64>,
    welcomed: bool,
    renew_every: Duration,
    renew_at: Instant,
    probe_at: Instant,
    /// When the oldest unanswered probe was sent.
    probed: Option<Instant>,
    /// When to look at the heartbeat next; `None` where there is none.
    look_at: Option<Instant>,
    next_request: u32,
    next_slot: u64,
    /// By ticket: their order is that of arrival.
    waiting: Table<u64, Waiting>,
    /// What the daemon owes an answer to.
    open: Table<u32, Open>,
    /// By slot.
    held: Table<u64, Held>,
    /// Slots by the id the daemon knows.
    by_id: Table<u64, u64>,
    deferred_moves: Vec<(u64, Moved)>,
    deferred_resumes: Vec<(u64, Option<Duration>, Resumed)>,
    releases: Vec<u64>,
    /// The releases are batched until then.
    linger_until: Option<Instant>,
    local: LocalShare,
    queue: WeakQueue,
    publisher: Publisher,
    out: BytesMut,
}

/// Where frames that answer no request are published.
pub(crate) struct Publisher {
    pub(crate) overload: watch::Sender<Overload>,
    pub(crate) connected: watch::Sender<bool>,
    pub(crate) tiers: broadcast::Sender<KeyHash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Greeting,
    Up,
    /// Up, but the daemon does nothing: it is stopped or stuck.
    Still,
    Draining,
}

/// A request without an answer.
struct Waiting {
    ask: Box<AcquireRequest>,
    reply: Answer,
    since: Instant,
    /// The frame that carries it, on this connection.
    request: Option<u32>,
    /// A frame carried it, on this connection or an earlier one.
    sent: bool,
}

/// A frame without an answer.
enum Open {
    Acquire(u64),
    Move(u64, Moved),
    Resume(u64, Option<Duration>, Resumed),
    Register(Vec<u64>),
}

/// Callers that wait for an answer when the session ends. Dropping this notifies them that there is none.
pub(crate) struct Unanswered {
    _requests: Table<u64, Waiting>,
    _frames: Table<u32, Open>,
    _moves: Vec<(u64, Moved)>,
    _resumes: Vec<(u64, Option<Duration>, Resumed)>,
}

/// A lease whose guard is alive, or was dropped while its registration was on the way.
struct Held {
    state: Arc<LeaseState>,
    phase: Phase,
    moved: bool,
    /// It takes no slot until it is resumed.
    suspended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The daemon counts it.
    Counted,
    /// It is yet to be registered.
    Unregistered,
    /// Its registration was sent, and the new id is on its way.
    Registering,
    /// As above, but the guard is gone: release it under the new id.
    Ending,
    /// Takes no slot: exempt, revoked, or not taken at registration.
    Uncounted,
}

/// The session cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Worth another attempt soon.
    Retry,
    /// The daemon refused this proxy or its version: only a change of configuration helps.
    Denied,
}

impl Exchange {
    pub(crate) fn new(config: &Config, queue: WeakQueue, publisher: Publisher, now: Instant) -> Self {
        Self {
            name: config.name.clone(),
            patience: config.patience,
            max_wait: config.max_wait,
            link: Link::Down,
            version: VERSION,
            unserved: Some(now),
            away: false,
            last_session: None,
            welcomed: false,
            renew_every: link::RENEW_EVERY,
            renew_at: now,
            probe_at: now,
            probed: None,
            look_at: None,
            next_request: 0,
            next_slot: 0,
            waiting: Table::default(),
            open: Table::default(),
            held: Table::default(),
            by_id: Table::default(),
            deferred_moves: Vec::new(),
            deferred_resumes: Vec::new(),
            releases: Vec::new(),
            linger_until: None,
            local: LocalShare::new(config.fallback, config.node_cap),
            queue,
            publisher,
            out: BytesMut::new(),
        }
    }

    /// Something this process wants.
    pub(crate) fn handle_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Acquire { ticket, ask, reply } => {
                self.waiting.insert(ticket, Waiting { ask, reply, since: now, request: None, sent: false });
                self.advance(ticket, now);
            }
            Command::Cancel { ticket } => self.cancel(ticket),
            Command::Release { slot } => self.release(slot),
            Command::Move { slot, reply } => self.move_away(slot, reply, now),
            Command::Suspend { slot } => self.suspend(slot),
            Command::Resume { slot, max_wait, reply } => self.resume(slot, max_wait, reply, now),
            Command::Tier(tier) => {
                if self.link == Link::Up && self.version >= SINCE_TWO {
                    self.put(&Request::TierIs(tier));
                }
            }
            Command::Report(report) => {
                self.local.report(&report, now);
                if self.link == Link::Up {
                    self.put(&Request::MemberReport(report));
                }
            }
        }
        self.publish();
    }

    /// Something the daemon said.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the connection must be closed.
    pub(crate) fn handle_reply(&mut self, reply: Reply<Arc<str>>, request: u32, now: Instant) -> Result<(), Broken> {
        self.heard(now);
        match reply {
            Reply::Welcome(welcome) => self.welcome(&welcome, now)?,
            Reply::Grant(grant) => self.grant(request, grant, now),
            Reply::Shed(shed) => self.shed(request, shed),
            Reply::Reject { reason } => self.refuse(request, Refused::rejected(reason)),
            Reply::Registered { leases } => self.registered(request, &leases, now),
            Reply::Revoke { lease, reason } => self.revoke(lease, reason),
            Reply::Overload(overload) => {
                self.publisher.overload.send_replace(overload);
            }
            Reply::Limits(limits) => self.local.learn(limits),
            Reply::MoreLimits { pools } => self.local.learn_more(pools),
            Reply::TierAsk { org } => {
                // Without a subscriber the tier is not looked up, and the base ceiling holds.
                self.publisher.tiers.send(org).ok();
            }
            Reply::ClientGone { lease } => self.client_gone(lease),
            Reply::Drain => {
                info!("the governor is draining");
                self.link = Link::Draining;
                self.lose(now);
            }
            Reply::Error { code, message } => self.error(request, code, message)?,
            Reply::Parked | Reply::Pong => {}
        }
        self.publish();
        Ok(())
    }

    /// Says what has ended. Where slots are not `scarce` it waits a little for a frame to travel with: a write and a
    /// wake-up of the daemon for every release would be half of what asking costs.
    /// `since`: when the oldest came that this did not know before.
    pub(crate) fn say_releases(&mut self, scarce: impl FnOnce() -> bool, since: Instant, now: Instant) {
        if self.releases.is_empty() || !self.is_open() {
            self.linger_until = None;
            return;
        }
        let until = *self.linger_until.get_or_insert(since + LINGER);
        if !self.out.is_empty() || !self.waiting.is_empty() || now >= until || scarce() {
            self.linger_until = None;
            let mut releases = mem::take(&mut self.releases);
            for leases in releases.chunks(RELEASES_PER_FRAME) {
                let request = self.request_id();
                note(encode_release(leases, request, &mut self.out));
            }
            releases.clear();
            self.releases = releases;
        }
    }

    /// When the releases have waited for long enough.
    pub(crate) fn lingers_until(&self) -> Option<Instant> {
        self.linger_until
    }

    /// It is over: what is still owed an answer, for the caller to drop.
    pub(crate) fn end(&mut self) -> Unanswered {
        Unanswered {
            _requests: mem::take(&mut self.waiting),
            _frames: mem::take(&mut self.open),
            _moves: mem::take(&mut self.deferred_moves),
            _resumes: mem::take(&mut self.deferred_resumes),
        }
    }

    /// Bytes to write. The writer takes what it wrote off the front.
    pub(crate) fn poll_output(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    fn request_id(&mut self) -> u32 {
        // 0 is for what answers nothing.
        self.next_request = self.next_request.checked_add(1).unwrap_or(1);
        self.next_request
    }

    /// Writes a frame that fits by construction, and returns its request id.
    fn put(&mut self, message: &Request) -> u32 {
        let request = self.request_id();
        note(encode_request(message, request, &mut self.out));
        request
    }

    fn publish(&self) {
        let counters = self.queue.counters();
        counters.leases.store(u32::try_from(self.held.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        counters.waiting.store(u32::try_from(self.waiting.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

/// What this writes fits by construction.
fn note(written: Result<(), EncodeError>) {
    if let Err(error) = written {
        warn!(%error, "a frame was left out");
    }
}

/// Whole milliseconds, at most what the wire can say.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
