//! The one loop that owns all state: engine, sessions, level, bypass, journal. Everything else translates bytes and
//! sends messages here. A panic in it is a crash on purpose: restart and registration repair it.

use super::bypass::Bypass;
use super::clock;
use super::journal::{Entry, Journal};
use super::labels::Labels;
use super::translate;
use super::view::{SessionView, View};
use crate::config::{CgroupCeiling, OverloadConfig};
use crate::kernel::view::Observation;
use crate::metrics::Recorder;
use crate::overload::{Evidence, LevelMachine, assess};
use crate::proxy::outbox::Outbox;
use crate::proxy::peer::Peer;
use governor_common::wire::reply::{ErrorCode, Level, Limits, Overload, PoolLimits, Reply, Welcome};
use governor_common::wire::request::{Hello, Request};
use governor_common::wire::{self};
use governor_engine::Engine;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::{Input, Output};
use governor_engine::policy::Policy;
use governor_engine::snapshot::LeaseView;
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// Messages handled before the outputs of all of them go out.
const BATCH: usize = 256;

/// Advice for refusals that a proxy makes by itself while the level is above normal.
const OVERLOAD_RETRY_AFTER_MS: u32 = 1000;

/// What the rest of the daemon tells the driver.
#[derive(Debug)]
pub enum Message {
    /// A proxy connected and may speak.
    Opened {
        /// Its session.
        session: SessionId,
        /// Who it is.
        peer: Peer,
        /// Where its replies go.
        outbox: Outbox,
    },
    /// It said something.
    Requests {
        /// Its session.
        session: SessionId,
        /// Request ids and requests in order.
        requests: Vec<(u32, Request)>,
    },
    /// Its connection is gone, its process may live.
    Lost {
        /// Its session.
        session: SessionId,
    },
    /// Its process is gone.
    Gone {
        /// Its session.
        session: SessionId,
    },
    /// The control API asks.
    Ask(Ask),
    /// Stop: announce it, then end when no lease is left or the time is up.
    Stop {
        /// How long to wait for leases.
        within: Duration,
    },
}

/// Questions and orders of the control API.
#[derive(Debug)]
pub enum Ask {
    /// Everything at a glance.
    View(oneshot::Sender<View>),
    /// All leases, with a view of the same moment.
    Leases(oneshot::Sender<(View, Vec<LeaseView>)>),
    /// One decision.
    Explain(u64, oneshot::Sender<Option<(Entry, Instant)>>),
    /// Obey this policy from now on.
    Policy(Box<Policy>, oneshot::Sender<()>),
    /// Switch the bypass.
    Bypass {
        /// On or off.
        on: bool,
        /// Ends by itself after this.
        for_seconds: Option<u64>,
        /// Whether the switch could be kept.
        answer: oneshot::Sender<anyhow::Result<()>>,
    },
}

/// What the driver is made of.
#[derive(Debug)]
pub struct Parts {
    /// The engine.
    pub engine: Engine,
    /// Changes with every start.
    pub epoch: u16,
    /// The bypass switch as it was left.
    pub bypass: Bypass,
    /// When the level rises.
    pub overload: OverloadConfig,
    /// Ceilings of cgroups.
    pub ceilings: Vec<CgroupCeiling>,
    /// Node cap and lease ttl, for sessions; follows the policy.
    pub policy: Policy,
    /// Counts what only the driver sees.
    pub recorder: Recorder,
}

#[derive(Debug)]
struct Session {
    peer: Peer,
    /// Gone once the connection is.
    outbox: Option<Outbox>,
    /// Known after `Hello`.
    name: Option<String>,
}

/// The state.
#[derive(Debug)]
pub struct Driver {
    parts: Parts,
    sessions: BTreeMap<SessionId, Session>,
    journal: Journal,
    labels: Labels,
    level: LevelMachine,
    evidence: Evidence,
    limits: Limits,
    stop_by: Option<Instant>,
}

