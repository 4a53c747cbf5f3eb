//! Asks the kernel for the clients of requests and leases, and takes what it finds to the engine.

use crate::driver::Driver;
use crate::driver::messages::Message;
use crate::driver::sessions::clients::{Subject, Watched};
use governor_engine::id::SessionId;
use governor_engine::io::{Input, Work};
use governor_engine::time::Instant;
use governor_kernel::clients::{ClientWatch, News};

impl Driver {
    /// Asks the kernel for the clients whose turn it is. The thread that does is started with the first of them.
    pub(crate) fn look_for_clients(&mut self, now: Instant) {
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

    pub(crate) fn hear_of_clients(&mut self, news: &News<Subject>, now: Instant) {
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
}
