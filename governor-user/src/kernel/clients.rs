//! Whether the clients of leases are still connected, as the kernel tells: one look-up a connection, in the network
//! namespace of the proxy that holds it. A thread of its own, because entering a namespace and asking may take a while.
//! What cannot be asked is unknown, which says nothing. Knows no lease.

use super::privileged::{self, Home};
use super::sockdiag::Diag;
use governor_common::wire::request::ClientSocket;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;

/// One connection to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<T> {
    /// Whose client it is.
    pub of: T,
    /// Process id of the proxy; its namespace is looked in.
    pub proxy: u32,
    /// The connection.
    pub socket: ClientSocket,
}

/// What the kernel said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    /// Whose client it is.
    pub of: T,
    /// Nobody holds the connection any more.
    pub gone: bool,
    /// The cookie by which it is known from now on.
    pub cookie: Option<u64>,
}

/// Answers a round of questions at a time. What could not be asked has no finding.
pub type Answer<T> = Box<dyn FnOnce(Vec<Finding<T>>) + Send>;

/// Where questions go. The thread ends with it.
#[derive(Debug)]
pub struct ClientWatch<T> {
    rounds: mpsc::SyncSender<Round<T>>,
}

struct Round<T> {
    questions: Vec<Question<T>>,
    answer: Answer<T>,
}

impl<T: Copy + Send + 'static> ClientWatch<T> {
    /// Starts the thread; `None` where the system has none left: clients are not looked for then.
    #[must_use]
    pub fn start() -> Option<Self> {
        let (rounds, asked) = mpsc::sync_channel::<Round<T>>(1);
        let thread = std::thread::Builder::new().name("governor-clients".to_owned());
        let spawned = thread.spawn(move || {
            let home = Home::of_this_thread().ok();
            for Round { questions, answer } in asked {
                answer(home.as_ref().map(|home| look(home, questions)).unwrap_or_default());
            }
        });
        spawned.is_ok().then_some(Self { rounds })
    }

    /// Asks; false when the last round is not over.
    pub fn ask(&self, questions: Vec<Question<T>>, answer: Answer<T>) -> bool {
        self.rounds.try_send(Round { questions, answer }).is_ok()
    }
}

/// One visit a namespace.
fn look<T: Copy>(home: &Home, questions: Vec<Question<T>>) -> Vec<Finding<T>> {
    let mut by_namespace: BTreeMap<u64, (PathBuf, Vec<Question<T>>)> = BTreeMap::new();
    let mut of_proxy: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for question in questions {
        let task = PathBuf::from(format!("/proc/{}", question.proxy));
        let namespace = *of_proxy.entry(question.proxy).or_insert_with(|| privileged::task_namespace(&task).ok());
        if let Some(namespace) = namespace {
            let of = by_namespace.entry(namespace).or_insert_with(|| (privileged::door_of(&task), Vec::new()));
            of.1.push(question);
        }
    }
    let mut findings = Vec::new();
    for (namespace, (door, questions)) in by_namespace {
        // A namespace that ended meanwhile has no connections, but its proxy has ended too and says so by itself.
        let seen = home.visit(namespace, &door, || Diag::open().ok().map(|mut diag| ask_all(&mut diag, &questions)));
        findings.extend(seen.ok().flatten().into_iter().flatten());
    }
    findings
}

fn ask_all<T: Copy>(diag: &mut Diag, questions: &[Question<T>]) -> Vec<Finding<T>> {
    let one = |question: &Question<T>| {
        let ClientSocket { local, peer, cookie } = question.socket;
        let found = diag.find(local, peer).ok()?;
        // The same ports with another cookie: a later connection.
        let same = found.filter(|found| cookie.is_none_or(|cookie| cookie == found.cookie));
        Some(Finding { of: question.of, gone: same.is_none(), cookie: same.map(|found| found.cookie) })
    };
    questions.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ask(socket: ClientSocket) -> Vec<Finding<u8>> {
        let watch = ClientWatch::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        let question = Question { of: 7, proxy: std::process::id(), socket };
        assert!(watch.ask(vec![question], Box::new(move |found| sender.send(found).unwrap())));
        receiver.recv().unwrap()
    }

    #[test]
    fn a_client_is_there_until_the_kernel_closed_its_socket_and_a_later_one_is_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let socket = ClientSocket { local: server.local_addr().unwrap(), peer, cookie: None };
        let [found] = ask(socket)[..] else { panic!("one finding") };
        assert!(!found.gone && found.cookie.is_some());
        let other = ClientSocket { cookie: found.cookie.map(|cookie| cookie + 1), ..socket };
        assert!(ask(other)[0].gone, "the ports are in use by another connection");
        drop((client, server));
        assert_eq!(ask(ClientSocket { cookie: found.cookie, ..socket }), [Finding { of: 7, gone: true, cookie: None }]);
    }

    #[test]
    fn of_a_proxy_that_is_not_there_nothing_is_known() {
        let watch = ClientWatch::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        let socket = ClientSocket { local: ([127, 0, 0, 1], 1).into(), peer: ([127, 0, 0, 1], 2).into(), cookie: None };
        // No process has the largest id.
        let question = Question { of: 7_u8, proxy: u32::MAX, socket };
        assert!(watch.ask(vec![question], Box::new(move |found| sender.send(found).unwrap())));
        assert_eq!(receiver.recv().unwrap(), []);
    }
}
