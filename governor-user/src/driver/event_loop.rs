//! The one loop that owns all state: engine, sessions, level, bypass, journal. Everything else translates bytes and
//! sends messages here. A panic in it is a crash on purpose: restart and registration repair it.

use super::messages::Message;
use crate::config::{Config, OverloadConfig};
use crate::driver::operator::bypass::Bypass;
use crate::driver::operator::drain::Drain;
use crate::driver::operator::key_overrides::KeyOverrides;
use crate::driver::operator::members::levers::MemberLevers;
use crate::driver::operator::members::log::MemberLog;
use crate::driver::restart::checkpoint::{Checkpoint, Former};
use crate::driver::restart::former::{Formers, HeldWalk};
use crate::driver::sessions::candidates::Candidates;
use crate::driver::sessions::clients::{Clients, Subject};
use crate::driver::sessions::labels::Labels;
use crate::driver::sessions::limits::Published;
use crate::driver::sessions::page::SignalPage;
use crate::driver::sessions::turns::Turn;
use crate::log_limit::LogLimit;
use crate::process::clock;
use crate::process::notify::Watchdog;
use crate::recorder::Recorder;
use crate::records::archive::Archive;
use crate::records::audit::Audit;
use crate::records::demand::Demand;
use crate::records::journal::Journal;
use crate::records::rates::Rates;
use crate::records::sites::Sites;
use crate::state::StateDir;
use crate::transport::outbox::Outbox;
use crate::transport::peer::Peer;
use governor_common::wire::reply::Reply;
use governor_engine::Engine;
use governor_engine::id::SessionId;
use governor_engine::io::Input;
use governor_engine::policy::{Policy, PolicyError};
use governor_engine::time::{Duration, Instant};
use governor_health::LevelMachine;
use governor_health::Loads;
use governor_health::Report;
use governor_health::Transitions;
use governor_kernel::Closings;
use governor_kernel::clients::ClientWatch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

/// Messages handled before the outputs of all of them go out.
const BATCH: usize = 256;

/// What is to be kept on disk is batched for this long: a wake-up of the writer per decision would cost more than
/// the decision.
pub(super) const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// What the driver is made of.
#[derive(Debug)]
pub struct Parts {
    /// The engine.
    pub engine: Engine,
    /// Changes with every start.
    pub epoch: u16,
    /// The bypass switch as it was left.
    pub bypass: Bypass,
    /// What operators set for single keys, as it was left.
    pub key_overrides: KeyOverrides,
    /// What operators ordered for single members, as it was left.
    pub member_levers: MemberLevers,
    /// The drain of the node, as it was left.
    pub drain: Drain,
    /// Where decisions outlive the process.
    pub archive: Archive,
    /// Where changes do.
    pub audit: Audit,
    /// Where demand is recorded for `advise`.
    pub demand: Demand,
    /// When the level rises.
    pub overload: OverloadConfig,
    /// Where the thread that weighs and judges reads what the engine carries.
    pub loads: watch::Sender<Arc<Loads>>,
    /// Node cap and lease ttl, for sessions; follows the policy.
    pub policy: Policy,
    /// Counts what only the driver sees.
    pub recorder: Recorder,
    /// Where proxies look; `None` if this system cannot have one.
    pub page: Option<SignalPage>,
    /// The ends of connections, where programs report them.
    pub closings: Option<Closings>,
    /// Sessions of the run before, with the leases they held.
    pub former: Vec<Former>,
    /// Where this run leaves the leases it holds.
    pub checkpoint: Checkpoint,
}

