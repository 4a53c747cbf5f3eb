//! The conversation with the daemon as a state machine: commands, frames and time go in, bytes and answers come out.
//! Owns every unanswered request and every live lease of this process. Opens no socket and reads no clock; `session`
//! does both.
//!
//! ```text
//!  Down ──connected──▶ Greeting ──Welcome──▶ Up ──Drain──▶ Draining
//!   ▲                     │                   │               │
//!   └─────────────────────┴───disconnected────┴───────────────┘
//! ```
//!
//! In every state but `Up` requests wait. Once that has lasted for the configured patience the daemon is *away* and the
//! fallback decides what waits and what comes. `Welcome` ends it: all leases are registered, then all requests sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use governor_common::wire::codec::{HELD_PER_FRAME, RELEASES_PER_FRAME, RENEWALS_PER_FRAME, encode_request};
use governor_common::wire::error::EncodeError;
use governor_common::wire::reply::{ErrorCode, Grant, Overload, Reply, RevokeReason, Welcome};
use governor_common::wire::request::{Acquire, HeldLease, Hello, Kind, Renewal, Request};
use governor_common::wire::{VERSION, reply::Shed};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::ask::AcquireRequest;
use crate::client::{Command, WeakQueue};
use crate::config::Config;
use crate::error::Refused;
use crate::fallback::LocalShare;
use crate::lease::{Beginning, Lease, LeaseState};

/// Leases are renewed this often, or three times per ttl if that is shorter.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// A session that says nothing for this long is probed ...
const PROBE_AFTER: Duration = Duration::from_secs(3);

/// ... and given up when the probe (or the greeting) has no answer for this long: a stopped daemon holds its socket
/// open. Counted from the probe, so that a pause of this process is not taken for the daemon's.
const PROBE_PATIENCE: Duration = Duration::from_secs(6);

type Answer = oneshot::Sender<Result<Lease, Refused>>;
type Moved = oneshot::Sender<Result<Arc<str>, Refused>>;

/// The state of the conversation.
pub(crate) struct Exchange {
    name: String,
    patience: Duration,
    max_wait: Duration,
    link: Link,
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
    next_request: u32,
    next_slot: u64,
    /// By ticket, that is in order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    /// What the daemon owes an answer to.
    open: BTreeMap<u32, Open>,
    /// By slot.
    held: BTreeMap<u64, Held>,
    /// Slots by the id the daemon knows.
    by_id: BTreeMap<u64, u64>,
    deferred_moves: Vec<(u64, Moved)>,
    releases: Vec<u64>,
    local: LocalShare,
    queue: WeakQueue,
    overload: watch::Sender<Overload>,
    connected: watch::Sender<bool>,
    out: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Greeting,
    Up,
    Draining,
}

/// A request without an answer.
struct Waiting {
    ask: Box<AcquireRequest>,
    reply: Answer,
    since: Instant,
    /// The frame that carries it, on this connection.
    request: Option<u32>,
}

/// A frame without an answer.
enum Open {
    Acquire(u64),
    Move(u64, Moved),
    Register(Vec<u64>),
}

/// A lease whose guard is alive, or was dropped while its registration was on the way.
struct Held {
    state: Arc<LeaseState>,
    phase: Phase,
    moved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The daemon counts it.
    Counted,
    /// The daemon has yet to be told of it.
    Unregistered,
    /// It was told, and the new id is on its way.
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
    pub(crate) fn new(
        config: &Config,
        queue: WeakQueue,
        overload: watch::Sender<Overload>,
        connected: watch::Sender<bool>,
        now: Instant,
    ) -> Self {
        Self {
            name: config.name.clone(),
            patience: config.patience,
            max_wait: config.max_wait,
            link: Link::Down,
            unserved: Some(now),
            away: false,
            last_session: None,
            welcomed: false,
            renew_every: RENEW_EVERY,
            renew_at: now,
            probe_at: now,
            probed: None,
            next_request: 0,
            next_slot: 0,
            waiting: BTreeMap::new(),
            open: BTreeMap::new(),
            held: BTreeMap::new(),
            by_id: BTreeMap::new(),
            deferred_moves: Vec::new(),
            releases: Vec::new(),
            local: LocalShare::new(config.fallback, config.node_cap),
            queue,
            overload,
            connected,
            out: BytesMut::new(),
        }
    }

