//! Decisions kept for `explain`: 24 hours or the last 100,000, whichever is less. In memory; `archive`
//! keeps them over a restart.

use governor_engine::io::Decision;
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// How long a decision can be explained.
const KEEP: Duration = Duration::from_secs(24 * 3600);

/// Decisions kept at most; some 30 MB.
const BOUND: usize = 100_000;

/// One decision with the names it had.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The numbers.
    pub decision: Decision,
    /// Pool name then.
    pub pool: String,
    /// Label of the key then.
    pub label: Option<String>,
    /// Name of the class then.
    pub class: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Journal {
    order: VecDeque<(Instant, u64)>,
    by_id: BTreeMap<u64, Entry>,
}

impl Journal {
    /// Keeps one and forgets what is too old or too much.
    pub fn record(&mut self, entry: Entry) {
        let (at, id) = (entry.decision.at, entry.decision.id.0);
        self.order.push_back((at, id));
        self.by_id.insert(id, entry);
        while let Some((oldest, id)) = self.order.front().copied()
            && (self.order.len() > BOUND || at.since(oldest) > KEEP)
        {
            self.order.pop_front();
            self.by_id.remove(&id);
        }
    }

    /// Those of the last `within` at `now`, the newest first, at most `most`.
    pub fn recent(&self, now: Instant, within: Duration, most: usize) -> impl Iterator<Item = &Entry> {
        let recent = self.order.iter().rev().take_while(move |(at, _)| now.since(*at) <= within).take(most);
        recent.filter_map(|(_, id)| self.by_id.get(id))
    }

    /// One by its id.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<&Entry> {
        self.by_id.get(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::id::{DecisionId, PoolId, SessionId};
    use governor_engine::io::{Numbers, Origin, Outcome, Reason};

    fn entry(id: u64, at: Instant) -> Entry {
        let decision = Decision {
            id: DecisionId(id),
            at,
            session: SessionId(1),
            pool: PoolId(0),
            key: None,
            outcome: Outcome::Shed,
            reason: Reason::FairShare,
            origin: Origin::Key,
            status: 429,
            retry_after: Duration::from_secs(1),
            waited: Duration::ZERO,
            numbers: Numbers::default(),
            ..Decision::default()
        };
        Entry { decision, pool: "chat".to_owned(), label: None, class: None }
    }

    #[test]
    fn a_decision_can_be_explained_for_a_day() {
        let mut journal = Journal::default();
        journal.record(entry(1, Instant::ZERO));
        journal.record(entry(2, Instant::ZERO.after(KEEP)));
        assert!(journal.find(1).is_some());
        journal.record(entry(3, Instant::ZERO.after(KEEP + Duration::from_secs(1))));
        assert!(journal.find(1).is_none() && journal.find(2).is_some());
    }

    #[test]
    fn recent_decisions_are_the_newest_first() {
        let mut journal = Journal::default();
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        (1..=4).for_each(|id| journal.record(entry(id, at(id))));
        let ids = |within, most| -> Vec<u64> {
            journal.recent(at(4), Duration::from_secs(within), most).map(|entry| entry.decision.id.0).collect()
        };
        assert_eq!((ids(1, 9), ids(9, 3)), (vec![4, 3], vec![4, 3, 2]));
    }

    #[test]
    fn memory_is_bounded_whatever_the_rate_of_refusals() {
        let mut journal = Journal::default();
        for id in 0..(BOUND as u64 + 10) {
            journal.record(entry(id, Instant::ZERO));
        }
        assert_eq!((journal.by_id.len(), journal.order.len()), (BOUND, BOUND));
    }
}
