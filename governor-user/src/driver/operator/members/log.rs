//! Which members cool, who caused it, and what of that is recorded: each start and end of a cool-down is an event, at most
//! one a member in [`SPACING`]. A proxy that reports on and off fills no log; what it did meanwhile is counted in the next
//! event. Pure.

use governor_engine::id::{MemberId, PoolId};
use governor_engine::snapshot::CoolingCause;
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;

/// Least time between two events of one member.
const SPACING: Duration = Duration::from_secs(10);

/// One member. Pools and members are those of the configuration: they bound the log.
pub(crate) type Id = (PoolId, MemberId);

/// A cool-down that runs: its cause and its end.
pub(crate) type Cooling = (CoolingCause, Instant);

/// A start or an end to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) id: Id,
    /// The cool-down that began; `None`: it ended.
    pub(crate) cooling: Option<Cooling>,
    /// Who caused it.
    pub(crate) by: String,
    /// Why, where there is more to say.
    pub(crate) reason: Option<String>,
    /// Starts and ends since the last event that have none of their own.
    pub(crate) held_back: u32,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    cooling: Option<Cooling>,
    by: String,
    reason: Option<String>,
    /// What the last event said.
    recorded: bool,
    last_event: Option<Instant>,
    held_back: u32,
}

/// All members that cool or did shortly ago.
#[derive(Debug, Default)]
pub(crate) struct MemberLog(BTreeMap<Id, Entry>);

impl MemberLog {
    /// Notes the state of a member after an action of `by`; returns the event to record, if one is due now.
    pub(crate) fn note(
        &mut self,
        id: Id,
        cooling: Option<Cooling>,
        by: &str,
        reason: Option<String>,
        now: Instant,
    ) -> Option<Change> {
        if cooling.is_none() && !self.0.contains_key(&id) {
            return None;
        }
        let entry = self.0.entry(id).or_default();
        let turned = entry.cooling.is_some() != cooling.is_some();
        if turned || entry.cooling.map(|(_, until)| until) < cooling.map(|(_, until)| until) {
            (entry.by, entry.reason) = (by.to_owned(), reason);
        }
        entry.cooling = cooling;
        let change = entry.due(id, now);
        if turned && change.is_none() {
            entry.held_back = entry.held_back.saturating_add(1);
        }
        change
    }

    /// Who caused the cool-down of a member that runs.
    pub(crate) fn cause(&self, id: Id) -> Option<&str> {
        self.0.get(&id).filter(|entry| entry.cooling.is_some()).map(|entry| entry.by.as_str())
    }

    /// The events that were held back and are due at `now`. Forgets members that are up and recorded as such.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Change> {
        let due = self.0.iter_mut().filter_map(|(id, entry)| entry.due(*id, now)).collect();
        self.0.retain(|_, entry| !entry.is_settled(now));
        due
    }

    /// When [`Self::due`] has something to do next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().filter(|entry| entry.is_pending()).map(Entry::next_event).min()
    }
}

impl Entry {
    fn is_pending(&self) -> bool {
        self.cooling.is_some() != self.recorded
    }

    fn next_event(&self) -> Instant {
        self.last_event.map_or(Instant::ZERO, |last| last.after(SPACING))
    }

    fn is_settled(&self, now: Instant) -> bool {
        self.cooling.is_none() && !self.recorded && now >= self.next_event()
    }

    fn due(&mut self, id: Id, now: Instant) -> Option<Change> {
        if !self.is_pending() || now < self.next_event() {
            return None;
        }
        (self.recorded, self.last_event) = (self.cooling.is_some(), Some(now));
        let held_back = std::mem::take(&mut self.held_back);
        // What was held back last is the change itself.
        let held_back = held_back.saturating_sub(1);
        Some(Change { id, cooling: self.cooling, by: self.by.clone(), reason: self.reason.take(), held_back })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = (PoolId(0), MemberId(3));

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn cools(until: u64) -> Option<Cooling> {
        Some((CoolingCause::RateLimited, at(until)))
    }

    #[test]
    fn each_start_and_end_is_an_event_with_who_caused_it() {
        let mut log = MemberLog::default();
        assert_eq!(log.note(ID, None, "session 1", None, at(100)), None, "it was up already");
        let began = log.note(ID, cools(160), "session 1", Some("why".into()), at(100)).unwrap();
        assert_eq!((began.by.as_str(), began.cooling, began.reason.as_deref()), ("session 1", cools(160), Some("why")));
        // A longer one is the same cool-down, by another.
        assert_eq!(log.note(ID, cools(170), "session 2", None, at(101)), None);
        assert_eq!(log.note(ID, cools(170), "session 3", None, at(102)), None);
        assert_eq!(log.cause(ID), Some("session 2"));
        let ended = log.note(ID, None, "governord", None, at(170)).unwrap();
        assert_eq!((ended.by.as_str(), ended.cooling, ended.held_back), ("governord", None, 0));
        assert_eq!((log.cause(ID), log.next()), (None, None));
        assert!(log.due(at(180)).is_empty() && log.0.is_empty(), "it is forgotten");
    }

    #[test]
    fn a_report_on_and_off_a_thousand_times_a_second_is_two_events_in_ten_seconds() {
        let mut log = MemberLog::default();
        let mut events = Vec::new();
        for step in 0..10_001_u64 {
            let now = Instant::ZERO.after(Duration::from_millis(step + 1));
            let cooling = cools(600).filter(|_| step % 2 == 0);
            events.extend(log.note(ID, cooling, "session 1", None, now));
            events.extend(log.due(now));
        }
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(log.next(), None, "it cools as the event says");
        events.extend(log.note(ID, None, "session 1", None, at(12)));
        assert_eq!((events.len(), events[1].cooling), (2, None));
        assert!(events[1].held_back >= 9_998, "{events:?}");
    }

    #[test]
    fn what_is_held_back_is_recorded_as_soon_as_it_may() {
        let mut log = MemberLog::default();
        assert!(log.note(ID, cools(50), "session 1", None, at(1)).is_some());
        assert_eq!(log.note(ID, None, "session 1", None, at(3)), None);
        assert_eq!((log.next(), log.due(at(10)).len()), (Some(at(11)), 0));
        let due = log.due(at(11));
        assert_eq!((due.len(), due[0].cooling, due[0].held_back), (1, None, 0));
    }
}