    /// A connection stands: greets.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        self.link = Link::Greeting;
        self.probed = Some(now);
        self.out.clear();
        let hello = Hello { version: VERSION, name: self.name.clone(), resume: self.last_session };
        self.put(&Request::Hello(hello));
    }

    /// The connection broke: what it carried is to be said again on the next.
    pub(crate) fn handle_disconnected(&mut self, now: Instant) {
        self.link = Link::Down;
        self.probed = None;
        self.unserved.get_or_insert(now);
        self.connected.send_replace(false);
        self.out.clear();
        self.releases.clear();
        self.by_id.clear();
        for (_, open) in std::mem::take(&mut self.open) {
            match open {
                Open::Move(slot, reply) => self.deferred_moves.push((slot, reply)),
                Open::Acquire(_) | Open::Register(_) => {}
            }
        }
        for waiting in self.waiting.values_mut() {
            waiting.request = None;
        }
        // A lease that ended unregistered dies with the session that granted it.
        self.held.retain(|_, held| held.phase != Phase::Ending);
        for held in self.held.values_mut() {
            if held.phase != Phase::Uncounted {
                held.phase = Phase::Unregistered;
            }
        }
        self.publish();
    }

    /// Something this process wants.
    pub(crate) fn handle_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Acquire { ticket, ask, reply } => {
                self.waiting.insert(ticket, Waiting { ask, reply, since: now, request: None });
                self.advance(ticket, now);
            }
            Command::Cancel { ticket } => self.cancel(ticket),
            Command::Release { slot } => self.release(slot),
            Command::Move { slot, reply } => self.move_away(slot, reply, now),
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
    pub(crate) fn handle_reply(&mut self, reply: Reply, request: u32, now: Instant) -> Result<(), Broken> {
        self.probed = None;
        self.probe_at = now + PROBE_AFTER;
        match reply {
            Reply::Welcome(welcome) => self.welcome(&welcome, now)?,
            Reply::Grant(grant) => self.grant(request, grant, now),
            Reply::Shed(shed) => self.shed(request, shed),
            Reply::Reject { reason } => self.refuse(request, Refused::rejected(reason)),
            Reply::Registered { leases } => self.registered(request, &leases, now),
            Reply::Revoke { lease, reason } => self.revoke(lease, reason),
            Reply::Overload(overload) => {
                self.overload.send_replace(overload);
            }
            Reply::Limits(limits) => self.local.learn(limits),
            Reply::Drain => {
                info!("the governor is draining");
                self.link = Link::Draining;
                self.unserved = Some(now);
            }
            Reply::Error { code, message } => self.error(request, code, message)?,
            Reply::Parked | Reply::Pong => {}
        }
        self.publish();
        Ok(())
    }

    /// Time passed.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the daemon has been silent for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), Broken> {
        if self.probed.is_some_and(|probed| now >= probed + PROBE_PATIENCE) {
            warn!("the governor does not answer");
            return Err(Broken::Retry);
        }
        if self.is_open() {
            if now >= self.probe_at {
                self.probe_at = now + PROBE_AFTER;
                self.probed.get_or_insert(now);
                self.put(&Request::Ping);
            }
            if now >= self.renew_at {
                self.renew_at = now + self.renew_every;
                self.renew(now);
            }
        }
        if let Some(since) = self.unserved {
            if !self.away && now >= since + self.patience {
                warn!(requests = self.waiting.len(), "the governor is away: the fallback decides");
                self.away = true;
                self.overload.send_replace(Overload::default());
            }
            let due: Vec<u64> =
                self.waiting.iter().filter(|(_, w)| self.away || w.expired(now)).map(|(t, _)| *t).collect();
            for ticket in due {
                self.fall_back(ticket, now);
            }
            if self.away {
                for (slot, reply) in std::mem::take(&mut self.deferred_moves) {
                    self.move_away(slot, reply, now);
                }
            }
        }
        self.publish();
        Ok(())
    }

    /// When `handle_timeout` has something to do next, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let silence = self.probed.map(|probed| probed + PROBE_PATIENCE);
        let open = self.is_open().then(|| self.probe_at.min(self.renew_at));
        let away = self.unserved.filter(|_| !self.away).map(|since| since + self.patience);
        let expiry = self.unserved.and_then(|_| self.waiting.values().filter_map(Waiting::expiry).min());
        [silence, open, away, expiry].into_iter().flatten().min()
    }

    /// Bytes to write. The writer takes what it wrote off the front.
    pub(crate) fn poll_output(&mut self) -> &mut BytesMut {
        if self.is_open() && !self.releases.is_empty() {
            for leases in std::mem::take(&mut self.releases).chunks(RELEASES_PER_FRAME) {
                self.put(&Request::Release { leases: leases.to_vec() });
            }
        }
        &mut self.out
    }

    // Requests

    /// Sends a request, or has the fallback decide it, or lets it wait.
    fn advance(&mut self, ticket: u64, now: Instant) {
        if self.link == Link::Up {
            self.send_acquire(ticket, now);
        } else if self.away {
            self.fall_back(ticket, now);
        }
    }

    fn send_acquire(&mut self, ticket: u64, now: Instant) {
        let Some(waiting) = self.waiting.get(&ticket) else { return };
        let message = Request::Acquire(waiting.wire(now, self.max_wait));
        let request = self.request_id();
        match encode_request(&message, request, &mut self.out) {
            Ok(()) => {
                self.open.insert(request, Open::Acquire(ticket));
                if let Some(waiting) = self.waiting.get_mut(&ticket) {
                    waiting.request = Some(request);
                }
            }
            Err(EncodeError { .. }) => {
                self.answer(ticket, Err(Refused::rejected("the request names too many members".to_owned())));
            }
        }
    }

    fn cancel(&mut self, ticket: u64) {
        // A ticket that does not wait was answered: if with a lease, that was dropped with the answer.
        let Some(Waiting { request: Some(request), .. }) = self.waiting.remove(&ticket) else { return };
        self.open.remove(&request);
        self.put(&Request::Cancel { request });
    }

    fn fall_back(&mut self, ticket: u64, now: Instant) {
        let Some(waiting) = self.waiting.get(&ticket) else { return };
        let verdict = self.local.decide(&waiting.ask.wire, self.next_slot, now);
        if let Some(request) = waiting.request {
            // Only a draining daemon still has it.
            self.open.remove(&request);
            self.put(&Request::Cancel { request });
        }
        let counters = self.queue.counters();
        match verdict {
            Ok(member) => {
                counters.fallback_grants.fetch_add(1, Ordering::Relaxed);
                self.begin(ticket, 0, member, true, now);
            }
            Err(refused) => {
                counters.fallback_refusals.fetch_add(1, Ordering::Relaxed);
                self.answer(ticket, Err(refused));
            }
        }
    }

    fn answer(&mut self, ticket: u64, answer: Result<Lease, Refused>) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            // A caller that is gone drops the answer, and with it a lease, which queues its release.
            drop(waiting.reply.send(answer));
        }
    }

    // Leases

    /// Makes the lease that answers a request.
    fn begin(&mut self, ticket: u64, id: u64, member: Option<Arc<str>>, fallback: bool, now: Instant) {
        let Some(waiting) = self.waiting.get(&ticket) else { return };
        let Some(queue) = self.queue.upgrade() else {
            // Nobody is left who could hold it.
            if id != 0 {
                self.releases.push(id);
            }
            self.waiting.remove(&ticket);
            return;
        };
        self.next_slot += 1;
        let ask = &waiting.ask.wire;
        let state = LeaseState::begin(Beginning {
            slot: self.next_slot,
            id,
            pool: ask.pool.as_str().into(),
            key: ask.key,
            label: ask.label.clone(),
            kind: ask.kind,
            member,
            waited: now.saturating_duration_since(waiting.since),
            fallback,
            granted: now,
        });
        let phase = match (ask.kind, fallback) {
            (Kind::Exempt, _) => Phase::Uncounted,
            (Kind::Ordinary | Kind::Reattach, true) => Phase::Unregistered,
            (Kind::Ordinary | Kind::Reattach, false) if id == 0 => Phase::Uncounted,
            (Kind::Ordinary | Kind::Reattach, false) => Phase::Counted,
        };
        if phase == Phase::Counted {
            self.by_id.insert(id, state.slot);
        }
        self.local_enter(&state);
        self.held.insert(state.slot, Held { state: state.clone(), phase, moved: false });
        self.answer(ticket, Ok(Lease::new(state, queue)));
    }

    fn release(&mut self, slot: u64) {
        let Some(held) = self.held.get_mut(&slot) else { return };
        let state = held.state.clone();
        let id = state.id.load(Ordering::Acquire);
        match held.phase {
            Phase::Registering => held.phase = Phase::Ending,
            Phase::Ending => return,
            Phase::Counted => {
                self.by_id.remove(&id);
                self.releases.push(id);
                self.held.remove(&slot);
            }
            Phase::Unregistered | Phase::Uncounted => {
                self.held.remove(&slot);
            }
        }
        self.local_leave(&state);
    }

    fn revoke(&mut self, lease: u64, reason: RevokeReason) {
        let Some(slot) = self.by_id.remove(&lease) else { return };
        let Some(held) = self.held.get_mut(&slot) else { return };
        if held.phase == Phase::Ending {
            self.held.remove(&slot);
            return;
        }
        info!(lease, ?reason, "a lease was revoked");
        held.phase = Phase::Uncounted;
        held.state.revoke(reason);
        self.queue.counters().revoked.fetch_add(1, Ordering::Relaxed);
    }

    fn renew(&mut self, now: Instant) {
        let counted = self.held.values().filter(|held| held.phase == Phase::Counted);
        let renewals: Vec<Renewal> = counted
            .map(|held| Renewal {
                lease: held.state.id.load(Ordering::Acquire),
                idle_ms: held.state.idle(now).map(millis),
            })
            .collect();
        for leases in renewals.chunks(RENEWALS_PER_FRAME) {
            self.put(&Request::Renew { leases: leases.to_vec() });
        }
    }

    fn move_away(&mut self, slot: u64, reply: Moved, now: Instant) {
        let Some(held) = self.held.get_mut(&slot) else {
            drop(reply.send(Err(Refused::over())));
            return;
        };
        if held.moved {
            drop(reply.send(Err(Refused::rejected("a lease moves only once".to_owned()))));
            return;
        }
        let state = held.state.clone();
        match (self.link, held.phase) {
            (Link::Up, Phase::Counted) => {
                held.moved = true;
                let request = self.put(&Request::Move { lease: state.id.load(Ordering::Acquire) });
                self.open.insert(request, Open::Move(slot, reply));
            }
            (_, Phase::Uncounted | Phase::Ending) => drop(reply.send(Err(Refused::over()))),
            _ if self.away => {
                held.moved = true;
                let from = state.member();
                let other = self.local.other_member(&state.pool, from.as_deref(), slot, now);
                if let Some(to) = &other {
                    self.local.move_member(&state.pool, from.as_ref(), to);
                    state.set_member(Some(to.clone()));
                }
                drop(reply.send(other.ok_or_else(Refused::over)));
            }
            _ => self.deferred_moves.push((slot, reply)),
        }
    }

    // Replies

    fn welcome(&mut self, welcome: &Welcome, now: Instant) -> Result<(), Broken> {
        if self.link != Link::Greeting {
            warn!("the governor greets twice");
            return Err(Broken::Retry);
        }
        if welcome.version == 0 || welcome.version > VERSION {
            warn!(theirs = welcome.version, ours = VERSION, "the governor speaks another version");
            return Err(Broken::Denied);
        }
        let counters = self.queue.counters();
        if self.welcomed {
            counters.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        info!(session = welcome.session, epoch = welcome.epoch, leases = self.held.len(), "connected to the governor");
        self.link = Link::Up;
        self.welcomed = true;
        self.unserved = None;
        self.away = false;
        self.last_session = Some(welcome.session);
        let ttl = Duration::from_millis(welcome.lease_ttl_ms.into());
        self.renew_every = RENEW_EVERY.min(ttl / 3).max(Duration::from_millis(10));
        self.renew_at = now + self.renew_every;
        self.connected.send_replace(true);
        self.register(now);
        let tickets: Vec<u64> = self.waiting.keys().copied().collect();
        for ticket in tickets {
            self.send_acquire(ticket, now);
        }
        Ok(())
    }

    /// Tells the daemon of every lease it does not count for this session.
    fn register(&mut self, now: Instant) {
        let unregistered = self.held.values_mut().filter(|held| held.phase == Phase::Unregistered);
        let leases: Vec<(u64, HeldLease)> = unregistered
            .map(|held| {
                held.phase = Phase::Registering;
                (held.state.slot, held.state.held(now))
            })
            .collect();
        for chunk in leases.chunks(HELD_PER_FRAME) {
            for (slot, lease) in chunk {
                self.by_id.insert(lease.lease, *slot);
            }
            let (slots, leases) = chunk.iter().cloned().unzip();
            let request = self.put(&Request::Register { leases });
            self.open.insert(request, Open::Register(slots));
        }
    }

    fn registered(&mut self, request: u32, leases: &[(u64, u64)], now: Instant) {
        let Some(Open::Register(slots)) = self.take_open(request, |open| matches!(open, Open::Register(_))) else {
            return;
        };
        let ids: BTreeMap<u64, u64> = leases.iter().copied().collect();
        for slot in slots {
            let Some(held) = self.held.get_mut(&slot) else { continue };
            let old = held.state.wire_id();
            self.by_id.remove(&old);
            let new = ids.get(&old).copied().filter(|id| *id != 0);
            match (new, held.phase) {
                (Some(new), Phase::Ending) => {
                    self.releases.push(new);
                    self.held.remove(&slot);
                }
                (None, Phase::Ending) => {
                    self.held.remove(&slot);
                }
                (Some(new), _) => {
                    held.phase = Phase::Counted;
                    held.state.id.store(new, Ordering::Release);
                    self.by_id.insert(new, slot);
                    self.queue.counters().registered.fetch_add(1, Ordering::Relaxed);
                }
                (None, _) => {
                    held.phase = Phase::Uncounted;
                    held.state.revoke(RevokeReason::PoolGone);
                }
            }
        }
        for (slot, reply) in std::mem::take(&mut self.deferred_moves) {
            self.move_away(slot, reply, now);
        }
    }

    fn grant(&mut self, request: u32, grant: Grant, now: Instant) {
        let member: Option<Arc<str>> = grant.member.map(Into::into);
        match self.open.remove(&request) {
            Some(Open::Acquire(ticket)) => self.begin(ticket, grant.lease, member, false, now),
            Some(Open::Move(slot, reply)) => {
                let Some(held) = self.held.get(&slot) else { return };
                let state = held.state.clone();
                if let Some(to) = &member {
                    self.local.move_member(&state.pool, state.member().as_ref(), to);
                    state.set_member(Some(to.clone()));
                }
                drop(reply.send(member.ok_or_else(Refused::over)));
            }
            // It crossed a Cancel on the wire.
            Some(Open::Register(_)) | None => {
                if grant.lease != 0 {
                    debug!(lease = grant.lease, "giving back a grant nobody waits for");
                    self.releases.push(grant.lease);
                }
            }
        }
    }

    fn shed(&mut self, request: u32, shed: Shed) {
        if let Some(Open::Move(slot, _)) = self.open.get(&request) {
            // The daemon took the slot back; the guard's own release would come too late to mean anything.
            if let Some(held) = self.held.get_mut(slot) {
                held.phase = Phase::Uncounted;
                held.state.over.store(true, Ordering::Release);
                self.by_id.remove(&held.state.id.load(Ordering::Acquire));
            }
        }
        self.refuse(request, Refused::shed(shed));
    }

    fn refuse(&mut self, request: u32, refused: Refused) {
        match self.open.remove(&request) {
            Some(Open::Acquire(ticket)) => self.answer(ticket, Err(refused)),
            Some(Open::Move(_, reply)) => drop(reply.send(Err(refused))),
            Some(Open::Register(slots)) => {
                for slot in slots {
                    if self.held.get(&slot).is_some_and(|held| held.phase == Phase::Ending) {
                        self.held.remove(&slot);
                    } else if let Some(held) = self.held.get_mut(&slot) {
                        held.phase = Phase::Uncounted;
                    }
                }
            }
            None => {}
        }
    }

    fn error(&mut self, request: u32, code: ErrorCode, message: String) -> Result<(), Broken> {
        warn!(?code, message, "the governor reports an error");
        match code {
            ErrorCode::Handshake | ErrorCode::Denied => Err(Broken::Denied),
            ErrorCode::Unsupported | ErrorCode::Malformed => {
                self.refuse(request, Refused::rejected(message));
                Ok(())
            }
        }
    }

    // Small things

    /// Frames other than `Hello` may be written.
    fn is_open(&self) -> bool {
        matches!(self.link, Link::Up | Link::Draining)
    }

    fn request_id(&mut self) -> u32 {
        // 0 is for what answers nothing.
        self.next_request = self.next_request.checked_add(1).unwrap_or(1);
        self.next_request
    }

    /// Writes a frame that fits by construction, and returns its request id.
    fn put(&mut self, message: &Request) -> u32 {
        let request = self.request_id();
        if let Err(error) = encode_request(message, request, &mut self.out) {
            warn!(%error, "a frame was left out");
        }
        request
    }

    fn take_open(&mut self, request: u32, is: impl FnOnce(&Open) -> bool) -> Option<Open> {
        if self.open.get(&request).is_some_and(is) { self.open.remove(&request) } else { None }
    }

    fn local_enter(&mut self, state: &LeaseState) {
        if state.kind != Kind::Exempt {
            self.local.enter(&state.pool, state.key, state.member().as_ref());
        }
    }

    fn local_leave(&mut self, state: &LeaseState) {
        if state.kind != Kind::Exempt {
            self.local.leave(&state.pool, state.key, state.member().as_ref());
        }
    }

    fn publish(&self) {
        let counters = self.queue.counters();
        counters.leases.store(u32::try_from(self.held.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        counters.waiting.store(u32::try_from(self.waiting.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

impl Waiting {
    /// What to say on the wire: bounds shrink by the time already spent. A request that named no wait gets the pool's
    /// own the first time, and what is left of the client's bound when it is said again.
    fn wire(&self, now: Instant, max_wait: Duration) -> Acquire {
        let spent = now.saturating_duration_since(self.since);
        let max_wait = self.ask.max_wait.or((!spent.is_zero()).then_some(max_wait));
        Acquire {
            max_wait_ms: max_wait.map(|wait| millis(wait.saturating_sub(spent))),
            deadline_ms: self.ask.deadline.map(|deadline| millis(deadline.saturating_sub(spent))),
            ..self.ask.wire.clone()
        }
    }

    /// When it has waited as long as its caller allows.
    fn expiry(&self) -> Option<Instant> {
        let shorter = [self.ask.max_wait, self.ask.deadline].into_iter().flatten().min();
        shorter.and_then(|bound| self.since.checked_add(bound))
    }

    fn expired(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| now >= expiry)
    }
}

/// Whole milliseconds, at most what the wire can say.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
