//! One member: its slots, what runs on it, and its cool-downs. Knows nothing of other members; which one stays
//! selectable when all of them fail is the pool's business.
//!
//! ```text
//!          RateLimited (until its reset)            Up, or the longer of the two ends
//!   up ───────────────────────────────────▶ cooling ─────────────────────────────────▶ up
//!          Overloaded (short, fixed)
//! ```
//!
//! Reports only extend a cool-down. Nothing a running stream does ends one.

use crate::policy::{MemberPolicy, PoolPolicy};
use crate::snapshot::MemberState;
use crate::time::Instant;

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
}

impl Member {
    pub(crate) fn new(policy: MemberPolicy) -> Self {
        Self { policy, present: true, in_flight: 0, open: false, rate_limited: None, overloaded: None }
    }

    /// Slots for ordinary requests: `max(1, slots − reserve)`, so that a reserve as large as the member leaves it one
    /// slot (A2); none at all for a member of 0 slots.
    pub(crate) fn ordinary_slots(&self) -> u32 {
        if self.policy.slots == 0 { 0 } else { self.policy.slots.saturating_sub(self.policy.reserve).max(1) }
    }

    /// Could take requests if it were not cooling.
    pub(crate) fn usable(&self) -> bool {
        self.present && !self.policy.draining && self.policy.slots > 0
    }

    /// 429: out until the reset it named, else for the pool's default. A reset already past says nothing.
    pub(crate) fn rate_limit(&mut self, reset: Option<Instant>, now: Instant, pool: &PoolPolicy) {
        let until = reset.filter(|at| *at > now).unwrap_or_else(|| now.after(pool.rate_limited_cooldown));
        self.rate_limited = self.rate_limited.max(Some(until));
    }

    /// 529 or a transport error: out for a short fixed time, however often it happens.
    pub(crate) fn overload(&mut self, now: Instant, pool: &PoolPolicy) {
        self.overloaded = self.overloaded.max(Some(now.after(pool.overloaded_cooldown)));
    }

    /// Well again.
    pub(crate) fn recover(&mut self) {
        (self.rate_limited, self.overloaded) = (None, None);
    }

    /// Forgets cool-downs that are over.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.rate_limited = self.rate_limited.filter(|until| *until > now);
        self.overloaded = self.overloaded.filter(|until| *until > now);
    }

    /// When it is selectable again by itself; `None` if it is not cooling.
    pub(crate) fn cooling_until(&self) -> Option<Instant> {
        self.rate_limited.max(self.overloaded)
    }

    /// End of the cool-down by 429, if there is one.
    pub(crate) fn rate_limited_until(&self) -> Option<Instant> {
        self.rate_limited
    }

    /// End of a cool-down that is not by 429.
    pub(crate) fn overloaded_until(&self) -> Option<Instant> {
        if self.rate_limited.is_some() { None } else { self.overloaded }
    }

    /// The next moment its cool-downs change by time alone.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        [self.rate_limited, self.overloaded].into_iter().flatten().min()
    }

    /// For display. A cooling member that stays selectable is `Up`: it takes requests.
    pub(crate) fn state(&self) -> MemberState {
        match self.cooling_until() {
            _ if self.policy.draining || !self.present => MemberState::Draining,
            _ if self.policy.slots == 0 => MemberState::Off,
            Some(until) if !self.open => MemberState::Cooling { until },
            Some(_) | None => MemberState::Up,
        }
    }
}
