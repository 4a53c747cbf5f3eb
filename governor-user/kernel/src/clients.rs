//! Whether the clients of leases are still connected, as the kernel reports it. Where there are programs each
//! connection is named to them once, and its end comes out of their buffer; everywhere it can be asked for by one
//! look-up, in the network namespace of the proxy that holds it. A thread of its own, because entering a namespace and
//! asking may take a while. What cannot be asked is unknown, which says nothing. Knows no lease.

use crate::proc::privileged::{self, EnterError, Home};
use crate::programs::closings::Closings;
use crate::tables::sockdiag::Diag;
use governor_common::wire::request::ClientSocket;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often ends are read while any is waited for: the longest that one stays unknown.
const READ_EVERY: Duration = Duration::from_millis(20);

/// One connection to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<T> {
    /// Whose client it is.
    pub of: T,
    /// Process id of the proxy; its namespace is looked in. `None`: it is not known here, and only the connection's end
    /// can be waited for.
    pub proxy: Option<u32>,
    /// The connection.
    pub socket: ClientSocket,
}

/// What the kernel said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    /// Whose client it is.
    pub of: T,
    /// No process holds the connection any more.
    pub gone: bool,
    /// The cookie by which it is known from now on.
    pub cookie: Option<u64>,
    /// Its end will be reported as [`News::Closed`].
    pub followed: bool,
}

/// What is asked at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round<T> {
    /// To be looked for, and followed from now on.
    pub questions: Vec<Question<T>>,
    /// Cookies to be followed no longer.
    pub forget: Vec<u64>,
}

/// What is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<T> {
    /// Answers a round. What could not be asked has no finding.
    Found(Vec<Finding<T>>),
    /// Cookies of connections that were followed and have ended.
    Closed(Vec<u64>),
}

/// Where questions go. The thread ends with it.
#[derive(Debug)]
pub struct ClientWatch<T> {
    rounds: mpsc::SyncSender<Round<T>>,
}

impl<T: Copy + Send + 'static> ClientWatch<T> {
    /// Starts the thread; `None` where the system has none left: clients are not looked for then.
    #[must_use]
    pub fn start(closings: Option<Closings>, tell: impl Fn(News<T>) + Send + 'static) -> Option<Self> {
        let (rounds, asked) = mpsc::sync_channel::<Round<T>>(1);
        let thread = std::thread::Builder::new().name("clients".to_owned());
        let mut closings = closings;
        let spawned = thread.spawn(move || {
            let mut home = Home::of_this_thread().ok();
            while let Some(round) = next(&asked, closings.as_ref()) {
                if let Some(Round { questions, forget }) = round {
                    if let Some(closings) = &mut closings {
                        forget.into_iter().for_each(|cookie| closings.forget(cookie));
                    }
                    tell(News::Found(look(&mut home, questions, &mut closings)));
                }
                let closed = closings.as_mut().map(Closings::ended).unwrap_or_default();
                if !closed.is_empty() {
                    tell(News::Closed(closed));
                }
            }
        });
        spawned.is_ok().then_some(Self { rounds })
    }

    /// Asks; false when the last round is not over.
    pub fn ask(&self, round: Round<T>) -> bool {
        self.rounds.try_send(round).is_ok()
    }
}

