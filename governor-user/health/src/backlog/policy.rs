//! What to do about the backlog of one listener: raise, lower, put back, or leave it to its owner. Pure: samples and
//! time come in, orders go out, and their results come back afterwards. Touches no socket.
//!
//! ```text
//!            raise, lower
//!              ┌──────┐          the value first seen             twice by one process
//!              ▼      │      ┌──────────────────────▶ reverted ──────────────────┐
//!   owner's ─▶ free ──┴──────┤                            │ put back             ▼
//!              ▲             └── any other value ─────────┼──────────────▶ stood down
//!              └──────────────────────────────────────────┘                      │
//!              └─────────────────────────── tune resume ─────────────────────────┘
//! ```

use super::ListenerPolicy;
use super::burst::{Burst, Meter, Sample};
use super::plan::{Bounds, Hindrance, Limit, Plan};
use governor_engine::time::{Duration, Instant};
use governor_observation::wording::counted;

/// Fewer accepts than this give no rate.
const MEASURED: u64 = 5;

/// A burst that fills more percent of the queue than this asks for a longer one although nothing was refused.
const FULL_PERCENT: u64 = 80;

/// Orders for one listener are at least so far apart.
const PAUSE: Duration = Duration::from_secs(1);

/// A value that a foreign `listen()` brought back is left alone for so long, so that a reload can end.
const REAPPLY_AFTER: Duration = Duration::from_secs(1);

/// Within so long the processes that hold a listener are looked for anew; no other is younger then.
const SETTLED: Duration = Duration::from_secs(15);

/// Each raise after a lowering doubles the quiet time that leads to the next one, so often at most.
const DOUBLINGS: u32 = 6;

/// Wait after an order that failed, doubled each time up to the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Give it this longer backlog; the plan says more.
    Raise(u32),
    /// Its namespace allows no more than it has; the plan says what would help.
    Clamped,
    /// Give it back what its owner asked for.
    Lower(u32),
    /// The table shows another backlog than was set: ask the kernel, then call [`Track::verified`].
    Verify,
    /// A reload undid a raise: make it again.
    Reapply(u32),
    /// One process undid it twice: leave it alone.
    StandDown,
}

/// Whose listener it is just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It may be tuned.
    Free,
    /// Another process called `listen()` with the value first seen, as a reload does.
    Reverted(Instant),
    /// An operator has set it; it is left alone until it is resumed.
    StoodDown,
}

/// Who called `listen()` in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// No other process did: the table was older than the tuner's own call.
    Unchanged,
    /// The application, with the value first seen.
    Reload,
    /// An operator, with a new one.
    Operator,
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Track {
    meter: Meter,
    /// What its owner asked for.
    pub original: u32,
    /// What the kernel holds, as last known.
    pub held: u32,
    /// What it was raised to.
    pub set: Option<u32>,
    /// Whose it is.
    pub stance: Stance,
    /// See [`Plan`].
    pub plan: Plan,
    /// The start of the process for which a raise was made again.
    reapplied_for: Option<u64>,
    /// More than the original was needed then.
    pressed: Instant,
    lowered: u32,
    not_before: Instant,
    failures: u32,
}

impl Track {
    /// A listener that was not tuned before.
    pub fn new(backlog: u32, now: Instant) -> Self {
        Self {
            meter: Meter::default(),
            original: backlog,
            held: backlog,
            set: None,
            stance: Stance::Free,
            plan: Plan::default(),
            reapplied_for: None,
            pressed: now,
            lowered: 0,
            not_before: Instant::ZERO,
            failures: 0,
        }
    }

    /// One that the previous run of the daemon raised to `set`, or left to an operator.
    pub fn resumed(original: u32, set: Option<u32>, stood_down: bool, backlog: u32, now: Instant) -> Self {
        let stance = if stood_down { Stance::StoodDown } else { Stance::Free };
        // After a stand-down the kernel's value holds; a raised value is compared with it.
        let held = set.filter(|_| !stood_down).unwrap_or(backlog);
        Self { original, held, set, stance, ..Self::new(backlog, now) }
    }

