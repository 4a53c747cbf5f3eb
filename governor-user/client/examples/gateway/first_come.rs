//! Admission without the governor, as many gateways have it: whoever comes first gets the least loaded account with an
//! ordinary slot, everyone else is refused at once. It knows its accounts' slots and cool-downs as well as the governor
//! does; what it lacks is any notion of whose request it is, and a place to wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an account rests when it is overloaded or refused without saying for how long.
const DEFAULT_COOL_DOWN: Duration = Duration::from_secs(10);

/// The accounts of the one pool.
#[derive(Debug)]
pub(crate) struct FirstCome {
    /// Slots of each account less its reserve.
    ordinary: u32,
    members: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    name: Arc<str>,
    in_flight: u32,
    cooling_until: Option<Instant>,
}

/// A slot of an account, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: Arc<FirstCome>,
    member: usize,
    name: Arc<str>,
}

impl FirstCome {
    /// `count` accounts named `acct-01` and so on, with `ordinary` slots each.
    pub(crate) fn new(count: u32, ordinary: u32) -> Self {
        let member = |number| Member { name: format!("acct-{number:02}").into(), in_flight: 0, cooling_until: None };
        Self { ordinary, members: Mutex::new((1..=count).map(member).collect()) }
    }

    /// A slot now, or none.
    pub(crate) fn take(self: &Arc<Self>, now: Instant) -> Option<Slot> {
        let (member, name) = self.seat(now)?;
        Some(Slot { pool: Arc::clone(self), member, name })
    }

    /// Counts one more stream on the least loaded account that serves and has an ordinary slot.
    fn seat(&self, now: Instant) -> Option<(usize, Arc<str>)> {
        let mut members = self.members();
        let (index, member) = members
            .iter_mut()
            .enumerate()
            .filter(|(_, member)| member.in_flight < self.ordinary)
            .filter(|(_, member)| member.cooling_until.is_none_or(|until| until <= now))
            .min_by_key(|(_, member)| member.in_flight)?;
        member.in_flight += 1;
        Some((index, Arc::clone(&member.name)))
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The account to use.
    pub(crate) fn member(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The account refused: it gets nothing new until its reset, or for a while.
    pub(crate) fn cool(&self, reset: Option<Duration>, now: Instant) {
        if let Some(member) = self.pool.members().get_mut(self.member) {
            member.cooling_until = Some(now + reset.unwrap_or(DEFAULT_COOL_DOWN));
        }
    }

    /// Exchanges the slot for one of another account, which the caller has made cool first; false when none is free.
    pub(crate) fn move_away(&mut self, now: Instant) -> bool {
        let Some((member, name)) = self.pool.seat(now) else { return false };
        self.give_back();
        (self.member, self.name) = (member, name);
        true
    }

    fn give_back(&self) {
        if let Some(member) = self.pool.members().get_mut(self.member) {
            member.in_flight -= 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_account_is_used_and_nothing_beyond_the_ordinary_slots() {
        let (pool, now) = (Arc::new(FirstCome::new(2, 2)), Instant::now());
        let slots: Vec<_> = std::iter::from_fn(|| pool.take(now)).collect();
        let names: Vec<_> = slots.iter().map(|slot| slot.member().to_string()).collect();
        assert_eq!(names, ["acct-01", "acct-02", "acct-01", "acct-02"]);
        drop(slots);
        assert!(pool.take(now).is_some());
    }

    #[test]
    fn a_refused_request_moves_to_an_account_that_serves() {
        let (pool, now) = (Arc::new(FirstCome::new(2, 1)), Instant::now());
        let mut slot = pool.take(now).unwrap();
        slot.cool(Some(Duration::from_secs(30)), now);
        assert!(slot.move_away(now));
        assert_eq!(&*slot.member(), "acct-02");
        assert!(pool.take(now).is_none(), "acct-01 cools, acct-02 is full");
        assert!(pool.take(now + Duration::from_secs(30)).is_some());
    }

    #[test]
    fn a_request_that_cannot_move_keeps_its_slot_until_it_ends() {
        let (pool, now) = (Arc::new(FirstCome::new(1, 1)), Instant::now());
        let mut slot = pool.take(now).unwrap();
        slot.cool(None, now);
        assert!(!slot.move_away(now));
        drop(slot);
        assert!(pool.take(now).is_none());
        assert!(pool.take(now + DEFAULT_COOL_DOWN).is_some());
    }
}
