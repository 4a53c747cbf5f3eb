//! Clients of requests and leases: which connection belongs to what, what is to be asked of the kernel about it, and
//! whom its end concerns. A connection is asked for when its first request has lasted for a moment; from then on its
//! end is waited for. One that cannot be waited for is asked for again every second, and all are every tenth, should an
//! end have been missed. Knows no kernel and no engine: it hands out questions and takes what is found.

mod members;

use self::members::Members;
use governor_common::wire::request::ClientSocket;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::{Output, WaitEnd, Work};
use governor_engine::time::{Duration, Instant};
use governor_kernel::clients::{Finding, Question, Round};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

/// How often the kernel is asked for ends that it does not report.
const EVERY: Duration = Duration::from_secs(1);

/// A first question waits once to twice this long, to be batched and because much work is over by then: a question of
/// its own for each request would cost more than all else that is done for it.
const COMPANY: Duration = Duration::from_millis(20);

/// In one of so many of these rounds it is asked for everything.
const AUDIT: u32 = 10;

/// Connections that belong to nothing now and are followed on: the next request on one costs no question.
const MOST_IDLE: usize = 16_384;

/// Work whose client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The session of the request; of a lease, the one that named its client.
    pub session: SessionId,
    /// The request or lease.
    pub work: Work,
}

/// What has a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// A request that has no answer yet.
    Request(SessionId, RequestId),
    /// A lease.
    Lease(LeaseId),
}

/// What a question is about. Connections are kept apart by session: a proxy can name only what is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A connection by its cookie.
    Connection(u64, SessionId),
    /// The connection of this, whose cookie is not known.
    Of(Client),
}

/// How many connections there are, and how ends were learnt of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections whose end the kernel reports.
    pub followed: usize,
    /// Connections that are asked for.
    pub asked_for: usize,
    /// Requests and leases whose client's end was reported.
    pub told: u64,
    /// Those whose client was found gone.
    pub found: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tie {
    session: SessionId,
    socket: ClientSocket,
}

impl Tie {
    /// What its connection is known by, once its cookie is.
    fn connection(&self) -> Option<(u64, SessionId)> {
        self.socket.cookie.map(|cookie| (cookie, self.session))
    }
}

#[derive(Debug)]
struct Connection {
    socket: ClientSocket,
    of: Members,
    followed: bool,
    /// A question about it is out: it stays until the answer, whatever belongs to it.
    pending: bool,
    /// Belonged to nothing at the last round of all.
    idle: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Clients {
    ties: BTreeMap<Client, Tie>,
    connections: BTreeMap<(u64, SessionId), Connection>,
    /// What came since the last round of first questions, and may be over ...
    young: Vec<Client>,
    /// ... and what is asked for in the next, unless it is over by then.
    ripe: Vec<Client>,
    /// When that is.
    ripe_by: Option<Instant>,
    forget: Vec<u64>,
    /// When the next round is due that asks again, and how many there were.
    next: Option<Instant>,
    rounds: u32,
    /// A round is out.
    asking: bool,
    told: u64,
    found: u64,
}

impl Clients {
    /// A request with a client was asked.
    pub fn asked(&mut self, session: SessionId, request: RequestId, socket: ClientSocket, now: Instant) {
        self.tie(Client::Request(session, request), Tie { session, socket }, now);
        self.next.get_or_insert_with(|| now.after(EVERY));
    }

    /// It has its answer: a lease, or none.
    pub fn answered(&mut self, session: SessionId, request: RequestId, lease: Option<LeaseId>, now: Instant) {
        let asked = Client::Request(session, request);
        let Some(lease) = lease.map(Client::Lease) else {
            self.untie(asked);
            return;
        };
        let Some(tie) = self.ties.remove(&asked) else { return };
        self.ties.insert(lease, tie);
        if let Some(connection) = tie.connection().and_then(|of| self.connections.get_mut(&of)) {
            connection.of.replace(asked, lease);
            if connection.followed {
                return;
            }
        }
        self.ask_for(lease, now);
    }

    /// Takes an order: answers and ends.
    pub fn take(&mut self, order: &Output) {
        match order {
            Output::Began(grant) | Output::Resumed(grant) | Output::Moved { grant, .. } => {
                self.answered(grant.context.session, grant.request, Some(grant.lease), grant.context.at);
            }
            Output::Passed { context, request } => self.answered(context.session, *request, None, context.at),
            Output::Refused { request, decision } => self.answered(decision.session, *request, None, decision.at),
            Output::Rejected { session, request, .. } => drop(self.untie(Client::Request(*session, *request))),
            Output::Unparked { context, request, end: WaitEnd::Cancelled | WaitEnd::Gone, .. } => {
                self.answered(context.session, *request, None, context.at);
            }
            Output::Ended { lease, .. } => self.ended(*lease),
            Output::Suspended { .. }
            | Output::Registered { .. }
            | Output::UnknownLease { .. }
            | Output::ClientGone { .. }
            | Output::Parked { .. }
            | Output::Unparked { .. }
            | Output::WouldHave { .. }
            | Output::TierAsk { .. }
            | Output::SessionEnded { .. }
            | Output::MemberChanged { .. }
            | Output::LimitsChanged { .. }
            | Output::ModeChanged { .. } => {}
        }
    }

