//! Waiting: who may.

use super::Model;
use super::Parked;
use super::Task;
use super::index;
use super::retry;
use governor_engine::io::{Kind, Level, Origin, Output, Reason};
use governor_engine::policy::Mode;
use governor_engine::time::{Duration, Instant};

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

    /// Waiting requests that count against a bound of these: (the bound, how many there are).
    pub(super) fn waiting(&self, w: &Parked, bound: Reason, by: Origin) -> (u32, u32) {
        let pool = &self.pools[index(w.pool.0)];
        let here = self.parked.iter().filter(|p| p.pool == w.pool);
        let (most, there) = match (bound, by) {
            (Reason::KeyQueueFull, _) => {
                (pool.policy.max_parked_per_key, here.filter(|p| p.who.key == w.who.key).count())
            }
            (_, Origin::Node) => (self.node.max_parked, self.parked.len()),
            _ => {
                let room: u32 = pool.members.iter().filter(|m| Self::usable(m)).map(Self::ordinary_slots).sum();
                let room = pool.policy.max_waiting.unwrap_or_else(|| room.max(pool.policy.max_parked_per_key));
                (room, here.count())
            }
        };
        // Requests that name no key never take the last quarter; what re-attaches is part of a running session.
        let kept = if w.who.named().is_none() && w.kind == Kind::Ordinary && bound == Reason::QueueFull {
            most.div_ceil(4)
        } else {
            0
        };
        (most - kept, u32::try_from(there).unwrap())
    }

    /// Why it may not wait, and the origin if it differs from the reason's own.
    pub(super) fn may_not_wait(
        &self,
        w: &Parked,
        why: Reason,
        back: Option<Instant>,
    ) -> Option<(Reason, Option<Origin>)> {
        if w.child || w.until <= self.now || back.is_some_and(|at| at > w.until) {
            return Some((why, None));
        }
        if self.misses_deadline(w, self.expected_wait(w)) {
            return Some((why, None));
        }
        if matches!(w.task, Task::Move(_)) {
            return None;
        }
        let full = |bound, by| {
            let (most, there) = self.waiting(w, bound, by);
            there >= most
        };
        if w.who.key.is_some() && full(Reason::KeyQueueFull, Origin::Key) {
            return Some((Reason::KeyQueueFull, None));
        }
        let by = [Origin::Pool, Origin::Node].into_iter().find(|by| full(Reason::QueueFull, *by));
        by.map(|by| (Reason::QueueFull, Some(by)))
    }

    pub(super) fn park(&mut self, mut w: Parked) {
        w.order = self.next_park;
        self.next_park += 1;
        self.out.push(Output::Parked { context: self.context_asking(&w), request: w.request });
        self.parked.push(w);
    }
}
