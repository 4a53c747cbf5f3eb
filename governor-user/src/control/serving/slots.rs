//! The connections of one HTTP listener: how many, whose, and which of them works on a request. Decides which idle connection
//! makes room for a new one. Knows no bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Connections of a listener at most.
pub const MOST_CONNECTIONS: u64 = 64;

/// Of these, connections of root and the daemon's own user only.
const TRUSTED_CONNECTIONS: usize = 16;

/// Connections of one other user at most; all peers over TCP are one user.
const CONNECTIONS_PER_UID: usize = 24;

/// Answers of one other user that are worked on or not yet sent, at most.
const ANSWERS_PER_UID: usize = 4;

/// The same of all other users.
const ANSWERS: usize = 8;

/// The connections of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// `None` over TCP.
    uid: Option<u32>,
    trusted: bool,
    busy: bool,
    evicted: Arc<Notify>,
}

/// A connection's place.
#[derive(Debug)]
pub(super) struct Slot {
    table: Arc<Mutex<Table>>,
    id: u64,
    evicted: Arc<Notify>,
}

/// A request that is worked on.
#[derive(Debug)]
pub(super) struct Busy {
    table: Arc<Mutex<Table>>,
    id: u64,
}

impl Slots {
    /// A place for a connection of this user. Where its bound or the listener's is reached, the idle connection that is the
    /// oldest makes room; `None` when none of them is idle.
    pub(super) fn take(&self, uid: Option<u32>) -> Option<Slot> {
        let mut table = lock(&self.0);
        let trusted = uid.is_some_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw());
        let most = usize::try_from(MOST_CONNECTIONS).unwrap_or(usize::MAX);
        if !trusted {
            table.make_room(CONNECTIONS_PER_UID, |open| open.uid == uid)?;
            table.make_room(most - TRUSTED_CONNECTIONS, |open| !open.trusted)?;
        }
        table.make_room(most, |_| true)?;
        let id = table.next;
        table.next += 1;
        let evicted = Arc::new(Notify::new());
        table.open.insert(id, Open { uid, trusted, busy: false, evicted: Arc::clone(&evicted) });
        Some(Slot { table: Arc::clone(&self.0), id, evicted })
    }
}

impl Table {
    /// Leaves fewer than `most` of these connections; `None` when that is not possible.
    fn make_room(&mut self, most: usize, of: impl Fn(&Open) -> bool) -> Option<()> {
        if self.open.values().filter(|open| of(open)).count() < most {
            return Some(());
        }
        let oldest = self.open.iter().find(|(_, open)| of(open) && !open.busy).map(|(id, _)| *id)?;
        self.open.remove(&oldest)?.evicted.notify_one();
        Some(())
    }
}

impl Slot {
    /// A request begins; `None` when its user has as many answers outstanding as it may.
    pub(super) fn begin(&self) -> Option<Busy> {
        let mut table = lock(&self.table);
        let (uid, trusted) = table.open.get(&self.id).map(|open| (open.uid, open.trusted))?;
        let busy = |of: &dyn Fn(&Open) -> bool| table.open.values().filter(|open| open.busy && of(open)).count();
        if !trusted && (busy(&|open| open.uid == uid) >= ANSWERS_PER_UID || busy(&|open| !open.trusted) >= ANSWERS) {
            return None;
        }
        table.open.get_mut(&self.id)?.busy = true;
        Some(Busy { table: Arc::clone(&self.table), id: self.id })
    }

    /// Ends when the connection has to make room.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.table).open.remove(&self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(open) = lock(&self.table).open.get_mut(&self.id) {
            open.busy = false;
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // Held to count only.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const OTHER: Option<u32> = Some(65_000);

    #[test]
    fn half_open_connections_make_room_and_working_ones_stay() {
        let slots = Slots::default();
        let working = slots.take(OTHER).unwrap();
        let _busy = working.begin().unwrap();
        let idle: Vec<Slot> = (1..CONNECTIONS_PER_UID).map(|_| slots.take(OTHER).unwrap()).collect();
        let _one_more = slots.take(OTHER).unwrap();
        assert!(working.evicted().now_or_never().is_none());
        let evicted = idle.iter().filter(|slot| slot.evicted().now_or_never().is_some()).count();
        assert_eq!((evicted, idle[0].begin().is_none()), (1, true), "the oldest idle one is over");
        assert_eq!(lock(&slots.0).open.len(), CONNECTIONS_PER_UID);
    }

    #[test]
    fn root_finds_a_place_while_every_other_is_taken() {
        let slots = Slots::default();
        let others: Vec<Slot> = (0..100).filter_map(|n| slots.take(Some(1000 + n % 5))).collect();
        assert!(!others.is_empty());
        let root: Vec<Slot> = (0..TRUSTED_CONNECTIONS).filter_map(|_| slots.take(Some(0))).collect();
        assert_eq!(root.len(), TRUSTED_CONNECTIONS);
        assert!(lock(&slots.0).open.len() <= usize::try_from(MOST_CONNECTIONS).unwrap());
    }

    #[test]
    fn one_user_has_few_answers_outstanding() {
        let slots = Slots::default();
        let open: Vec<Slot> = (0..ANSWERS_PER_UID + 1).map(|_| slots.take(OTHER).unwrap()).collect();
        let mut busy: Vec<Busy> = open.iter().filter_map(Slot::begin).collect();
        assert_eq!(busy.len(), ANSWERS_PER_UID);
        busy.pop();
        assert!(open[ANSWERS_PER_UID].begin().is_some());
    }
}
