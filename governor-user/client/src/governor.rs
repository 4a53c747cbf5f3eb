//! The handle: hashes keys, asks through the shared connection (`transport`), and shows what is known of it. Decides
//! nothing and touches no socket.

use crate::config::Config;
use crate::lease::queue::{Command, Queue};
use crate::lease::refused::Refused;
use crate::lease::request::AcquireRequest;
use crate::lease::{Lease, LeaseHandle};
use crate::signals::Signals;
use crate::stats::Stats;
use crate::transport::session::{self, View};
use governor_common::wire::KeyHash;
use governor_common::wire::reply::{Origin, Overload};
use governor_common::wire::request::{MemberNews, MemberReport, TierIs};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};

/// A handle on the daemon's admission. Clones share one connection; the last clone and the last lease to go close it.
#[derive(Clone)]
pub struct Governor {
    keyed: Hmac<Sha256>,
    view: Arc<View>,
}

impl Governor {
    /// Starts the task that keeps the connection. Returns at once: a daemon that is not there yet is met later, and
    /// until then the fallback decides.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, because there is nowhere to run the task.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let keyed = Hmac::new_from_slice(config.secret.bytes()).expect("hmac takes a key of any length");
        Self { keyed, view: Arc::new(session::start(config)) }
    }

    /// The keyed hash that stands for an API key, an organisation or a user: the first 16 bytes of
    /// HMAC-SHA256(node secret, raw). The raw key goes no further.
    #[must_use]
    pub fn key(&self, raw: &[u8]) -> KeyHash {
        let tag = self.keyed.clone().chain_update(raw).finalize().into_bytes();
        let mut hash = [0; 16];
        hash.copy_from_slice(&tag[..16]);
        KeyHash(hash)
    }

    /// One more POST passes without a slot; how many did.
    pub(crate) fn count_unlisted(&self) -> u64 {
        self.view.queue.counters().unlisted.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether this governor gave the lease.
    #[must_use]
    pub fn gave(&self, lease: &LeaseHandle) -> bool {
        lease.queue().is_same(&self.view.queue)
    }

    /// Asks for a slot and waits, parked if need be. Dropping the future withdraws the request; a grant that crosses
    /// the withdrawal is given back.
    ///
    /// # Errors
    ///
    /// [`Refused`], with what to answer the API client.
    pub async fn acquire(&self, ask: AcquireRequest) -> Result<Lease, Refused> {
        self.acquire_boxed(Box::new(ask)).await
    }

    /// The same. A request is long; boxed, it is not part of every future that waits for its answer.
    pub(crate) async fn acquire_boxed(&self, ask: Box<AcquireRequest>) -> Result<Lease, Refused> {
        let ticket = self.view.queue.counters().tickets.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.view.connection.ask(Command::Acquire { ticket, ask, reply });
        let mut withdrawal = Withdrawal { queue: &self.view.queue, ticket, armed: true };
        let answer = answer.await;
        withdrawal.armed = false;
        answer.unwrap_or_else(|_| {
            let detail = "the governor's task has ended".to_owned();
            Err(Refused::local(529, Origin::Node, "governor_away", Duration::from_secs(1), detail))
        })
    }

    /// Reports what a member answered: 429, 529 or a transport error, or that it is well again. Lost when the daemon is
    /// away: it learns the same from the next refusal.
    pub fn member_report(&self, pool: &str, member: &str, state: MemberNews) {
        let report = MemberReport { pool: pool.to_owned(), member: member.to_owned(), state };
        self.view.queue.send(Command::Report(report));
    }

    /// Organisations that reached the base ceiling of their class, hashed as [`Self::key`] hashes them: look up the
    /// tier and report it by [`Self::tier_is`]. Nothing waits for the answer; without one the base holds.
    #[must_use]
    pub fn tier_asks(&self) -> TierAsks {
        TierAsks { asked: self.view.tiers.upgrade().map(|sender| sender.subscribe()) }
    }

    /// Answers one of [`Self::tier_asks`]: the trust tier of an organisation, by the name of a class in the daemon's
    /// configuration such as `tier3`, which holds for `ttl`, at most an hour. It can raise the org's ceiling and never
    /// lowers it. `None`: the look-up failed, and the base holds for so long. The daemon ignores an answer that it did
    /// not ask this session for. Lost while the daemon is away: it asks again when it needs to know.
    pub fn tier_is(&self, org: KeyHash, class: Option<&str>, ttl: Duration) {
        let ttl_ms = u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX);
        self.view.queue.send(Command::Tier(TierIs { org, class: class.map(str::to_owned), ttl_ms }));
    }

    /// The overload level, each change of it. Normal while the daemon is away.
    #[must_use]
    pub fn overload(&self) -> watch::Receiver<Overload> {
        self.view.overload.clone()
    }

    /// The daemon's signal page: level, causes, how full node and pools are, without a frame and without waiting. Keep
    /// what is returned: looking at it costs nanoseconds.
    #[must_use]
    pub fn signals(&self) -> Signals {
        Signals::new(self.view.page.clone(), self.view.overload.clone())
    }

    /// Whether a session with the daemon is open, each change of it.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.view.connected.clone()
    }

    /// Counters for the proxy's own metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.view.queue.counters().read(*self.view.connected.borrow())
    }
}

impl fmt::Debug for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governor").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The daemon's questions for tiers, see [`Governor::tier_asks`].
#[derive(Debug)]
pub struct TierAsks {
    asked: Option<broadcast::Receiver<KeyHash>>,
}

impl TierAsks {
    /// The next organisation asked for; `None` when the library's task has ended. A slow reader misses questions,
    /// and the daemon asks again.
    pub async fn next(&mut self) -> Option<KeyHash> {
        let asked = self.asked.as_mut()?;
        loop {
            match asked.recv().await {
                Ok(org) => return Some(org),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// Withdraws a request whose future is dropped before the answer.
struct Withdrawal<'a> {
    queue: &'a Queue,
    ticket: u64,
    armed: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.queue.send(Command::Cancel { ticket: self.ticket });
        }
    }
}