impl Parts {
    /// The parts of a run by what is configured and what the state folder has: without page, kernel and earlier
    /// sessions, and with a recorder of its own.
    ///
    /// # Errors
    /// The policy is one that the engine refuses.
    pub fn open(config: &Config, state: &StateDir, epoch: u16) -> Result<Self, PolicyError> {
        Ok(Self {
            engine: Engine::new(config.policy.clone(), epoch)?,
            epoch,
            bypass: Bypass::load(state),
            key_overrides: KeyOverrides::load(state),
            member_levers: MemberLevers::load(state),
            drain: Drain::load(state),
            archive: Archive::open(state.path()),
            audit: Audit::open(state.path()),
            demand: Demand::open(state.path(), config.daemon.record_bytes),
            overload: config.overload.clone(),
            loads: watch::channel(Arc::default()).0,
            policy: config.policy.clone(),
            recorder: Recorder::default(),
            page: None,
            closings: None,
            former: Vec::new(),
            checkpoint: Checkpoint::open(state),
        })
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: Peer,
    /// Gone once the connection is.
    pub(super) outbox: Option<Outbox>,
    /// As its `Hello` says.
    pub(super) name: String,
    /// Of the protocol: the highest that both sides speak.
    pub(super) version: u16,
    /// The session of the previous run that it resumes; until it asks for something new.
    pub(super) former: Option<SessionId>,
    /// For its next `Acquire`.
    pub(super) candidates: Candidates,
    /// Its stream, and what of it waits for its turn.
    pub(super) turn: Turn,
}

/// The state.
#[derive(Debug)]
pub struct Driver {
    pub(super) parts: Parts,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    /// Sessions whose connection is gone; they may hold leases.
    pub(super) lost: BTreeSet<SessionId>,
    /// Sessions with frames that wait for their turn, in the order of their turns.
    pub(super) waiting: VecDeque<SessionId>,
    /// Counts iterations of the loop.
    pub(super) iteration: u64,
    /// Bounds log lines that sessions cause.
    pub(super) session_log: LogLimit,
    /// Sessions for which something is queued.
    pub(super) unsent: Vec<SessionId>,
    pub(super) formers: Formers,
    /// The checkpoint that is being put together.
    pub(super) walk: Option<HeldWalk>,
    pub(super) journal: Journal,
    pub(super) labels: Labels,
    pub(super) sites: Sites,
    pub(super) clients: Clients,
    pub(super) client_watch: Option<ClientWatch<Subject>>,
    /// The way back to this loop.
    pub(super) inbox: mpsc::WeakSender<Message>,
    pub(super) level: LevelMachine,
    /// The same over what may shed work: the level the engine acts by.
    pub(super) shedding: LevelMachine,
    /// What was seen last and what it came to.
    pub(super) report: Arc<Report>,
    pub(super) transitions: Transitions,
    pub(super) rates: Rates,
    pub(super) member_log: MemberLog,
    pub(super) published: Published,
    /// Something happened that may change the limits: they are worked out again when they are due.
    pub(super) limits_stale: bool,
    pub(super) stop_by: Option<Instant>,
    /// The time of what is being handled.
    pub(super) now: Instant,
    /// When what waits for the disk goes there.
    pub(super) flush_by: Option<Instant>,
    pub(super) watchdog: Watchdog,
}

impl Driver {
    /// Without sessions.
    #[must_use]
    pub fn new(mut parts: Parts, inbox: mpsc::WeakSender<Message>, now: Instant) -> Self {
        if parts.bypass.is_on(clock::wall_seconds()) {
            parts.engine.handle_input(Input::Bypass { on: true }, now);
        }
        if parts.drain.order().is_some() {
            parts.engine.handle_input(Input::Drain { on: true }, now);
        }
        let level = LevelMachine::new(parts.overload.hold, parts.overload.hysteresis);
        let transitions = Transitions::new(parts.overload.hold);
        let shedding = level.clone();
        let mut driver = Self {
            parts,
            sessions: BTreeMap::new(),
            lost: BTreeSet::new(),
            waiting: VecDeque::new(),
            iteration: 1,
            session_log: LogLimit::default(),
            unsent: Vec::new(),
            formers: Formers::default(),
            walk: None,
            journal: Journal::default(),
            labels: Labels::default(),
            sites: Sites::default(),
            clients: Clients::default(),
            client_watch: None,
            inbox,
            level,
            shedding,
            report: Arc::default(),
            transitions,
            rates: Rates::default(),
            member_log: MemberLog::default(),
            published: Published::default(),
            limits_stale: true,
            stop_by: None,
            now,
            flush_by: None,
            watchdog: Watchdog::from_environment(),
        };
        driver.restore_key_overrides(now);
        driver.restore_members(now);
        // They count from now on, however long the start took.
        let former = std::mem::take(&mut driver.parts.former);
        driver.restore_leases(former, clock::now());
        driver
    }