/// The next round, nothing when it is time to read ends, `None` when every sender is gone.
fn next<T>(asked: &mpsc::Receiver<Round<T>>, closings: Option<&Closings>) -> Option<Option<Round<T>>> {
    if !closings.is_some_and(Closings::waits) {
        return asked.recv().ok().map(Some);
    }
    match asked.recv_timeout(READ_EVERY) {
        Ok(round) => Some(Some(round)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// One visit a namespace.
fn look<T: Copy>(
    home: &mut Option<Home>,
    questions: Vec<Question<T>>,
    closings: &mut Option<Closings>,
) -> Vec<Finding<T>> {
    let mut by_namespace: BTreeMap<u64, (PathBuf, Vec<Question<T>>)> = BTreeMap::new();
    let mut of_proxy: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    let mut findings = Vec::new();
    for question in questions {
        let Some(proxy) = question.proxy else {
            let cookie = question.socket.cookie.filter(|cookie| follow(closings, *cookie));
            findings.extend(cookie.map(|cookie| Finding {
                of: question.of,
                gone: false,
                cookie: Some(cookie),
                followed: true,
            }));
            continue;
        };
        let task = PathBuf::from(format!("/proc/{proxy}"));
        let namespace = *of_proxy.entry(proxy).or_insert_with(|| privileged::task_namespace(&task).ok());
        if let Some(namespace) = namespace {
            let of = by_namespace.entry(namespace).or_insert_with(|| (privileged::door_of(&task), Vec::new()));
            of.1.push(question);
        }
    }
    for (namespace, (door, questions)) in by_namespace {
        let Some(here) = home else { break };
        let mut asked = || Diag::open().ok().map(|mut diag| ask_all(&mut diag, &questions, closings));
        match here.visit(namespace, &door, &mut asked) {
            Ok(found) => findings.extend(found.into_iter().flatten()),
            // What this thread sees now is not what it is asked for.
            Err(EnterError::Stranded(error)) => {
                tracing::error!(%error, "clients are not looked for any more");
                *home = None;
            }
            // A namespace that ended meanwhile has no connections, but its proxy has ended too and says so by itself.
            Err(EnterError::Gone | EnterError::Denied | EnterError::Other(_)) => {}
        }
    }
    findings
}

fn ask_all<T: Copy>(diag: &mut Diag, questions: &[Question<T>], closings: &mut Option<Closings>) -> Vec<Finding<T>> {
    let mut ask = |question: &Question<T>| {
        let ClientSocket { local, peer, cookie } = question.socket;
        // Before the look-up: an end after it is reported, one before it is found by it.
        let mut followed = cookie.is_some_and(|cookie| follow(closings, cookie));
        let first = diag.find(local, peer).ok()?;
        if first.is_some_and(|found| found.subflow) {
            return None;
        }
        let mut found = first.map(|found| found.cookie);
        // Known by its ends only: it is looked for once more after it is followed, as above.
        if let (None, Some(first)) = (cookie, found) {
            followed = follow(closings, first);
            if followed {
                found = diag.find(local, peer).ok()?.map(|found| found.cookie);
            }
        }
        let known = cookie.or(found);
        // The same ports with another cookie: a later connection.
        let gone = found.is_none() || found != known;
        Some(Finding { of: question.of, gone, cookie: found.filter(|_| !gone), followed: followed && !gone })
    };
    questions.iter().filter_map(&mut ask).collect()
}

/// Waits for the end of a connection, if that is possible.
fn follow(closings: &mut Option<Closings>, cookie: u64) -> bool {
    closings.as_mut().is_some_and(|closings| closings.follow(cookie))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Without programs.
    fn ask(socket: ClientSocket, proxy: Option<u32>) -> Vec<Finding<u8>> {
        let (sender, receiver) = mpsc::channel();
        let watch = ClientWatch::start(None, move |news| sender.send(news).unwrap()).unwrap();
        assert!(watch.ask(Round { questions: vec![Question { of: 7, proxy, socket }], forget: Vec::new() }));
        match receiver.recv().unwrap() {
            News::Found(found) => found,
            closed @ News::Closed(_) => panic!("nothing was followed: {closed:?}"),
        }
    }

    #[test]
    fn a_client_is_there_until_the_kernel_closed_its_socket_and_a_later_one_is_another() {
        let me = Some(std::process::id());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let socket = ClientSocket { local: server.local_addr().unwrap(), peer, cookie: None };
        let [found] = ask(socket, me)[..] else { panic!("one finding") };
        assert!(!found.gone && found.cookie.is_some() && !found.followed);
        let other = ClientSocket { cookie: found.cookie.map(|cookie| cookie + 1), ..socket };
        assert!(ask(other, me)[0].gone, "the ports are in use by another connection");
        drop((client, server));
        let gone = Finding { of: 7, gone: true, cookie: None, followed: false };
        assert_eq!(ask(ClientSocket { cookie: found.cookie, ..socket }, me), [gone]);
    }

    #[test]
    fn of_a_proxy_that_is_not_there_nothing_is_known() {
        let socket = ClientSocket { local: ([127, 0, 0, 1], 1).into(), peer: ([127, 0, 0, 1], 2).into(), cookie: None };
        // No process has the largest id.
        assert_eq!(ask(socket, Some(u32::MAX)), []);
        assert_eq!(ask(ClientSocket { cookie: Some(1), ..socket }, None), []);
    }
}