    /// Takes a sample in and says what is to be done. `hindrance` says what speaks against a longer queue, and
    /// `youngest` when the youngest process that holds the listener started; each is asked only when it matters.
    pub fn step(
        &mut self,
        sample: Sample,
        hindrance: impl FnOnce() -> Option<Hindrance>,
        policy: &ListenerPolicy,
        bounds: &Bounds,
        youngest: impl FnOnce() -> Option<u64>,
    ) -> Option<Order> {
        let burst = self.meter.take(sample, policy.max_wait);
        if sample.backlog != self.held {
            match self.stance {
                // It is the operator's: what the kernel holds is all there is to know.
                Stance::StoodDown => self.held = sample.backlog,
                Stance::Free if self.set.is_none() => {
                    // Its owner called listen() again, before anything was done.
                    (self.original, self.held) = (sample.backlog, sample.backlog);
                }
                // The value of an operator may follow that of a reload.
                Stance::Free | Stance::Reverted(_) => {
                    return (self.failures == 0 || sample.at >= self.not_before).then_some(Order::Verify);
                }
            }
        }
        match self.stance {
            Stance::StoodDown => None,
            Stance::Reverted(since) => self.put_back(since, sample.at, youngest),
            Stance::Free => {
                let order = match burst {
                    Some(burst) => self.judge(burst, hindrance, policy, bounds, sample.at),
                    None => {
                        self.watch(policy, sample);
                        None
                    }
                };
                order.filter(|_| sample.at >= self.not_before).or_else(|| self.lower(policy, sample.at))
            }
        }
    }

    /// An order was carried out and the kernel holds this backlog now. `youngest` as for [`Self::step`].
    pub fn done(&mut self, order: &Order, after: u32, now: Instant, youngest: Option<u64>) {
        (self.held, self.failures, self.not_before) = (after, 0, now.after(PAUSE));
        self.set = Some(after).filter(|set| *set != self.original);
        match order {
            Order::Raise(_) => self.pressed = now,
            Order::Lower(_) => self.lowered = self.lowered.saturating_add(1),
            Order::Reapply(_) => (self.stance, self.reapplied_for, self.pressed) = (Stance::Free, youngest, now),
            Order::Clamped | Order::Verify | Order::StandDown => {}
        }
    }

    /// An order could not be carried out; whether that has gone on for some time.
    pub fn failed(&mut self, now: Instant) -> bool {
        let (shortest, longest) = RETRY;
        let wait = shortest.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.after(wait);
        self.failures > 3
    }

    /// The kernel was asked and holds this backlog; whose doing that is.
    pub fn verified(&mut self, backlog: u32, now: Instant) -> Foreign {
        if backlog == self.held {
            return Foreign::Unchanged;
        }
        self.held = backlog;
        if backlog == self.original {
            self.stance = Stance::Reverted(now);
            Foreign::Reload
        } else {
            self.stance = Stance::StoodDown;
            Foreign::Operator
        }
    }

    /// Whether it may be given this backlog too, as one of a group of which another member needs it.
    pub fn follows(&self, to: u32, bounds: &Bounds) -> Option<u32> {
        let to = to.min(self.original.saturating_add(bounds.room));
        (self.stance == Stance::Free && to > self.held).then_some(to)
    }

    /// Samples that show nothing new ask for nothing: it is as its owner left it, and its queue is empty and idle.
    pub fn is_idle(&self) -> bool {
        self.stance == Stance::Free && self.set.is_none() && self.meter.is_idle()
    }

    /// An idle listener was seen unchanged until then.
    pub fn idled(&mut self, until: Instant, policy: &ListenerPolicy) {
        self.meter.idled(until, policy.max_wait);
    }

    /// It was not sampled for a while: what came meanwhile is no burst of the next sample.
    pub fn skipped(&mut self) {
        self.meter = Meter::default();
    }

    /// Begins anew with what the kernel holds; an operator says so.
    pub fn resume(&mut self, now: Instant) {
        *self = Self { meter: std::mem::take(&mut self.meter), ..Self::new(self.held, now) };
    }

    /// An operator restored its original backlog: it is left alone until an operator resumes it.
    pub fn restored(&mut self, backlog: u32) {
        (self.held, self.set, self.stance, self.plan) = (backlog, None, Stance::StoodDown, Plan::default());
    }

    /// Connections that a raise added to the backlog its owner asked for, or will add again after a reload; 0 for a
    /// backlog that an operator set.
    pub fn added(&self) -> u32 {
        match self.stance {
            Stance::Free | Stance::Reverted(_) => self.set.map_or(0, |set| set.saturating_sub(self.original)),
            Stance::StoodDown => 0,
        }
    }