    /// Runs until a stop is over or every sender is gone.
    pub async fn run(mut self, inbox: mpsc::Receiver<Message>) {
        self.serve(inbox).await;
        let held = self.held_now();
        self.parts.checkpoint.finish(held);
    }

    async fn serve(&mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut timer = pin!(tokio::time::sleep_until(clock::to_tokio(clock::now())));
        let mut set: Option<Instant> = None;
        loop {
            if self.has_waiting() {
                // Other sessions' readers first: what they bring now is handled in this iteration.
                tokio::task::yield_now().await;
                if !fill(&mut inbox, &mut batch) {
                    return;
                }
            } else {
                let due = self.next_timer();
                // To set it earlier is dear: the runtime wakes itself for that. Later costs nothing.
                if let Some(due) = due.filter(|_| due != set) {
                    timer.as_mut().reset(clock::to_tokio(due));
                }
                set = due;
                tokio::select! {
                    biased;
                    count = inbox.recv_many(&mut batch, BATCH) => {
                        if count == 0 {
                            return;
                        }
                    }
                    () = &mut timer, if set.is_some() => set = None,
                }
            }
            let now = clock::now();
            for message in batch.drain(..) {
                self.handle(message, now);
            }
            self.tick(now);
            if self.is_over(now) {
                return;
            }
        }
    }

    /// Takes one message.
    pub fn handle(&mut self, message: Message, now: Instant) {
        self.now = now;
        match message {
            Message::Opened { session, greeting } => self.open_session(session, *greeting, now),
            Message::Bytes { session, bytes } => self.take_bytes(session, bytes, now),
            Message::Lost { session, why, grace } => self.lose(session, why, grace, now),
            Message::Gone { session } => {
                self.limits_stale = true;
                self.sessions.remove(&session);
                self.lost.remove(&session);
                self.parts.engine.handle_input(Input::SessionGone { session }, now);
            }
            Message::Report(report) => self.heed(report, now),
            Message::Clients(news) => self.hear_of_clients(&news, now),
            Message::Ask(ask) => self.answer(ask, now),
            Message::Stop { within } => {
                self.broadcast(&Reply::Drain);
                // A second order to stop ends the wait.
                let by = if self.stop_by.is_some() { now } else { now.after(within) };
                self.stop_by = Some(by);
            }
        }
        self.deliver();
    }

    pub(super) fn connected(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter().filter(|(_, session)| session.outbox.is_some())
    }

    pub(super) fn send(&mut self, session: SessionId, request: u32, reply: &Reply) {
        self.queue(session, |outbox, _| outbox.push(reply, request));
    }

    /// Queues a frame. It goes out when the turn is over, with all others for the session.
    pub(super) fn queue(&mut self, session: SessionId, push: impl FnOnce(&Outbox, &Engine) -> bool) {
        if let Some(outbox) = self.outbox(session)
            && push(outbox, &self.parts.engine)
        {
            self.unsent.push(session);
        }
    }

    fn outbox(&self, session: SessionId) -> Option<&Outbox> {
        self.sessions.get(&session)?.outbox.as_ref()
    }

    pub(super) fn broadcast(&mut self, reply: &Reply) {
        let connected: Vec<SessionId> = self.connected().map(|(session, _)| *session).collect();
        for session in connected {
            self.send(session, 0, reply);
        }
    }
}

/// Takes what is in the inbox, up to a batch, without waiting; false when every sender is gone.
fn fill(inbox: &mut mpsc::Receiver<Message>, batch: &mut Vec<Message>) -> bool {
    while batch.len() < BATCH {
        match inbox.try_recv() {
            Ok(message) => batch.push(message),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return !batch.is_empty(),
        }
    }
    true
}
