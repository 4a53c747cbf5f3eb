//! Accepts proxies: who may connect, how many, and what a refused one is sent. Knows nothing of sessions but how to start one.

use super::census::{Census, Place};
use super::session;
use crate::driver::messages::Message;
use crate::log_limit::LogLimit;
use crate::transport::outbox::Unread;
use crate::transport::peer::{Allowed, Peer};
use governor_common::wire::codec;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_engine::id::SessionId;
use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::Sender;

/// Pause after the system had no descriptor or no memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What accepting needs. Clones share their bounds and the numbers of sessions.
#[derive(Clone, Debug)]
pub struct Accept {
    allowed: Allowed,
    census: Census,
    unread: Unread,
    driver: Sender<Message>,
    next_session: Arc<AtomicU64>,
}

impl Accept {
    /// Accepts these users within the census's bounds; sessions are numbered from `first_session`.
    #[must_use]
    pub fn new(allowed: Allowed, census: Census, driver: Sender<Message>, first_session: u64) -> Self {
        Self { allowed, census, unread: Unread::default(), driver, next_session: Arc::new(first_session.into()) }
    }

    /// Accepts proxies on this listener until it is aborted.
    pub async fn proxies(self, listener: UnixListener) {
        let mut spare = File::open("/dev/null").ok();
        let mut refusals = LogLimit::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match admit(&stream, &self.allowed, &self.census) {
                    Ok((peer, place)) => {
                        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
                        tokio::spawn(session::serve(
                            stream,
                            session,
                            peer,
                            place,
                            self.unread.clone(),
                            self.driver.clone(),
                        ));
                    }
                    Err(refusal) => {
                        if let Some(left_out) = refusals.allow(Instant::now()) {
                            tracing::warn!(left_out, "a proxy was turned away: {refusal}");
                        }
                        deny(&stream, &refusal);
                    }
                },
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::error!(%error, "proxies cannot be accepted now");
                    // The spare descriptor lets one waiting proxy in, to be closed: it learns at once and falls back.
                    drop(spare.take());
                    if let Ok(turned_away) = tokio::time::timeout(PAUSE, listener.accept()).await {
                        drop(turned_away);
                    }
                    spare = File::open("/dev/null").ok();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn admit(stream: &UnixStream, allowed: &Allowed, census: &Census) -> Result<(Peer, Place), String> {
    let peer = Peer::of(stream).map_err(|error| format!("{error:#}"))?;
    if !allowed.permits(&peer) {
        return Err(format!("uid {} is not in daemon.allow_users", peer.uid));
    }
    let place = census.admit(peer.uid).map_err(|full| full.to_string())?;
    Ok((peer, place))
}

/// Sends the reason before the connection closes. A fresh socket takes one small frame without waiting.
fn deny(stream: &UnixStream, why: &str) {
    let mut bytes = bytes::BytesMut::new();
    let reply = Reply::Error { code: ErrorCode::Denied, message: why.to_owned() };
    if codec::encode_reply(&reply, 0, &mut bytes).is_ok()
        && let Err(error) = stream.try_write(&bytes)
    {
        tracing::debug!(%error, "the reason could not be sent");
    }
}
