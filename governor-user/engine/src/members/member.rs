//! One member: its slots, what runs on it, and its cool-downs. Knows nothing of other members; which one stays
//! selectable when all of them fail is the pool's business.
//!
//! ```text
//!          RateLimited (until its reset)            Up, or the longest of the three ends
//!   up ───────────────────────────────────▶ cooling ─────────────────────────────────▶ up
//!          Overloaded (short, fixed)
//!          an operator's order
//! ```
//!
//! Reports only extend a cool-down, to `max_cooldown` from the report at most. Nothing a running stream does ends one. A
//! report `Up` ends what reports began; only an operator ends what an operator ordered.

use crate::io::{CoolingCause, MemberOrder, MemberState};
use crate::policy::{MemberPolicy, PoolPolicy};
use crate::time::{Duration, Instant};

/// One member of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) policy: MemberPolicy,
    /// In the policy now. One that left keeps its index and its running leases.
    pub(crate) present: bool,
    /// Leases on it, of every kind.
    pub(crate) in_flight: u32,
    /// Takes requests, and counts in C and T. Kept by `Pool::refresh`.
    pub(crate) open: bool,
    rate_limited: Option<Instant>,
    overloaded: Option<Instant>,
    /// End of the cool-down that an operator ordered.
    ordered: Option<Instant>,
    /// Drained by an operator at run time, whatever its policy says.
    drained: bool,
    /// As it was announced last; `None` before the first time.
    announced: Option<Shown>,
}

/// What is announced of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) state: MemberState,
    pub(crate) cooling: Option<(CoolingCause, Instant)>,
}

impl Member {
    pub(crate) fn new(policy: MemberPolicy) -> Self {
        Self {
            policy,
            present: true,
            in_flight: 0,
            open: false,
            rate_limited: None,
            overloaded: None,
            ordered: None,
            drained: false,
            announced: None,
        }
    }

    /// Slots for ordinary requests: `max(1, slots − reserve)`, so that a reserve as large as the member leaves it one
    /// slot (A2); none at all for a member of 0 slots.
    pub(crate) fn ordinary_slots(&self) -> u32 {
        if self.policy.slots == 0 { 0 } else { self.policy.slots.saturating_sub(self.policy.reserve).max(1) }
    }

    /// Could take requests if it were not cooling.
    pub(crate) fn usable(&self) -> bool {
        self.present && !self.draining() && self.policy.slots > 0
    }

    fn draining(&self) -> bool {
        self.policy.draining || self.drained
    }

    /// 429: out until the reset it named, else for the pool's default. A reset already past says nothing.
    /// The time to the reset, if the pool's longest cool-down cut it.
    pub(crate) fn rate_limit(&mut self, reset: Option<Instant>, now: Instant, pool: &PoolPolicy) -> Option<Duration> {
        let until = reset.filter(|at| *at > now).unwrap_or_else(|| now.after(pool.rate_limited_cooldown));
        self.rate_limited = self.rate_limited.max(Some(until.min(now.after(pool.max_cooldown))));
        reset.map(|at| at.since(now)).filter(|asked| *asked > pool.max_cooldown)
    }

    /// 529 or a transport error: out for a short fixed time, however often it happens.
    pub(crate) fn overload(&mut self, now: Instant, pool: &PoolPolicy) {
        self.overloaded = self.overloaded.max(Some(now.after(pool.overloaded_cooldown.min(pool.max_cooldown))));
    }

    /// A lower bound holds for the cool-downs that run, too; an operator's order is not bounded.
    pub(crate) fn bound(&mut self, now: Instant, pool: &PoolPolicy) {
        let last = now.after(pool.max_cooldown);
        self.rate_limited = self.rate_limited.map(|until| until.min(last));
        self.overloaded = self.overloaded.map(|until| until.min(last));
    }

    /// An operator's order. It replaces what an operator ordered before.
    pub(crate) fn order(&mut self, order: MemberOrder) {
        match order {
            MemberOrder::Up => (self.rate_limited, self.overloaded, self.ordered) = (None, None, None),
            MemberOrder::Cool { until } => self.ordered = Some(until),
            MemberOrder::Drain { on } => self.drained = on,
        }
    }

    /// Well again.
    pub(crate) fn recover(&mut self) {
        (self.rate_limited, self.overloaded) = (None, None);
    }

    /// Forgets cool-downs that are over.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.rate_limited = self.rate_limited.filter(|until| *until > now);
        self.overloaded = self.overloaded.filter(|until| *until > now);
        self.ordered = self.ordered.filter(|until| *until > now);
    }

    /// When it is selectable again by itself; `None` if it is not cooling.
    pub(crate) fn cooling_until(&self) -> Option<Instant> {
        self.rate_limited.max(self.overloaded).max(self.ordered)
    }

    /// What keeps it cooling the longest; `None` if it is not cooling.
    pub(crate) fn cooling_cause(&self) -> Option<CoolingCause> {
        let causes = [
            (self.rate_limited, CoolingCause::RateLimited),
            (self.overloaded, CoolingCause::Overloaded),
            (self.ordered, CoolingCause::Operator),
        ];
        causes.into_iter().filter_map(|(until, cause)| Some((until?, cause))).max().map(|(_, cause)| cause)
    }

    /// Drained at run time by an operator.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }

    /// End of a cool-down during which it takes nothing, by 429 or by order, if there is one.
    pub(crate) fn refusing_until(&self) -> Option<Instant> {
        self.rate_limited.max(self.ordered)
    }

    /// End of a cool-down that is not of that kind.
    pub(crate) fn overloaded_until(&self) -> Option<Instant> {
        if self.refusing_until().is_some() { None } else { self.overloaded }
    }

    /// The next moment its cool-downs change by time alone.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        [self.rate_limited, self.overloaded, self.ordered].into_iter().flatten().min()
    }

    /// What is to be announced of it, if that changed since the last time.
    pub(crate) fn changed(&mut self) -> Option<Shown> {
        let shown = Shown { state: self.state(), cooling: self.cooling_cause().zip(self.cooling_until()) };
        (self.announced.replace(shown) != Some(shown)).then_some(shown)
    }

    /// For display. A cooling member that stays selectable is `Up`: it takes requests.
    pub(crate) fn state(&self) -> MemberState {
        match self.cooling_until() {
            _ if self.draining() || !self.present => MemberState::Draining,
            _ if self.policy.slots == 0 => MemberState::Off,
            Some(until) if !self.open => MemberState::Cooling { until },
            Some(_) | None => MemberState::Up,
        }
    }
}