impl Driver {
    /// With nobody connected.
    #[must_use]
    pub fn new(mut parts: Parts, now: Instant) -> Self {
        if parts.bypass.is_on(clock::wall_seconds()) {
            parts.engine.handle_input(Input::Bypass { on: true }, now);
        }
        let level = LevelMachine::new(parts.overload.hold);
        Self {
            parts,
            sessions: BTreeMap::new(),
            journal: Journal::default(),
            labels: Labels::default(),
            level,
            evidence: Evidence::default(),
            limits: Limits::default(),
            stop_by: None,
        }
    }

    /// Runs until a stop is over or every sender is gone.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Message>, mut seen: watch::Receiver<Arc<Observation>>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let timer = self.next_timer();
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    let now = clock::now();
                    for message in batch.drain(..) {
                        self.handle(message, now);
                    }
                }
                () = sleep_until(timer) => {}
                changed = seen.changed() => {
                    if changed.is_err() {
                        // The kernel plane is over; its last word is no evidence of anything.
                        tracing::error!("the kernel plane ended: no overload signals from now on");
                        seen = watch::channel(Arc::new(Observation::default())).1;
                    }
                    let observation = Arc::clone(&seen.borrow_and_update());
                    self.observe(&observation, clock::now());
                }
            }
            self.tick(clock::now());
            if self.is_over(clock::now()) {
                return;
            }
        }
    }

    /// Takes one message.
    pub fn handle(&mut self, message: Message, now: Instant) {
        match message {
            Message::Opened { session, peer, outbox } => {
                self.sessions.insert(session, Session { peer, outbox: Some(outbox), name: None });
            }
            Message::Requests { session, requests } => {
                for (id, request) in requests {
                    self.request(session, id, request, now);
                    self.deliver(now);
                }
            }
            Message::Lost { session } => {
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.outbox = None;
                    if state.name.is_none() {
                        self.sessions.remove(&session);
                    }
                    self.parts.engine.handle_input(Input::SessionLost { session }, now);
                }
            }
            Message::Gone { session } => {
                self.sessions.remove(&session);
                self.parts.engine.handle_input(Input::SessionGone { session }, now);
            }
            Message::Ask(ask) => self.answer(ask, now),
            Message::Stop { within } => {
                self.broadcast(&Reply::Drain);
                // A second order to stop ends the wait.
                let by = if self.stop_by.is_some() { now } else { now.after(within) };
                self.stop_by = Some(by);
            }
        }
        self.deliver(now);
    }

    /// Weighs what the kernel shows.
    pub fn observe(&mut self, seen: &Observation, now: Instant) {
        let proxies: BTreeSet<u32> = self.connected().filter_map(|(_, session)| session.peer.pid).collect();
        let node = (self.parts.engine.counted(), self.parts.policy.node.cap);
        self.evidence = assess(&self.parts.overload, &self.parts.ceilings, seen, &proxies, node);
        if self.level.update(self.evidence.pressure, self.evidence.urgent, now) {
            let overload = self.overload();
            tracing::info!(
                level = overload.level.as_str(),
                pressure = overload.pressure,
                causes = ?crate::overload::monitors::cause_names(overload.causes),
                "overload level changed"
            );
            self.broadcast(&Reply::Overload(overload));
        }
    }

    /// Runs timers and tells sessions what changed.
    pub fn tick(&mut self, now: Instant) {
        if self.parts.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.parts.engine.handle_timeout(now);
        }
        if self.parts.engine.is_bypassed() && !self.parts.bypass.is_on(clock::wall_seconds()) {
            tracing::info!("bypass ended by itself");
            self.parts.engine.handle_input(Input::Bypass { on: false }, now);
        }
        self.deliver(now);
        self.forget_ended_sessions();
        self.tell_limits();
    }

    fn next_timer(&self) -> Option<Instant> {
        let bypass = self.parts.engine.is_bypassed().then(|| {
            let wall = clock::wall_seconds();
            self.parts.bypass.remaining(wall).map(|left| clock::now().after(Duration::from_secs(left)))
        });
        [self.parts.engine.poll_timeout(), bypass.flatten(), self.stop_by].into_iter().flatten().min()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.stop_by.is_some_and(|by| now >= by || self.parts.engine.is_idle())
    }

    fn connected(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter().filter(|(_, session)| session.outbox.is_some() && session.name.is_some())
    }

    fn send(&self, session: SessionId, request: u32, reply: &Reply) {
        if let Some(outbox) = self.sessions.get(&session).and_then(|session| session.outbox.as_ref()) {
            outbox.push(reply, request);
        }
    }

    fn broadcast(&self, reply: &Reply) {
        for (session, _) in self.connected() {
            self.send(*session, 0, reply);
        }
    }

    fn request(&mut self, session: SessionId, id: u32, request: Request, now: Instant) {
        let Some(state) = self.sessions.get(&session) else { return };
        let greeted = state.name.is_some();
        match request {
            Request::Hello(hello) if !greeted => self.hello(session, id, &hello, now),
            Request::Hello(_) => self.refuse(session, id, "Hello was already said"),
            _ if !greeted => {
                self.refuse(session, id, "the first frame must be Hello");
                if let Some(outbox) = self.sessions.get(&session).and_then(|state| state.outbox.as_ref()) {
                    outbox.close();
                }
            }
            Request::Acquire(acquire) => match translate::acquire(&self.parts.engine, session, id, &acquire, now) {
                Ok(input) => {
                    if let (Some(key), Some(label)) = (input.key, &acquire.label) {
                        let engine = &self.parts.engine;
                        self.labels.learn(key, label, |key| engine.is_active(key));
                    }
                    self.parts.engine.handle_input(Input::Acquire(input), now);
                }
                Err(reason) => {
                    self.parts.recorder.rejected();
                    self.send(session, id, &Reply::Reject { reason });
                }
            },
            Request::Cancel { request } => {
                self.parts.engine.handle_input(Input::Cancel { session, request: RequestId(request) }, now);
            }
            Request::Release { leases } => {
                for lease in leases {
                    self.parts.engine.handle_input(Input::Release { session, lease: LeaseId(lease) }, now);
                }
            }
            Request::Renew { leases } => {
                for renewal in leases {
                    let idle = renewal.idle_ms.map(|ms| Duration::from_millis(u64::from(ms)));
                    self.parts.engine.handle_input(Input::Renew { session, lease: LeaseId(renewal.lease), idle }, now);
                }
            }
            Request::Move { lease } => {
                let input = Input::Move { session, request: RequestId(id), lease: LeaseId(lease) };
                self.parts.engine.handle_input(input, now);
            }
            Request::MemberReport(report) => {
                if let Some(input) = translate::member_report(&self.parts.engine, &report, now) {
                    tracing::info!(pool = report.pool, member = report.member, news = ?report.state, "member reported");
                    self.parts.engine.handle_input(input, now);
                } else {
                    let message = format!("no member \"{}\" in a pool \"{}\"", report.member, report.pool);
                    self.send(session, id, &Reply::Error { code: ErrorCode::Malformed, message });
                }
            }
            Request::Register { leases } => self.register(session, id, &leases, now),
            Request::Ping => self.send(session, id, &Reply::Pong),
        }
    }

    fn hello(&mut self, session: SessionId, id: u32, hello: &Hello, now: Instant) {
        if hello.version == 0 || hello.version.saturating_add(1) < wire::VERSION {
            let message = format!("protocol version {} is not served, {} is", hello.version, wire::VERSION);
            self.send(session, id, &Reply::Error { code: ErrorCode::Handshake, message });
            if let Some(outbox) = self.sessions.get(&session).and_then(|state| state.outbox.as_ref()) {
                outbox.close();
            }
            return;
        }
        if let Some(state) = self.sessions.get_mut(&session) {
            tracing::info!(
                session = session.0,
                name = hello.name,
                pid = state.peer.pid,
                uid = state.peer.uid,
                "session opened"
            );
            state.name = Some(hello.name.clone());
        }
        self.parts.engine.handle_input(Input::SessionOpened { session }, now);
        let welcome = Welcome {
            version: hello.version.min(wire::VERSION),
            session: session.0,
            epoch: u32::from(self.parts.epoch),
            lease_ttl_ms: translate::millis(self.parts.policy.node.lease_ttl),
        };
        self.send(session, id, &Reply::Welcome(welcome));
        let limits = self.limits_now();
        if limits == self.limits {
            self.send(session, 0, &Reply::Limits(limits));
        } else {
            self.limits = limits;
            self.broadcast(&Reply::Limits(self.limits.clone()));
        }
        if self.level.level() != Level::Normal {
            self.send(session, 0, &Reply::Overload(self.overload()));
        }
        if self.stop_by.is_some() {
            self.send(session, 0, &Reply::Drain);
        }
    }

    fn refuse(&self, session: SessionId, id: u32, message: &str) {
        let reply = Reply::Error { code: ErrorCode::Handshake, message: message.to_owned() };
        self.send(session, id, &reply);
    }

    fn register(&mut self, session: SessionId, id: u32, leases: &[wire::request::HeldLease], now: Instant) {
        let mut known = Vec::with_capacity(leases.len());
        for held in leases {
            let Some(mut input) = translate::held(&self.parts.engine, session, held) else {
                known.push((held.lease, 0));
                continue;
            };
            // A lease is handed over only between connections of one process; a stranger's claim is entered anew.
            let holder = self.parts.engine.holder(input.lease);
            if holder.is_some_and(|holder| !self.same_process(holder, session)) {
                input.lease = LeaseId(0);
            }
            if let (Some(key), Some(label)) = (input.key, &held.label) {
                let engine = &self.parts.engine;
                self.labels.learn(key, label, |key| engine.is_active(key));
            }
            self.parts.engine.handle_input(Input::Register(input), now);
            while let Some(output) = self.parts.engine.poll_output() {
                if let Output::Registered { new, .. } = output {
                    known.push((held.lease, new.map_or(0, |lease| lease.0)));
                } else {
                    self.dispatch(output);
                }
            }
        }
        tracing::info!(session = session.0, leases = known.len(), "leases registered");
        self.send(session, id, &Reply::Registered { leases: known });
    }

    fn same_process(&self, one: SessionId, other: SessionId) -> bool {
        let peer = |session: SessionId| self.sessions.get(&session).map(|state| state.peer);
        match (peer(one), peer(other)) {
            (Some(one), Some(other)) => one.pid.is_some() && one == other,
            _ => false,
        }
    }

    fn deliver(&mut self, now: Instant) {
        debug_assert!(now >= Instant::ZERO);
        while let Some(output) = self.parts.engine.poll_output() {
            self.dispatch(output);
        }
    }

    fn dispatch(&mut self, output: Output) {
        match output {
            Output::Grant(grant) => {
                self.parts.recorder.waited(grant.waited);
                self.send(grant.session, grant.request.0, &translate::grant(&self.parts.engine, &grant));
            }
            Output::Parked { session, request } => self.send(session, request.0, &Reply::Parked),
            Output::Shed { session, request, decision } => {
                let entry = self.entry(decision);
                let reply = translate::shed(&entry);
                tracing::debug!(
                    pool = entry.pool,
                    reason = translate::reason(entry.decision.reason),
                    decision = %format_args!("{:016x}", entry.decision.id.0),
                    "request shed"
                );
                self.journal.record(entry);
                self.send(session, request.0, &reply);
            }
            Output::WouldHave { decision } => {
                let entry = self.entry(decision);
                self.journal.record(entry);
            }
            Output::Reject { session, request, why } => {
                self.send(session, request.0, &Reply::Reject { reason: translate::reject(why).to_owned() });
            }
            Output::Revoke { session, lease, reason } => {
                tracing::info!(session = session.0, lease = lease.0, ?reason, "lease revoked");
                self.send(session, 0, &Reply::Revoke { lease: lease.0, reason: translate::revoke(reason) });
            }
            // Only `register` asks, and it takes its answers itself.
            Output::Registered { .. } => {}
        }
    }

    fn entry(&self, decision: governor_engine::io::Decision) -> Entry {
        Entry {
            pool: self.parts.engine.pool_name(decision.pool).unwrap_or_default().to_owned(),
            label: decision.key.and_then(|key| self.labels.of(key)).map(str::to_owned),
            decision,
        }
    }

    fn overload(&self) -> Overload {
        Overload {
            level: self.level.level(),
            pressure: self.evidence.pressure,
            causes: self.evidence.causes,
            retry_after_ms: if self.level.level() == Level::Normal { 0 } else { OVERLOAD_RETRY_AFTER_MS },
        }
    }

    fn limits_now(&self) -> Limits {
        let sessions = u32::try_from(self.connected().count()).unwrap_or(u32::MAX).max(1);
        let engine = &self.parts.engine;
        let pools = engine
            .pools()
            .map(|pool| PoolLimits {
                name: engine.pool_name(pool).unwrap_or_default().to_owned(),
                capacity: engine.capacity(pool).unwrap_or(0),
                members: engine
                    .members(pool)
                    .filter_map(|member| {
                        let name = engine.member_name(pool, member)?.to_owned();
                        Some((name, engine.ordinary_slots(pool, member)?))
                    })
                    .collect(),
            })
            .collect();
        Limits { sessions, node_cap: self.parts.policy.node.cap, pools }
    }

    fn tell_limits(&mut self) {
        let limits = self.limits_now();
        if limits != self.limits {
            self.limits = limits;
            self.broadcast(&Reply::Limits(self.limits.clone()));
        }
    }

    /// A session without a connection is kept while it holds leases: they may still be handed over.
    fn forget_ended_sessions(&mut self) {
        let engine = &self.parts.engine;
        self.sessions.retain(|id, session| session.outbox.is_some() || engine.leases_of(*id) > 0);
    }

    fn answer(&mut self, ask: Ask, now: Instant) {
        // Whoever asked may have gone: an answer nobody waits for is dropped.
        match ask {
            Ask::View(answer) => drop(answer.send(self.view(now))),
            Ask::Leases(answer) => drop(answer.send((self.view(now), self.parts.engine.leases()))),
            Ask::Explain(id, answer) => drop(answer.send(self.journal.find(id).cloned().map(|entry| (entry, now)))),
            Ask::Policy(policy, answer) => {
                self.parts.policy = (*policy).clone();
                self.parts.engine.handle_input(Input::PolicyChanged(policy), now);
                answer.send(()).ok();
            }
            Ask::Bypass { on, for_seconds, answer } => {
                let kept = self.parts.bypass.set(on, for_seconds, clock::wall_seconds());
                if kept.is_ok() {
                    tracing::warn!(on, for_seconds, "bypass switched");
                    self.parts.engine.handle_input(Input::Bypass { on }, now);
                }
                drop(answer.send(kept));
            }
        }
    }

    fn view(&self, now: Instant) -> View {
        let snapshot = self.parts.engine.snapshot();
        let keys: BTreeSet<_> = snapshot.pools.iter().flat_map(|pool| pool.keys.iter().map(|key| key.key)).collect();
        let labels =
            keys.into_iter().filter_map(|key| self.labels.of(key).map(|label| (key, label.to_owned()))).collect();
        let sessions = self
            .sessions
            .iter()
            .filter_map(|(id, session)| {
                let name = session.name.clone()?;
                Some(SessionView { id: *id, name, peer: session.peer, leases: self.parts.engine.leases_of(*id) })
            })
            .collect();
        let wall = clock::wall_seconds();
        View {
            now,
            epoch: self.parts.epoch,
            snapshot,
            labels,
            sessions,
            overload: self.overload(),
            bypass_remaining: self.parts.bypass.remaining(wall),
            draining: self.stop_by.is_some(),
            node: self.parts.policy.node.clone(),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(clock::to_tokio(at)).await,
        None => std::future::pending().await,
    }
}
