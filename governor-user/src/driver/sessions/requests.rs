//! What proxies say, as facts for the engine: one arm a request. Names are resolved by `translate`; this file knows
//! which session may say what, and when.

use crate::driver::Driver;
use crate::driver::event_loop::Session;
use crate::driver::messages::Greeting;
use crate::driver::sessions::candidates::Candidates;
use crate::driver::sessions::translate;
use crate::driver::sessions::turns::Turn;
use crate::naming;
use crate::transport::peer::Peer;
use governor_common::wire::VERSION;
use governor_common::wire::reply::{ErrorCode, Level, Reply, Welcome};
use governor_common::wire::request::{self, HeldLease, Request};
use governor_engine::id::{KeyId, LeaseId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Output};
use governor_engine::time::{Duration, Instant};

impl Driver {
    /// Handles one frame of a session.
    pub(crate) fn request(&mut self, session: SessionId, id: u32, request: Request<&str>, now: Instant) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if !matches!(request, Request::Acquire(_) | Request::Candidates { .. }) {
            state.candidates.clear();
        }
        match request {
            Request::Hello(_) => {
                let message = "Hello was already said".to_owned();
                self.send(session, id, &Reply::Error { code: ErrorCode::Handshake, message });
            }
            Request::Candidates { candidates } => state.candidates.add(id, &candidates),
            Request::Acquire(acquire) => self.acquire(session, id, &acquire, now),
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
                if self.report_member(session, &report, now).is_none() {
                    let message = format!("no member \"{}\" in a pool \"{}\"", report.member, report.pool);
                    self.send(session, id, &Reply::Error { code: ErrorCode::Malformed, message });
                }
            }
            Request::Register { leases } => self.register(session, id, &leases, now),
            Request::Suspend { lease } => {
                self.parts.engine.handle_input(Input::Suspend { session, lease: LeaseId(lease) }, now);
            }
            Request::Resume { lease, max_wait_ms } => {
                self.resume(session, RequestId(id), LeaseId(lease), max_wait_ms, now)
            }
            Request::TierIs(told) => {
                let input = translate::tier(&self.parts.engine, session, &told);
                self.parts.engine.handle_input(input, now);
            }
            Request::Ping => self.send(session, id, &Reply::Pong),
        }
    }

    fn acquire(&mut self, session: SessionId, id: u32, acquire: &request::Acquire<&str>, now: Instant) {
        let earlier = self.sessions.get_mut(&session).map(|state| state.candidates.take(id)).transpose();
        let asked = earlier.and_then(|earlier| {
            let earlier = earlier.unwrap_or_default();
            translate::acquire(&self.parts.engine, session, id, acquire, &earlier, now)
        });
        match asked {
            Ok(mut input) => {
                self.end_former(session, now);
                input.site = self.sites.id(acquire.site.or(acquire.endpoint));
                self.learn(session, input.key, acquire.label);
                if let Some(client) = acquire.client {
                    self.clients.asked(session, RequestId(id), client, now);
                }
                self.note_asked(&input, acquire.pool, now);
                self.parts.engine.handle_input(Input::Acquire(input), now);
            }
            Err(reason) => {
                self.parts.recorder.rejected();
                self.send(session, id, &Reply::Reject { reason });
            }
        }
    }

    /// Opens a session and answers the `Hello` that it begins with.
    pub(crate) fn open_session(&mut self, session: SessionId, greeting: Greeting, now: Instant) {
        let Greeting { peer, outbox, hello, request } = greeting;
        if let Some(left_out) = self.session_log.allow(std::time::Instant::now()) {
            let name = governor_observation::wording::printable(&hello.name);
            let Peer { pid, uid, .. } = peer;
            tracing::info!(session = session.0, name, pid, uid, left_out, "session opened");
        }
        let version = hello.version.min(VERSION);
        let state = Session {
            peer,
            outbox: Some(outbox),
            name: hello.name,
            version,
            former: hello.resume.and_then(|number| self.formers.of(peer, number)),
            candidates: Candidates::default(),
            turn: Turn::default(),
        };
        self.sessions.insert(session, state);
        self.parts.engine.handle_input(Input::SessionOpened { session }, now);
        let welcome = Welcome {
            version,
            session: session.0,
            epoch: u32::from(self.parts.epoch),
            lease_ttl_ms: naming::millis(self.parts.policy.node.lease_ttl),
        };
        if let (Some(page), Some(outbox)) =
            (&mut self.parts.page, self.sessions.get(&session).and_then(|state| state.outbox.as_ref()))
        {
            outbox.attach(page.descriptor());
            // A proxy that maps it finds it written.
            page.hurry();
        }
        self.send(session, request, &Reply::Welcome(welcome));
        self.limits_stale = true;
        if !self.publish_limits(now) {
            self.send_limits(session);
        }
        if self.level.level() != Level::Normal {
            self.send(session, 0, &Reply::Overload(self.overload()));
        }
        if self.stop_by.is_some() {
            self.send(session, 0, &Reply::Drain);
        }
    }

    /// What runs again is demand like any other.
    fn resume(&mut self, session: SessionId, request: RequestId, lease: LeaseId, wait: Option<u32>, now: Instant) {
        let max_wait = wait.map(|ms| Duration::from_millis(ms.into()));
        let engine = &self.parts.engine;
        let pool = engine.pool_of(lease).filter(|_| engine.holder(lease) == Some(session));
        if let Some(pool) = pool {
            let name = engine.pool_name(pool).unwrap_or_default().to_owned();
            let (key, org) = (engine.key_of(lease), engine.org_of(lease));
            let asked = Acquire { session, request, pool, key, org, max_wait, ..Acquire::default() };
            self.note_asked(&asked, &name, now);
        }
        self.parts.engine.handle_input(Input::Resume { session, request, lease, max_wait }, now);
    }

    fn register(&mut self, session: SessionId, id: u32, leases: &[HeldLease], now: Instant) {
        let mut known = Vec::with_capacity(leases.len());
        for held in leases {
            let Some(mut input) = translate::held(&self.parts.engine, session, held) else {
                known.push((held.lease, 0));
                continue;
            };
            input.lease = self.formers.lease(held.lease).unwrap_or(input.lease);
            // A lease is handed over only between connections of one process; a stranger's claim is entered anew.
            let holder = self.parts.engine.holder(input.lease);
            if holder.is_some_and(|holder| !self.same_process(holder, session)) {
                input.lease = LeaseId(0);
            }
            self.learn(session, input.key, held.label.as_deref());
            input.site = self.sites.id(held.site.as_deref());
            self.parts.engine.handle_input(Input::Register(input), now);
            while let Some(order) = self.parts.engine.poll_output() {
                if let Output::Registered { new, .. } = &order {
                    if let Some(new) = new {
                        self.formers.alias(new.lease, held.lease);
                        if let Some(client) = held.client {
                            self.clients.registered(session, new.lease, client, now);
                        }
                    }
                    known.push((held.lease, new.map_or(0, |new| new.lease.0)));
                }
                self.announce(&order);
            }
        }
        if let Some(left_out) = self.session_log.allow(std::time::Instant::now()) {
            tracing::info!(session = session.0, leases = known.len(), left_out, "leases registered");
        }
        self.send(session, id, &Reply::Registered { leases: known });
    }

    fn learn(&mut self, session: SessionId, key: Option<KeyId>, label: Option<&str>) {
        if let (Some(key), Some(label)) = (key, label) {
            let (engine, sessions) = (&self.parts.engine, &self.sessions);
            let is_connected = |session| sessions.get(&session).is_some_and(|state| state.outbox.is_some());
            self.labels.learn(key, label, session, is_connected, |key| engine.is_active(key));
        }
    }

    fn same_process(&self, one: SessionId, other: SessionId) -> bool {
        let peer = |session: SessionId| {
            let live = self.sessions.get(&session).map(|state| state.peer);
            live.or_else(|| self.formers.peer(session))
        };
        peer(one).zip(peer(other)).is_some_and(|(one, other)| one.is_same_process(&other))
    }
}
