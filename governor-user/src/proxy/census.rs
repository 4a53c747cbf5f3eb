//! How many connections proxies may hold: in all, and each user, because each costs descriptors and memory. Counts a
//! connection from its accept until its session is over, its grace included. Knows nothing of what connections say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors a session takes at most: its socket, its process's pidfd, and a duplicate while a write waits for room.
const DESCRIPTORS: u64 = 3;

/// Descriptors that are never given to sessions: the kernel plane, logs, and both HTTP servers at their bounds.
const RESERVED: u64 = 128 + 3 * crate::control::serving::MOST_CONNECTIONS;

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections in all.
    pub total: u32,
    /// Connections of one user.
    pub per_uid: u32,
}

impl Bounds {
    /// These bounds as far as a limit of so many descriptors allows: one user never gets more than half of less.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let most = u32::try_from(descriptors.saturating_sub(RESERVED) / DESCRIPTORS).unwrap_or(u32::MAX).max(2);
        if most >= self.total {
            return self;
        }
        Self { total: most, per_uid: self.per_uid.min(most / 2) }
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The daemon's bound.
    #[error("{0} proxy connections are open, as many as daemon.max_sessions and the limit of descriptors allow")]
    Total(u32),
    /// The user's bound.
    #[error(
        "uid {uid} has {open} proxy connections, as many as daemon.max_sessions_per_uid and the limit of descriptors allow"
    )]
    User {
        /// The user.
        uid: u32,
        /// Its connections.
        open: u32,
    },
}

/// Counts connections.
#[derive(Clone, Debug)]
pub struct Census {
    bounds: Bounds,
    open: Arc<Mutex<BTreeMap<u32, u32>>>,
}

/// One counted connection.
#[derive(Debug)]
pub struct Place {
    uid: u32,
    open: Arc<Mutex<BTreeMap<u32, u32>>>,
}

impl Census {
    /// With nothing open.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, open: Arc::default() }
    }

    /// Counts one more connection of this user.
    ///
    /// # Errors
    /// A bound is reached.
    pub fn admit(&self, uid: u32) -> Result<Place, Full> {
        let mut open = lock(&self.open);
        let total: u32 = open.values().sum();
        if total >= self.bounds.total {
            return Err(Full::Total(total));
        }
        let of_user = open.entry(uid).or_insert(0);
        if *of_user >= self.bounds.per_uid {
            return Err(Full::User { uid, open: *of_user });
        }
        *of_user += 1;
        Ok(Place { uid, open: Arc::clone(&self.open) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(of_user) = open.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

fn lock(open: &Mutex<BTreeMap<u32, u32>>) -> MutexGuard<'_, BTreeMap<u32, u32>> {
    // Held to count only.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_the_connections_of_others() {
        let census = Census::new(Bounds { total: 4, per_uid: 2 });
        let held = [census.admit(7).unwrap(), census.admit(7).unwrap()];
        assert_eq!(census.admit(7).unwrap_err(), Full::User { uid: 7, open: 2 });
        let others = [census.admit(8).unwrap(), census.admit(9).unwrap()];
        assert_eq!(census.admit(10).unwrap_err(), Full::Total(4));
        drop(held);
        assert!(census.admit(7).is_ok());
        drop(others);
        assert_eq!(lock(&census.open).len(), 0, "a user without connections is forgotten");
    }

    #[test]
    fn bounds_leave_descriptors_for_everything_else() {
        let bounds = Bounds { total: 1024, per_uid: 512 };
        assert_eq!(bounds.within(65_536), bounds);
        let narrow = bounds.within(512);
        assert!(u64::from(narrow.total) * DESCRIPTORS + RESERVED <= 512, "{narrow:?}");
        assert_eq!(narrow.per_uid, narrow.total / 2);
        assert_eq!(bounds.within(0), Bounds { total: 2, per_uid: 1 });
    }
}
