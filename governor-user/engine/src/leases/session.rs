//! Sessions: who holds which leases and whose requests are unanswered.
//!
//! ```text
//!            SessionOpened, or its first request           SessionLost
//!   (none) ────────────────────────────────────▶ open ─────────────────▶ lost
//!                                                 │ ▲                    │ │
//!                                     SessionGone │ └── opened, asks ────┘ │ grace over, SessionGone
//!                                                 ▼                        ▼
//!                                               (none): its leases return in this step
//! ```

use crate::collections::chain::Chain;
use crate::collections::slots::{Slot, Slots};
use crate::collections::table::{InOrder, Table};
use crate::id::SessionId;
use crate::time::Instant;

/// A session the engine knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// Its leases, in the order it came to hold them.
    pub(crate) leases: Chain,
    pub(crate) held: u32,
    /// Unanswered requests: all are parked, the others are answered in the step they come in.
    pub(crate) parked: Chain,
    pub(crate) waiting: u32,
    /// When its grace ends, if its connection is lost.
    pub(crate) grace: Option<Instant>,
}

/// The sessions the engine knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    known: Slots<(SessionId, Session)>,
    by_id: Table<SessionId, Slot, InOrder>,
}

impl Sessions {
    pub(crate) fn get(&self, id: &SessionId) -> Option<&Session> {
        self.by_id.get(id).map(|slot| &self.known[*slot].1)
    }

    pub(crate) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.by_id.get(id).map(|slot| &mut self.known[*slot].1)
    }

    /// A session, made if there is none.
    pub(crate) fn entry(&mut self, id: SessionId) -> &mut Session {
        let slot = match self.by_id.get(&id) {
            Some(slot) => *slot,
            None => {
                let slot = self.known.insert((id, Session::default()));
                self.by_id.insert(id, slot);
                slot
            }
        };
        &mut self.known[slot].1
    }

    pub(crate) fn remove(&mut self, id: &SessionId) -> Option<Session> {
        let slot = self.by_id.remove(id)?;
        self.known.remove(slot).map(|(_, session)| session)
    }

    /// All. For checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.known.iter().map(|(_, (id, session))| (*id, session))
    }
}
