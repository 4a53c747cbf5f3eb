//! What the engine orders, as replies to proxies and records for people.

use super::messages::Message;
use crate::driver::Driver;
use crate::driver::sessions::clients::{Subject, Watched};
use crate::driver::sessions::light::is_light;
use crate::driver::sessions::translate;
use crate::naming;
use crate::records::journal::Entry;
use governor_common::wire::reply::Reply;
use governor_engine::id::SessionId;
use governor_engine::io::{Decision, Input, Output, Work};
use governor_engine::time::Instant;
use governor_kernel::clients::{ClientWatch, News};

impl Driver {
    pub(super) fn deliver(&mut self) {
        while let Some(output) = self.parts.engine.poll_output() {
            self.dispatch(output);
        }
    }

    pub(super) fn dispatch(&mut self, output: Output) {
        match output {
            Output::Grant(grant) => {
                if grant.lease.is_some() && !grant.moved {
                    self.parts.recorder.waited(grant.waited);
                    if let Some(pool) = grant.lease.and_then(|lease| self.parts.engine.pool_of(lease)) {
                        self.rates.granted(pool, grant.waited, self.now);
                    }
                }
                self.note_granted(&grant);
                if grant.lease.is_some() {
                    self.parts.checkpoint.touch(self.now);
                }
                self.clients.answered(grant.session, grant.request, grant.lease, self.now);
                self.queue(grant.session, |outbox, engine| {
                    outbox.grant(translate::grant(engine, &grant), grant.request.0)
                });
            }
            Output::Parked { session, request } => self.send(session, request.0, &Reply::Parked),
            Output::Shed { session, request, decision } => {
                self.rates.refused(decision.pool, decision.reason, self.now);
                let entry = self.entry(decision);
                let reply = translate::shed(&entry);
                if is_light(&entry.decision) {
                    self.parts.recorder.refused_light(&entry.pool, naming::reason(entry.decision.reason));
                }
                tracing::debug!(
                    pool = entry.pool,
                    reason = naming::reason(entry.decision.reason),
                    decision = %format_args!("d-{:016x}", entry.decision.id.0),
                    "request shed"
                );
                self.keep(entry);
                self.clients.answered(session, request, None, self.now);
                self.send(session, request.0, &reply);
            }
            Output::WouldHave { decision } => {
                let entry = self.entry(decision);
                self.keep(entry);
            }
            Output::Reject { session, request, why } => {
                self.clients.answered(session, request, None, self.now);
                self.send(session, request.0, &Reply::Reject { reason: translate::reject(why).to_owned() });
            }
            Output::Revoke { session, lease, reason } => {
                self.note_ended(lease, self.now);
                self.clients.ended(lease);
                let id = format_args!("l-{:016x}", lease.0);
                tracing::info!(session = session.0, lease = %id, ?reason, "lease revoked");
                self.send(session, 0, &Reply::Revoke { lease: lease.0, reason: translate::revoke(reason) });
            }
            Output::ClientGone { session, lease } => {
                self.send_since_two(session, &Reply::ClientGone { lease: lease.0 });
            }
            Output::TierAsk { session, org } => {
                tracing::debug!(session = session.0, org = %naming::org_hash(org), "tier asked for");
                // Whoever knows of tiers may answer for the org.
                let asked = Some(session).filter(|session| self.speaks_two(*session));
                let asked = asked.or_else(|| self.connected().map(|(id, _)| *id).find(|id| self.speaks_two(*id)));
                if let Some(session) = asked {
                    self.send(session, 0, &Reply::TierAsk { org: naming::org_hash(org) });
                }
            }
            // Only `register` asks, and it takes its answers itself.
            Output::Registered { .. } => {}
        }
    }

    /// Asks the kernel for the clients whose turn it is. The thread that does is started with the first of them.
    pub(super) fn look_for_clients(&mut self, now: Instant) {
        let (engine, sessions) = (&self.parts.engine, &self.sessions);
        let proxy = |session: SessionId| sessions.get(&session)?.peer.in_proc();
        let Some(round) = self.clients.round(now, |lease| engine.holder(lease), proxy) else { return };
        if self.client_watch.is_none() {
            let inbox = self.inbox.clone();
            let tell = move |news| {
                // A loop that is over needs no answer.
                if let Some(inbox) = inbox.upgrade() {
                    inbox.blocking_send(Message::Clients(news)).ok();
                }
            };
            self.client_watch = ClientWatch::start(self.parts.closings.take(), tell);
        }
        if !self.client_watch.as_ref().is_some_and(|watch| watch.ask(round)) {
            self.clients.found(&[]);
        }
    }

    pub(super) fn hear_of_clients(&mut self, news: &News<Subject>, now: Instant) {
        let gone = match news {
            News::Found(findings) => self.clients.found(findings),
            News::Closed(cookies) => self.clients.closed(cookies),
        };
        for Watched { session, work } in gone {
            // A lease may have been handed on.
            let session = match work {
                Work::Lease(lease) => self.parts.engine.holder(lease),
                Work::Request(_) => Some(session),
            };
            let Some(session) = session else { continue };
            tracing::debug!(session = session.0, ?work, "the client is gone");
            self.parts.engine.handle_input(Input::ClientGone { session, work }, now);
        }
    }

    /// Says what sessions of protocol version 1 know nothing of.
    fn send_since_two(&mut self, session: SessionId, reply: &Reply) {
        if self.speaks_two(session) {
            self.send(session, 0, reply);
        }
    }

    fn speaks_two(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|state| state.version >= 2)
    }

    fn keep(&mut self, entry: Entry) {
        self.parts.archive.append(&entry);
        self.journal.record(entry);
    }

    fn entry(&self, decision: Decision) -> Entry {
        Entry {
            pool: self.parts.engine.pool_name(decision.pool).unwrap_or_default().to_owned(),
            label: decision.key.and_then(|key| self.labels.of(key)).map(str::to_owned),
            class: decision.class.and_then(|class| self.parts.engine.class_name(class)).map(str::to_owned),
            decision,
        }
    }
}
