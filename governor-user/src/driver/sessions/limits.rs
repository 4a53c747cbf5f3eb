//! Limits as sessions get them: worked out when something changed, encoded once for all sessions, and sent at most every
//! 100 ms, because each `Hello` changes them for every session.

use crate::driver::Driver;
use bytes::{Bytes, BytesMut};
use governor_common::wire::codec;
use governor_common::wire::reply::{Limits, PoolLimits, Reply};
use governor_engine::id::SessionId;
use governor_engine::time::{Duration, Instant};

/// Limits are sent to all sessions at most once in this time.
const EVERY: Duration = Duration::from_millis(100);

/// The limits that were sent last.
#[derive(Debug, Default)]
pub(crate) struct Published {
    limits: Limits,
    /// As frames.
    frames: Bytes,
    /// When they may be sent again.
    next: Option<Instant>,
}

impl Driver {
    /// When changed limits are due.
    pub(crate) fn limits_due(&self) -> Option<Instant> {
        self.limits_stale.then(|| self.published.next.unwrap_or(self.now))
    }

    /// Sends every session the limits if they changed and it is time; whether it did.
    pub(crate) fn publish_limits(&mut self, now: Instant) -> bool {
        if self.limits_due().is_none_or(|due| now < due) {
            return false;
        }
        self.limits_stale = false;
        let limits = self.limits_now();
        if limits == self.published.limits && !self.published.frames.is_empty() {
            return false;
        }
        self.published = Published { frames: encode(&limits), limits, next: Some(now.after(EVERY)) };
        let connected: Vec<SessionId> = self.connected().map(|(session, _)| *session).collect();
        for session in connected {
            self.send_limits(session);
        }
        true
    }

    /// Sends a session the limits that were published last.
    pub(crate) fn send_limits(&mut self, session: SessionId) {
        let frames = self.published.frames.clone();
        self.queue(session, |outbox, _| outbox.publish(&frames));
    }

    fn limits_now(&self) -> Limits {
        let sessions = u32::try_from(self.connected().count()).unwrap_or(u32::MAX).max(1);
        let engine = &self.parts.engine;
        let pools = engine
            .pools()
            .map(|pool| PoolLimits {
                name: engine.pool_name(pool).unwrap_or_default().to_owned(),
                capacity: engine.capacity(pool).unwrap_or(0),
                members: engine
                    .members(pool)
                    .filter_map(|member| {
                        let name = engine.member_name(pool, member)?.to_owned();
                        Some((name, engine.ordinary_slots(pool, member)?))
                    })
                    .collect(),
            })
            .collect();
        Limits { sessions, node_cap: self.parts.policy.node.cap, pools }
    }
}

fn encode(limits: &Limits) -> Bytes {
    let mut bytes = BytesMut::new();
    if let Err(error) = codec::encode_reply(&Reply::Limits(limits.clone()), 0, &mut bytes) {
        tracing::error!(%error, "the limits do not fit a frame; proxies keep the ones they have");
    }
    bytes.freeze()
}