    fn put_back(&mut self, since: Instant, now: Instant, youngest: impl FnOnce() -> Option<u64>) -> Option<Order> {
        if now.since(since) < REAPPLY_AFTER || now < self.not_before {
            return None;
        }
        let started = youngest()?;
        if self.reapplied_for != Some(started) {
            return self.set.map(Order::Reapply);
        }
        if now.since(since) < SETTLED {
            return None;
        }
        self.stance = Stance::StoodDown;
        Some(Order::StandDown)
    }

    /// What a burst asks for, and what it gets.
    fn judge(
        &mut self,
        burst: Burst,
        hindrance: impl FnOnce() -> Option<Hindrance>,
        policy: &ListenerPolicy,
        bounds: &Bounds,
        now: Instant,
    ) -> Option<Order> {
        if fills(burst.peak, self.original) || burst.overflows > 0 {
            self.pressed = now;
        }
        if burst.overflows == 0 && !fills(burst.peak, self.held) {
            return None;
        }
        let seen = describe(&burst);
        let stands = (burst.lasted > policy.max_wait || self.meter.stands()).then_some(Hindrance::StandingQueue);
        if let Some(hindrance) = hindrance().or(stands) {
            self.plan = Plan { reason: format!("{}; {seen}", hindrance.as_str()), ..Plan::default() };
            return None;
        }
        if burst.accepted < MEASURED {
            self.plan = Plan { reason: format!("too few accepts tell no rate; {seen}"), ..Plan::default() };
            return None;
        }
        let met = u64::from(burst.peak) + burst.overflows;
        let wanted = policy.target.max(u32::try_from(met + met / 4).unwrap_or(u32::MAX));
        let somaxconn = bounds.somaxconn.filter(|_| !bounds.raise_somaxconn).unwrap_or(u32::MAX);
        let limits = [
            (policy.max, Limit::Max),
            (self.original.saturating_add(bounds.room), Limit::Memory),
            (somaxconn, Limit::Somaxconn),
            (burst.drained_within(policy.max_wait), Limit::Rate),
        ];
        let (least, limit) = limits.into_iter().min_by_key(|(most, _)| *most)?;
        let (to, limit) = if least < wanted { (least, Some(limit)) } else { (wanted, None) };
        // A step worth a system call, so that a rate that wavers moves nothing.
        let worth = to > self.held && to - self.held > self.held / 8;
        self.plan = Plan { to: Some(to).filter(|_| worth), wanted: Some(wanted), limit, reason: seen };
        if worth {
            Some(Order::Raise(to))
        } else {
            (limit == Some(Limit::Somaxconn) && self.held >= to).then_some(Order::Clamped)
        }
    }

    /// Looks at a queue that has not drained yet.
    fn watch(&mut self, policy: &ListenerPolicy, sample: Sample) {
        if fills(sample.depth, self.original) {
            self.pressed = sample.at;
        }
        let Some(burst) = self.meter.under_way().filter(|burst| burst.lasted > policy.max_wait) else { return };
        let why = if burst.accepted == 0 { Hindrance::AcceptorStalled } else { Hindrance::StandingQueue };
        self.plan = Plan { reason: format!("{}; {}", why.as_str(), describe(&burst)), ..Plan::default() };
    }

    fn lower(&self, policy: &ListenerPolicy, now: Instant) -> Option<Order> {
        let quiet = policy.quiet.saturating_mul(1 << self.lowered.min(DOUBLINGS));
        let due = self.set.is_some() && now >= self.not_before && now.since(self.pressed) >= quiet;
        due.then_some(Order::Lower(self.original))
    }
}

/// Whether so many connections fill a queue of this backlog, which holds one more.
fn fills(depth: u32, backlog: u32) -> bool {
    u64::from(depth) * 100 > (u64::from(backlog) + 1) * FULL_PERCENT
}

fn describe(burst: &Burst) -> String {
    let Burst { lasted, peak, accepted, overflows } = burst;
    let refused = match counted(*overflows, "attempt was refused", "attempts were refused") {
        _ if *overflows == 0 => String::new(),
        refused => format!(", {refused}"),
    };
    let accepted = counted(*accepted, "was accepted", "were accepted");
    format!("{peak} waited{refused}, {accepted} in {} ms ({}/s)", lasted.as_millis(), burst.rate())
}

#[cfg(test)]
mod tests;
