//! Waiting: who may.

use governor_engine::io::{Level, Origin, Output, Reason};
use governor_engine::policy::Mode;
use governor_engine::time::{Duration, Instant};

use super::{Model, Parked, Task, index, retry};

impl Model {
    /// A key's newest request goes first.
    pub(super) fn newest_first(&self) -> bool {
        self.level == Level::Overloaded && self.node.shed_mode == Mode::Enforce
    }

    /// The client will be gone before it is served, even if it went now.
    pub(super) fn deadline_is_hopeless(&self, w: &Parked) -> bool {
        self.misses_deadline(w, Duration::ZERO)
    }

    fn misses_deadline(&self, w: &Parked, wait: Duration) -> bool {
        let typical = self.pools[index(w.pool.0)].typical;
        let service = typical.unwrap_or(Duration::ZERO);
        w.deadline.is_some_and(|deadline| self.now.after(wait).after(service) > deadline)
    }

    /// Until the slot of the request that would wait: those of its key that are served before it, and itself, one slot
    /// after another.
    fn expected_wait(&self, w: &Parked) -> Duration {
        let before = self.parked.iter().filter(|p| p.pool == w.pool && p.who.key == w.who.key).count();
        let first = w.who.key.is_none() || self.newest_first() || matches!(w.task, Task::Move(_));
        let before = if first { 0 } else { before };
        let gap = retry::interval(&self.pools[index(w.pool.0)].ends, self.now).unwrap_or(Duration::ZERO);
        gap * u32::try_from(before + 1).unwrap()
    }

    /// Why it may not wait, and the origin if it differs from the reason's own.
    pub(super) fn may_not_wait(
        &self,
        w: &Parked,
        why: Reason,
        back: Option<Instant>,
    ) -> Option<(Reason, Option<Origin>)> {
        let pool = &self.pools[index(w.pool.0)];
        if w.child || w.until <= self.now || back.is_some_and(|at| at > w.until) {
            return Some((why, None));
        }
        if self.misses_deadline(w, self.expected_wait(w)) {
            return Some((why, None));
        }
        if matches!(w.task, Task::Move(_)) {
            return None;
        }
        let here = self.parked.iter().filter(|p| p.pool == w.pool);
        let of_key = here.clone().filter(|p| p.who.key == w.who.key).count();
        let room: u32 = pool.members.iter().filter(|m| Self::usable(m)).map(Self::ordinary_slots).sum();
        if w.who.key.is_some() && of_key >= index(pool.policy.max_parked_per_key) {
            return Some((Reason::KeyQueueFull, None));
        }
        if here.count() >= index(room.max(pool.policy.max_parked_per_key)) {
            return Some((Reason::QueueFull, Some(Origin::Pool)));
        }
        if self.parked.len() >= index(self.node.max_parked) {
            return Some((Reason::QueueFull, Some(Origin::Node)));
        }
        None
    }

    pub(super) fn park(&mut self, mut w: Parked) {
        w.order = self.next_park;
        self.next_park += 1;
        self.out.push(Output::Parked { session: w.session, request: w.request });
        self.parked.push(w);
    }
}
