//! Whether the upstream of a pool is down: nearly all of its members fail. Pure; time is an argument.
//!
//! ```text
//!        nearly all usable members fail            enough work, and more requests ended well than failed
//!   up ─────────────────────────────────▶ down ──────────────────────────────────────────────────────────▶ up
//! ```
//!
//! A cool-down ends by time alone, also in front of an upstream that is dead: that no member cools is no recovery.

use crate::pools::spell::SETTLED;
use governor_engine::snapshot::PoolFigures;
use governor_engine::time::{Duration, Instant};

/// Failures in the last 10 s that show that the only member of a pool does not fail by chance.
const LEAST_FAILURES: u64 = 2;
/// After this time without failing members the upstream counts as up though no request has ended.
const FORGET: Duration = Duration::from_secs(60);

/// What is remembered of one pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upstream {
    /// Since when nearly all members fail.
    since: Option<Instant>,
    /// Since when enough of them do not, with the figures of that moment.
    better: Option<(Instant, PoolFigures)>,
}

impl Upstream {
    /// Takes in the figures at `now`; `failures` are the reports of failing members in the last 10 s.
    pub(crate) fn absorb(&mut self, load: &PoolFigures, failures: u64, now: Instant) {
        if fails(load) && (load.capacity == 0 || load.usable > 1 || failures >= LEAST_FAILURES) {
            self.since.get_or_insert(now);
            self.better = None;
            return;
        }
        let Some(since) = self.since else { return };
        let (at, then) = *self.better.get_or_insert((now, *load));
        let well = load.ended.saturating_sub(then.ended) + load.recoveries.saturating_sub(then.recoveries);
        let recovered = well > load.failures.saturating_sub(then.failures) && now.since(at) >= SETTLED;
        let was_short = at.since(since) < SETTLED;
        if recovered || was_short || now.since(at) >= FORGET || load.usable == 0 {
            *self = Self::default();
        }
    }

    /// Seconds since nearly all members fail; 0 while the upstream is up.
    pub(crate) fn seconds(&self, now: Instant) -> f64 {
        self.since.map_or(0.0, |since| now.since(since).as_secs_f64())
    }
}

/// All usable members fail, or nine tenths of them: a few that work cannot carry what the others did.
fn fails(load: &PoolFigures) -> bool {
    load.usable > 0 && u64::from(load.failing) * 10 >= u64::from(load.usable) * 9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn members(usable: u32, failing: u32) -> PoolFigures {
        PoolFigures { capacity: 1, members: usable, usable, failing, cooling: failing, ..PoolFigures::default() }
    }

    fn down(upstream: &mut Upstream, load: PoolFigures, second: u64) -> f64 {
        upstream.absorb(&load, 0, at(second));
        upstream.seconds(at(second))
    }

    #[test]
    fn an_upstream_is_down_while_nearly_all_members_fail() {
        for (usable, failing, expected) in [(14, 13, 3.0), (14, 12, 0.0), (2, 2, 3.0), (2, 1, 0.0), (0, 0, 0.0)] {
            let mut upstream = Upstream::default();
            down(&mut upstream, members(usable, failing), 0);
            assert_eq!(down(&mut upstream, members(usable, failing), 3), expected, "{failing} of {usable}");
        }
    }

    #[test]
    fn one_failure_of_an_only_member_is_not_down() {
        let load = members(1, 1);
        let mut upstream = Upstream::default();
        assert_eq!(down(&mut upstream, load, 0), 0.0);
        upstream.absorb(&load, 2, at(1));
        upstream.absorb(&load, 2, at(4));
        assert_eq!(upstream.seconds(at(4)), 3.0);
        let mut limited = Upstream::default();
        down(&mut limited, PoolFigures { capacity: 0, ..load }, 0);
        assert_eq!(
            down(&mut limited, PoolFigures { capacity: 0, ..load }, 4),
            4.0,
            "after 429 no member is kept in use"
        );
    }

    #[test]
    fn the_end_of_a_cool_down_is_no_recovery() {
        let mut upstream = Upstream::default();
        down(&mut upstream, members(14, 14), 0);
        down(&mut upstream, members(14, 14), 10);
        assert_eq!(down(&mut upstream, members(14, 0), 11), 11.0);
        // A request that failed ends too.
        let failed = PoolFigures { ended: 3, failures: 3, ..members(14, 3) };
        assert_eq!(down(&mut upstream, failed, 20), 20.0);
        let ended = PoolFigures { ended: 5, failures: 3, ..members(14, 3) };
        assert_eq!(down(&mut upstream, ended, 21), 0.0);
    }

    #[test]
    fn an_upstream_without_requests_is_up_after_a_minute() {
        let mut upstream = Upstream::default();
        down(&mut upstream, members(2, 2), 0);
        down(&mut upstream, members(2, 2), 10);
        assert_eq!(down(&mut upstream, members(2, 0), 11), 11.0);
        assert_eq!(down(&mut upstream, members(2, 0), 71), 0.0);
    }

    #[test]
    fn a_failure_of_a_moment_is_forgotten_at_once() {
        let mut upstream = Upstream::default();
        down(&mut upstream, members(2, 2), 0);
        assert_eq!(down(&mut upstream, members(2, 1), 1), 0.0);
    }
}
