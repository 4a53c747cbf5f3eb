//! Clients of requests and leases: which connection belongs to what, and when the kernel is asked for them again. Knows
//! no kernel and no engine: it hands out questions and takes findings.

use crate::kernel::clients::{Finding, Question};
use governor_common::wire::request::ClientSocket;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::Work;
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;

/// How often the kernel is asked. A tenth of the usual grace: finer would cost and gain nothing.
const EVERY: Duration = Duration::from_secs(1);

/// Whose client it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The session of the request; of a lease, its holder is asked for when it matters.
    pub session: SessionId,
    /// The request or lease.
    pub work: Work,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Clients {
    waiting: BTreeMap<(SessionId, RequestId), ClientSocket>,
    leases: BTreeMap<LeaseId, (SessionId, ClientSocket)>,
    next: Option<Instant>,
    /// A round of questions is out.
    asking: bool,
}

impl Clients {
    /// A request with a client was asked.
    pub fn asked(&mut self, session: SessionId, request: RequestId, client: ClientSocket, now: Instant) {
        self.waiting.insert((session, request), client);
        self.next.get_or_insert_with(|| now.after(EVERY));
    }

    /// It has its answer: a lease, or none.
    pub fn answered(&mut self, session: SessionId, request: RequestId, lease: Option<LeaseId>) {
        if let Some(client) = self.waiting.remove(&(session, request))
            && let Some(lease) = lease
        {
            self.leases.insert(lease, (session, client));
        }
    }

    /// A lease with a client was registered.
    pub fn registered(&mut self, session: SessionId, lease: LeaseId, client: ClientSocket, now: Instant) {
        self.leases.insert(lease, (session, client));
        self.next.get_or_insert_with(|| now.after(EVERY));
    }

    /// When [`Self::questions`] has something to ask.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.next.filter(|_| !self.asking)
    }

    /// The next round, if it is due. Forgets leases that nobody holds; a session without a `proxy` cannot be asked for.
    pub fn questions(
        &mut self,
        now: Instant,
        holder: impl Fn(LeaseId) -> Option<SessionId>,
        proxy: impl Fn(SessionId) -> Option<u32>,
    ) -> Vec<Question<Watched>> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.leases.retain(|lease, (session, _)| match holder(*lease) {
            Some(holder) => {
                *session = holder;
                true
            }
            None => false,
        });
        let waiting =
            self.waiting.iter().map(|((session, request), socket)| (*session, Work::Request(*request), *socket));
        let leases = self.leases.iter().map(|(lease, (session, socket))| (*session, Work::Lease(*lease), *socket));
        let all = waiting.chain(leases);
        let questions: Vec<_> = all
            .filter_map(|(session, work, socket)| {
                Some(Question { of: Watched { session, work }, proxy: proxy(session)?, socket })
            })
            .collect();
        let nothing = self.waiting.is_empty() && self.leases.is_empty();
        self.next = (!nothing).then(|| now.after(EVERY));
        self.asking = !questions.is_empty();
        questions
    }

    /// The round is over: which clients are gone. Each is told once.
    pub fn found(&mut self, findings: &[Finding<Watched>]) -> Vec<Watched> {
        self.asking = false;
        let mut gone = Vec::new();
        for Finding { of, gone: is_gone, cookie } in findings {
            let entry = match of.work {
                Work::Request(request) => self.waiting.get_mut(&(of.session, request)),
                Work::Lease(lease) => self.leases.get_mut(&lease).map(|(_, socket)| socket),
            };
            // It may have ended while the kernel was asked.
            let Some(socket) = entry else { continue };
            if *is_gone {
                gone.push(*of);
                match of.work {
                    Work::Request(request) => drop(self.waiting.remove(&(of.session, request))),
                    Work::Lease(lease) => drop(self.leases.remove(&lease)),
                }
            } else if socket.cookie.is_none() {
                socket.cookie = *cookie;
            }
        }
        gone
    }

    /// The session ended; what it asked is not answered.
    pub fn gone(&mut self, session: SessionId) {
        self.waiting.retain(|(of, _), _| *of != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn socket(cookie: Option<u64>) -> ClientSocket {
        ClientSocket { local: ([10, 0, 0, 1], 80).into(), peer: ([10, 0, 0, 2], 9).into(), cookie }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    fn round(clients: &mut Clients, now: Instant) -> Vec<Question<Watched>> {
        clients.questions(now, |_| Some(SESSION), |_| Some(42))
    }

    #[test]
    fn a_client_is_followed_from_the_request_to_its_lease_by_one_cookie() {
        let mut clients = Clients::default();
        clients.asked(SESSION, RequestId(1), socket(None), at(0));
        assert_eq!(round(&mut clients, at(999)), []);
        let asked = round(&mut clients, at(1000));
        assert_eq!((asked.len(), asked[0].of.work, clients.due()), (1, Work::Request(RequestId(1)), None));
        assert_eq!(clients.found(&[Finding { of: asked[0].of, gone: false, cookie: Some(9) }]), []);
        clients.answered(SESSION, RequestId(1), Some(LeaseId(7)));
        let asked = round(&mut clients, at(2000));
        assert_eq!((asked[0].of.work, asked[0].socket.cookie), (Work::Lease(LeaseId(7)), Some(9)));
        let gone = clients.found(&[Finding { of: asked[0].of, gone: true, cookie: None }]);
        assert_eq!(gone, [asked[0].of]);
        assert!(round(&mut clients, at(3000)).is_empty() && clients.due().is_none(), "told once, and nothing is left");
    }

    #[test]
    fn what_ended_meanwhile_is_not_told_of() {
        let mut clients = Clients::default();
        clients.asked(SESSION, RequestId(1), socket(None), at(0));
        let asked = round(&mut clients, at(1000));
        clients.answered(SESSION, RequestId(1), None);
        assert_eq!(clients.found(&[Finding { of: asked[0].of, gone: true, cookie: None }]), []);
        clients.registered(SESSION, LeaseId(3), socket(Some(1)), at(1000));
        assert!(clients.questions(at(9000), |_| None, |_| Some(42)).is_empty(), "nobody holds it");
        assert_eq!(clients.due(), None);
    }

    #[test]
    fn a_proxy_whose_process_is_not_known_is_not_asked_for() {
        let mut clients = Clients::default();
        clients.asked(SESSION, RequestId(1), socket(None), at(0));
        assert!(clients.questions(at(1000), |_| None, |_| None).is_empty());
        assert_eq!(clients.due(), Some(at(2000)), "it may be known later");
        clients.gone(SESSION);
        assert!(round(&mut clients, at(2000)).is_empty() && clients.due().is_none());
    }
}
