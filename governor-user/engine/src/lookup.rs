//! Small questions a caller's loop asks all the time: counts and names behind an id. None changes anything; each costs
//! a look-up, not a view.

use crate::engine::Engine;
use crate::id::{KeyId, LeaseId, PoolId, SessionId};

impl Engine {
    /// Counted requests on the node, granted or parked (B1).
    #[must_use]
    pub fn counted(&self) -> u32 {
        self.node_counted()
    }

    /// Whether every `Acquire` passes at once.
    #[must_use]
    pub fn is_bypassed(&self) -> bool {
        self.bypass
    }

    /// Nothing is held and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.parked.is_empty()
    }

    /// Whether a key holds or awaits anything in any pool.
    #[must_use]
    pub fn is_active(&self, key: KeyId) -> bool {
        self.pools.iter().any(|pool| {
            pool.unplaced.of(Some(key)) > 0
                || pool.members.iter().any(|member| member.load.of(Some(key)) > 0)
                || pool.parked_by_key.contains_key(&key)
        })
    }

    /// Who holds a lease.
    #[must_use]
    pub fn holder(&self, lease: LeaseId) -> Option<SessionId> {
        self.leases.get(&lease).map(|lease| lease.session)
    }

    /// The pool of a live lease.
    #[must_use]
    pub fn pool_of(&self, lease: LeaseId) -> Option<PoolId> {
        self.leases.get(&lease).map(|lease| lease.pool)
    }

    /// Leases a session holds.
    #[must_use]
    pub fn leases_of(&self, session: SessionId) -> u32 {
        let held = self.sessions.get(&session).map_or(0, |session| session.leases.len());
        u32::try_from(held).unwrap_or(u32::MAX)
    }
}