    /// A lease with a client was registered.
    pub fn registered(&mut self, session: SessionId, lease: LeaseId, socket: ClientSocket, now: Instant) {
        self.untie(Client::Lease(lease));
        self.tie(Client::Lease(lease), Tie { session, socket }, now);
        self.next.get_or_insert_with(|| now.after(EVERY));
    }

    /// A lease is over.
    pub fn ended(&mut self, lease: LeaseId) {
        self.untie(Client::Lease(lease));
    }

    /// When [`Self::round`] has something to ask.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        [self.next, self.ripe_by].into_iter().flatten().min().filter(|_| !self.asking)
    }

    /// What is to be asked now, if anything is. `holder` says which leases are held; they are asked for in the
    /// namespace of their session's `proxy`.
    pub fn round(
        &mut self,
        now: Instant,
        holder: impl Fn(LeaseId) -> Option<SessionId>,
        proxy: impl Fn(SessionId) -> Option<u32>,
    ) -> Option<Round<Subject>> {
        if self.asking {
            return None;
        }
        let mut subjects = BTreeSet::new();
        if self.ripe_by.take_if(|by| *by <= now).is_some() {
            let ripe = mem::replace(&mut self.ripe, mem::take(&mut self.young));
            subjects.extend(ripe.into_iter().filter_map(|client| Some(subject(client, self.ties.get(&client)?))));
            self.ripe_by = (!self.ripe.is_empty()).then(|| now.after(COMPANY));
        }
        if self.next.is_some_and(|due| due <= now) {
            subjects.extend(self.again(holder));
            let nothing = self.ties.is_empty() && self.connections.is_empty();
            self.next = (!nothing).then(|| now.after(EVERY));
        }
        let questions: Vec<_> = subjects.into_iter().filter_map(|of| self.question(of, &proxy)).collect();
        for question in &questions {
            if let Subject::Connection(cookie, session) = question.of
                && let Some(connection) = self.connections.get_mut(&(cookie, session))
            {
                connection.pending = true;
            }
        }
        let round = Round { questions, forget: mem::take(&mut self.forget) };
        self.asking = !(round.questions.is_empty() && round.forget.is_empty());
        self.asking.then_some(round)
    }

    /// The round is over: whose clients are gone. Each is reported once.
    pub fn found(&mut self, findings: &[Finding<Subject>]) -> Vec<Watched> {
        self.asking = false;
        let mut gone = Vec::new();
        for finding in findings {
            match finding.of {
                Subject::Connection(cookie, session) if finding.gone => {
                    gone.extend(self.close((cookie, session)));
                    self.forget(cookie);
                }
                Subject::Connection(cookie, session) => match self.connections.get_mut(&(cookie, session)) {
                    Some(connection) if connection.of.is_empty() && !finding.followed => {
                        self.connections.remove(&(cookie, session));
                    }
                    Some(connection) => (connection.followed, connection.pending) = (finding.followed, false),
                    None => self.forget(cookie),
                },
                Subject::Of(client) => gone.extend(self.named(client, finding)),
            }
        }
        self.found += u64::try_from(gone.len()).unwrap_or(u64::MAX);
        gone
    }

    /// The kernel reported the ends of connections with these cookies: whom they concern.
    pub fn closed(&mut self, cookies: &[u64]) -> Vec<Watched> {
        let mut gone = Vec::new();
        for cookie in cookies {
            let of = (*cookie, SessionId(0))..=(*cookie, SessionId(u64::MAX));
            let all: Vec<_> = self.connections.range(of).map(|(key, _)| *key).collect();
            gone.extend(all.into_iter().flat_map(|key| self.close(key)));
        }
        self.told += u64::try_from(gone.len()).unwrap_or(u64::MAX);
        gone
    }

