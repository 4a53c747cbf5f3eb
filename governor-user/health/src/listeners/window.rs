//! Sums over the last ten seconds, kept by the second, so that a listener's past takes the same room at any rate. A listener
//! nothing happens to takes none.

use governor_engine::time::{Duration, Instant};
use std::collections::VecDeque;

/// What one observation adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Connections that entered the queue.
    pub(crate) enqueued: u64,
    /// That left it by accept.
    pub(crate) accepted: u64,
    /// Packets refused.
    pub(crate) overflows: u64,
    /// Deepest.
    pub(crate) depth: u32,
    /// For how long something waited; zero if nothing did.
    pub(crate) busy: Duration,
}

/// What the window comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// See [`Moment`].
    pub(crate) enqueued: u64,
    /// See [`Moment`].
    pub(crate) accepted: u64,
    /// See [`Moment`].
    pub(crate) overflows: u64,
    /// See [`Moment`].
    pub(crate) depth: u32,
    /// See [`Moment`].
    pub(crate) busy: Duration,
    /// Of the accepted, those while something waited.
    pub(crate) busy_accepted: u64,
    /// Longest time through which the queue was never seen empty.
    pub(crate) spell: Duration,
}

/// The last seconds of one listener, those in which anything happened.
#[derive(Debug, Default)]
pub(crate) struct Window(VecDeque<(u64, Sums)>);

const SECOND: u64 = 1_000_000_000;

impl Window {
    /// What it looks back on.
    pub(crate) const LENGTH: Duration = Duration::from_secs(10);

    /// Adds what happened until `now`.
    pub(crate) fn add(&mut self, now: Instant, moment: Moment) {
        if moment == Moment::default() {
            self.forget(now);
            return;
        }
        let slot = self.slot(now);
        slot.enqueued += moment.enqueued;
        slot.accepted += moment.accepted;
        slot.overflows += moment.overflows;
        slot.depth = slot.depth.max(moment.depth);
        slot.busy += moment.busy;
        if moment.busy > Duration::ZERO {
            slot.busy_accepted += moment.accepted;
        }
    }

    /// The queue has not been seen empty for so long, or was for so long until `now`.
    pub(crate) fn spell(&mut self, now: Instant, length: Duration) {
        let slot = self.slot(now);
        slot.spell = slot.spell.max(length);
    }

    /// Everything in the window.
    pub(crate) fn sums(&self, now: Instant) -> Sums {
        let mut sums = Sums::default();
        for (_, slot) in self.0.iter().filter(|(second, _)| !is_over(*second, now)) {
            sums.enqueued += slot.enqueued;
            sums.accepted += slot.accepted;
            sums.overflows += slot.overflows;
            sums.depth = sums.depth.max(slot.depth);
            sums.busy += slot.busy;
            sums.busy_accepted += slot.busy_accepted;
            sums.spell = sums.spell.max(slot.spell);
        }
        sums
    }

    /// Packets refused per second, over this second and the one before.
    pub(crate) fn overflow_rate(&self, now: Instant) -> f64 {
        let this = now.0 / SECOND;
        let recent = self.0.iter().filter(|(second, _)| *second + 1 >= this);
        let refused: u64 = recent.map(|(_, slot)| slot.overflows).sum();
        let time = Duration::from_nanos(now.0 - this.saturating_sub(1) * SECOND).as_secs_f64();
        f64::from(u32::try_from(refused).unwrap_or(u32::MAX)) / time.max(1.0)
    }

    fn slot(&mut self, now: Instant) -> &mut Sums {
        self.forget(now);
        let second = now.0 / SECOND;
        if self.0.back().is_none_or(|(last, _)| *last != second) {
            self.0.push_back((second, Sums::default()));
        }
        self.0.back_mut().map(|(_, sums)| sums).expect("one was added if there was none")
    }

    fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(second, _)| is_over(*second, now)) {
            self.0.pop_front();
        }
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
    }
}

fn is_over(second: u64, now: Instant) -> bool {
    second + Window::LENGTH.as_secs() <= now.0 / SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn refusals_of_the_last_seconds_have_a_rate() {
        let mut window = Window::default();
        window.add(at(5_900), Moment { overflows: 30, ..Moment::default() });
        let rate = |ms| window.overflow_rate(at(ms));
        assert_eq!((rate(5_900), rate(6_500), rate(6_999), rate(7_000)), (30.0 / 1.9, 20.0, 30.0 / 1.999, 0.0));
    }

    #[test]
    fn a_window_forgets_after_ten_seconds_and_then_takes_no_room() {
        let mut window = Window::default();
        let busy = Duration::from_millis(100);
        window.add(at(500), Moment { accepted: 7, depth: 3, busy, ..Moment::default() });
        window.add(at(900), Moment { accepted: 2, ..Moment::default() });
        window.spell(at(900), Duration::from_millis(400));
        let sums = window.sums(at(9_999));
        assert_eq!((sums.accepted, sums.busy_accepted, sums.depth), (9, 7, 3));
        assert_eq!((sums.busy, sums.spell), (busy, Duration::from_millis(400)));
        assert_eq!(window.sums(at(10_000)), Sums::default());
        window.add(at(10_000), Moment::default());
        assert_eq!(window.0.capacity(), 0);
    }
}
