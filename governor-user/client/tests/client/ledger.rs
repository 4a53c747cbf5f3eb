//! A daemon that grants whatever is asked for and keeps books: every grant, and how often it was given back.

use super::peer::{Peer, Talk, WELCOME, eventually};
use governor_client::Governor;
use governor_common::wire::reply::{Origin, Reply, Shed, Welcome};
use governor_common::wire::request::{Acquire, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A refusal by the caller's own limit, or by the node's.
pub(crate) fn shed(status: u16) -> Shed {
    let (origin, reason) = if status == 429 { (Origin::Key, "fair_share") } else { (Origin::Node, "node_cap") };
    let (reason, detail) = (reason.to_owned(), "no slot".to_owned());
    Shed { status, origin, reason, retry_after_ms: 1001, decision: 77, detail, quota: Some(9) }
}

/// First lease id of the ledger's epoch.
const FIRST: u64 = 0x0001_0000_0000_0001;

/// The books of one session.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    asked: Vec<Acquire>,
    /// How often each granted lease was released.
    granted: BTreeMap<u64, u32>,
    /// Leases that were released and never granted.
    strange: Vec<u64>,
    gone: Vec<u64>,
    refuses: bool,
    parks: bool,
    withdrawn: u32,
    /// Leases of which it is known when their bytes moved.
    moved: BTreeSet<u64>,
}

impl Ledger {
    /// A governor whose every request is granted.
    pub(crate) async fn open(peer: &Peer) -> (Governor, Self) {
        let governor = Governor::start(peer.config());
        // A short ttl, so that renewals, which tell when bytes last moved, come soon.
        let talk = peer.greet_with(Welcome { lease_ttl_ms: 300, ..WELCOME }).await;
        let ledger = Self::default();
        tokio::spawn(ledger.clone().keep(talk));
        (governor, ledger)
    }

    async fn keep(self, mut talk: Talk) {
        while let Some((request, id)) = talk.next_or_end().await {
            if let Request::Acquire(acquire) = request {
                if self.0.lock().unwrap().refuses {
                    talk.say(&Reply::Shed(shed(429)), id).await;
                    continue;
                }
                if self.0.lock().unwrap().parks {
                    talk.say(&Reply::Parked, id).await;
                    continue;
                }
                let lease = self.grant(acquire);
                talk.grant(id, lease, "m1").await;
                if self.0.lock().unwrap().gone.contains(&lease) {
                    talk.say(&Reply::ClientGone { lease }, 0).await;
                }
            } else if let Request::Renew { leases } = request {
                let moving = leases.iter().filter(|renewal| renewal.idle_ms.is_some()).map(|renewal| renewal.lease);
                self.0.lock().unwrap().moved.extend(moving);
            } else if let Request::Cancel { .. } = request {
                self.0.lock().unwrap().withdrawn += 1;
            } else if let Request::Release { leases } = request {
                leases.into_iter().for_each(|lease| self.release(lease));
            }
        }
    }

    pub(super) fn grant(&self, acquire: Acquire) -> u64 {
        let mut book = self.0.lock().unwrap();
        let lease = FIRST + u64::try_from(book.granted.len()).unwrap();
        book.asked.push(acquire);
        book.granted.insert(lease, 0);
        lease
    }

    pub(super) fn release(&self, lease: u64) {
        let mut book = self.0.lock().unwrap();
        match book.granted.get_mut(&lease) {
            Some(times) => *times += 1,
            None => book.strange.push(lease),
        }
    }

    /// The client of the next lease is gone by the time it is granted.
    pub(crate) fn next_is_gone(&self) {
        let mut book = self.0.lock().unwrap();
        let next = FIRST + u64::try_from(book.granted.len()).unwrap();
        book.gone.push(next);
    }

    /// Refuses from now on.
    pub(crate) fn refuse(&self) {
        self.0.lock().unwrap().refuses = true;
    }

    /// Parks from now on.
    pub(crate) fn park(&self) {
        self.0.lock().unwrap().parks = true;
    }

    /// Requests withdrawn while they were parked.
    pub(crate) fn withdrawn(&self) -> u32 {
        self.0.lock().unwrap().withdrawn
    }

    /// Leases of which it is known when their bytes moved.
    pub(crate) fn moved(&self) -> usize {
        self.0.lock().unwrap().moved.len()
    }

    /// Leases granted and not released.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.lock().unwrap().granted.values().filter(|times| **times == 0).count()
    }

    pub(crate) fn granted(&self) -> usize {
        self.0.lock().unwrap().granted.len()
    }

    pub(crate) fn last_asked(&self) -> Acquire {
        self.0.lock().unwrap().asked.last().expect("something was asked").clone()
    }

    /// Waits until nothing is in flight, on both sides, and sees that every grant came back exactly once.
    pub(crate) async fn settled(&self, governor: &Governor, what: &str) {
        eventually(what, || {
            let stats = governor.stats();
            self.in_flight() == 0 && (stats.leases, stats.waiting, stats.queued) == (0, 0, 0)
        })
        .await;
        let book = self.0.lock().unwrap();
        assert!(book.granted.values().all(|times| *times == 1), "{what}: {:?}", book.granted);
        assert!(book.strange.is_empty(), "{what}: {:?}", book.strange);
    }
}