    /// How many there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |is: fn(&&Connection) -> bool| self.connections.values().filter(is).count();
        let unnamed = self.ties.values().filter(|tie| tie.socket.cookie.is_none()).count();
        let asked_for = count(|connection| !connection.followed && !connection.of.is_empty()) + unnamed;
        Counts { followed: count(|connection| connection.followed), asked_for, told: self.told, found: self.found }
    }

    /// What is asked for once more.
    fn again(&mut self, holder: impl Fn(LeaseId) -> Option<SessionId>) -> Vec<Subject> {
        self.rounds = self.rounds.wrapping_add(1);
        let all = self.rounds.is_multiple_of(AUDIT);
        if all {
            let is_over = |client: &Client| matches!(client, Client::Lease(lease) if holder(*lease).is_none());
            let over: Vec<Client> = self.ties.keys().copied().filter(is_over).collect();
            for client in over {
                self.untie(client);
            }
            self.forget_idle();
        }
        let connections = self.connections.iter_mut().filter_map(|((cookie, session), connection)| {
            connection.followed &= !all;
            let wanted = all || !(connection.followed || connection.of.is_empty());
            wanted.then_some(Subject::Connection(*cookie, *session))
        });
        let unnamed = self.ties.iter().filter(|(_, tie)| tie.socket.cookie.is_none());
        connections.chain(unnamed.map(|(client, _)| Subject::Of(*client))).collect()
    }

    fn question(&self, of: Subject, proxy: impl Fn(SessionId) -> Option<u32>) -> Option<Question<Subject>> {
        let (session, socket) = match of {
            Subject::Connection(cookie, session) => {
                let connection = self.connections.get(&(cookie, session)).filter(|known| !known.followed)?;
                (session, connection.socket)
            }
            Subject::Of(client) => {
                let tie = self.ties.get(&client).filter(|tie| tie.socket.cookie.is_none())?;
                (tie.session, tie.socket)
            }
        };
        let proxy = proxy(session);
        // Without a namespace to look in, only a cookie is of use.
        (proxy.is_some() || socket.cookie.is_some()).then_some(Question { of, proxy, socket })
    }

    fn tie(&mut self, client: Client, tie: Tie, now: Instant) {
        self.ties.insert(client, tie);
        if let Some(connection) = tie.connection()
            && self.join(client, connection, tie.socket).followed
        {
            return;
        }
        self.ask_for(client, now);
    }

    /// In the round after the next.
    fn ask_for(&mut self, client: Client, now: Instant) {
        self.young.push(client);
        self.ripe_by.get_or_insert_with(|| now.after(COMPANY));
    }

    fn join(&mut self, client: Client, key: (u64, SessionId), socket: ClientSocket) -> &mut Connection {
        let new = || Connection { socket, of: Members::default(), followed: false, pending: false, idle: false };
        let connection = self.connections.entry(key).or_insert_with(new);
        connection.of.insert(client);
        connection.idle = false;
        connection
    }

    fn untie(&mut self, client: Client) -> Option<Tie> {
        let tie = self.ties.remove(&client)?;
        if let Some(key) = tie.connection()
            && let Some(connection) = self.connections.get_mut(&key)
        {
            connection.of.remove(client);
            let unknown = !connection.followed && !connection.pending;
            if connection.of.is_empty() && unknown {
                self.connections.remove(&key);
            } else if connection.of.is_empty() && self.connections.len() > self.ties.len() + MOST_IDLE {
                self.connections.remove(&key);
                self.forget(key.0);
            }
        }
        Some(tie)
    }

    /// The cookie of a connection that was known by its ends only.
    fn named(&mut self, client: Client, finding: &Finding<Subject>) -> Option<Watched> {
        let Some(tie) = self.ties.get_mut(&client).filter(|tie| tie.socket.cookie.is_none()) else {
            // It ended while the kernel was asked.
            finding.cookie.into_iter().for_each(|cookie| self.forget(cookie));
            return None;
        };
        if finding.gone {
            let tie = self.ties.remove(&client)?;
            return Some(watched(client, &tie));
        }
        tie.socket.cookie = finding.cookie;
        let Tie { session, socket } = *tie;
        if let Some(cookie) = finding.cookie {
            self.join(client, (cookie, session), socket).followed |= finding.followed;
        }
        None
    }

    fn close(&mut self, key: (u64, SessionId)) -> Vec<Watched> {
        let of = self.connections.remove(&key).map(|connection| connection.of).unwrap_or_default();
        of.into_all().filter_map(|client| Some(watched(client, &self.ties.remove(&client)?))).collect()
    }

    /// Follows a connection no longer, unless another session names it.
    fn forget(&mut self, cookie: u64) {
        let mut others = self.connections.range((cookie, SessionId(0))..=(cookie, SessionId(u64::MAX)));
        if others.next().is_none() {
            self.forget.push(cookie);
        }
    }

    fn forget_idle(&mut self) {
        let mut over = Vec::new();
        for (key, connection) in &mut self.connections {
            if connection.of.is_empty() && mem::replace(&mut connection.idle, true) {
                over.push(*key);
            }
        }
        for key in over {
            self.connections.remove(&key);
            self.forget(key.0);
        }
    }
}

fn subject(client: Client, tie: &Tie) -> Subject {
    tie.socket.cookie.map_or(Subject::Of(client), |cookie| Subject::Connection(cookie, tie.session))
}

fn watched(client: Client, tie: &Tie) -> Watched {
    let work = match client {
        Client::Request(_, request) => Work::Request(request),
        Client::Lease(lease) => Work::Lease(lease),
    };
    Watched { session: tie.session, work }
}

#[cfg(test)]
mod tests;
