//! A daemon that answers when told to, hangs up when told to, and keeps books of every grant.

use crate::peer::Talk;
use governor_common::wire::VERSION;
use governor_common::wire::reply::{Origin, Reply, Shed, Welcome};
use governor_common::wire::request::Request;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// Upper bits of every lease id: the daemon's epoch.
const EPOCH: u64 = 1 << 48;

/// What is answered to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Grant,
    Park,
    Shed,
}

enum Order {
    Answer(usize, Answer),
    HangUp,
}

/// Where a granted lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Counted.
    Live,
    /// Its session broke. It is counted again when it is registered, and else ends with the session.
    Orphaned,
    Released,
}

#[derive(Debug, Default)]
struct Book {
    connected: bool,
    /// Requests that wait for their answer.
    waiting: Vec<u32>,
    leases: BTreeMap<u64, Place>,
    faults: Vec<String>,
}

pub(super) struct Daemon {
    book: Arc<Mutex<Book>>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Daemon {
    pub(super) fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (orders, received) = mpsc::unbounded_channel();
        let book = Arc::default();
        tokio::spawn(Clerk { book: Arc::clone(&book), listener, orders: received }.serve());
        Self { book, orders }
    }

    pub(super) fn answer(&self, nth: usize, answer: Answer) {
        self.orders.send(Order::Answer(nth, answer)).ok();
    }

    pub(super) fn hang_up(&self) {
        self.open().connected = false;
        self.orders.send(Order::HangUp).ok();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.open().connected
    }

    pub(super) fn is_live(&self, lease: u64) -> bool {
        self.open().leases.get(&lease) == Some(&Place::Live)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.open().leases.values().filter(|place| **place == Place::Live).count()
    }

    /// Nothing was released twice, or by somebody it was not granted to.
    pub(super) fn audit(&self) {
        let book = self.open();
        assert!(book.faults.is_empty(), "{:?}", book.faults);
    }

    fn open(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }
}

/// The daemon's own side.
struct Clerk {
    book: Arc<Mutex<Book>>,
    listener: UnixListener,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl Clerk {
    async fn serve(mut self) {
        let mut session = 1;
        loop {
            let welcome = Welcome { version: VERSION, session, epoch: 1, lease_ttl_ms: 600_000 };
            let mut talk = Talk::accept(&self.listener, welcome).await;
            session += 1;
            self.book.lock().unwrap().connected = true;
            if !self.converse(&mut talk).await {
                return;
            }
            let mut book = self.book.lock().unwrap();
            book.waiting.clear();
            for place in book.leases.values_mut().filter(|place| **place == Place::Live) {
                *place = Place::Orphaned;
            }
        }
    }

    /// False when the test is over.
    async fn converse(&mut self, talk: &mut Talk) -> bool {
        loop {
            tokio::select! {
                biased;
                frame = talk.next_or_end() => match frame {
                    Some((frame, id)) => self.hear(talk, frame, id).await,
                    None => return true,
                },
                order = self.orders.recv() => match order {
                    Some(Order::Answer(nth, answer)) => self.answer(talk, nth, answer).await,
                    Some(Order::HangUp) => return true,
                    None => return false,
                }
            }
        }
    }

    async fn hear(&mut self, talk: &mut Talk, frame: Request, id: u32) {
        if let Request::Register { leases } = &frame {
            let leases = leases.iter().map(|held| (held.lease, self.register(held.lease))).collect();
            return talk.say(&Reply::Registered { leases }, id).await;
        }
        let mut book = self.book.lock().unwrap();
        if let Request::Acquire(_) = frame {
            book.waiting.push(id);
        } else if let Request::Cancel { request } = frame {
            book.waiting.retain(|waiting| *waiting != request);
        } else if let Request::Release { leases } = frame {
            for lease in leases {
                match book.leases.insert(lease, Place::Released) {
                    Some(Place::Live) => {}
                    other => book.faults.push(format!("{lease:x} was {other:?} when it was released")),
                }
            }
        }
    }

    fn register(&self, lease: u64) -> u64 {
        let mut book = self.book.lock().unwrap();
        match book.leases.insert(lease, Place::Live) {
            Some(Place::Orphaned) => {}
            other => book.faults.push(format!("{lease:x} was {other:?} when it was registered")),
        }
        lease
    }

    async fn answer(&mut self, talk: &mut Talk, nth: usize, answer: Answer) {
        let (id, lease) = {
            let mut book = self.book.lock().unwrap();
            let count = book.waiting.len();
            if count == 0 {
                return;
            }
            let id = match answer {
                Answer::Park => book.waiting[nth % count],
                Answer::Grant | Answer::Shed => book.waiting.remove(nth % count),
            };
            let lease = EPOCH + 1 + u64::try_from(book.leases.len()).unwrap();
            if matches!(answer, Answer::Grant) {
                book.leases.insert(lease, Place::Live);
            }
            (id, lease)
        };
        match answer {
            Answer::Grant => talk.grant(id, lease, "m1").await,
            Answer::Park => talk.say(&Reply::Parked, id).await,
            Answer::Shed => {
                let (reason, detail) = ("fair_share".to_owned(), "no".to_owned());
                let shed = Shed {
                    status: 429,
                    origin: Origin::Key,
                    reason,
                    retry_after_ms: 1,
                    decision: 1,
                    detail,
                    quota: None,
                };
                talk.say(&Reply::Shed(shed), id).await;
            }
        }
    }
}
