//! Histories at random, watched: what the engine was asked, what it answered and what it shows after each step.

use crate::history::STEPS_PER_HISTORY;
use crate::history::facts::Facts;
use governor_engine::Engine;
use governor_engine::id::{PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, Output, Work};
use governor_engine::policy::{Headroom, Policy};
use governor_engine::snapshot::{LeaseView, MemberState, MemberView, PoolView};
use governor_engine::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

const HISTORIES: u64 = 40;

pub(crate) struct Watch {
    pub(crate) engine: Engine,
    /// The last policy that was taken.
    pub(crate) policy: Policy,
    /// Acquired and not answered yet.
    pub(crate) waiting: BTreeMap<(SessionId, RequestId), Acquire>,
    /// Answered in the step, with what was asked.
    pub(crate) answered: Vec<(Acquire, Output)>,
    pub(crate) bypass: bool,
    /// Leases before the step.
    pub(crate) before: Vec<LeaseView>,
    /// Sessions whose connection was broken before the step.
    pub(crate) lost: BTreeSet<SessionId>,
    losing: BTreeSet<SessionId>,
    /// The time of the step.
    pub(crate) now: Instant,
}

/// Runs `check` after every step of every history with the fact and the answers; what it says is wrong fails the test.
pub(crate) fn after_every_step(check: impl Fn(&Watch, Option<&Input>, &[Output]) -> Result<(), String>) {
    let first = crate::number("SIM_SEED", 1);
    for seed in (0..HISTORIES).map(|history| first.wrapping_add(history)) {
        let mut facts = Facts::new(seed);
        let policy = facts.policy();
        let engine = Engine::new(policy.clone(), 3).expect("generated policies are sound");
        let mut watch = Watch::new(engine, policy);
        for step in 0..STEPS_PER_HISTORY {
            let now = facts.pass_time(watch.engine.poll_timeout());
            let input = facts.next();
            let outputs = watch.take(input.clone(), now);
            facts.learn(&outputs);
            if let Err(wrong) = check(&watch, input.as_ref(), &outputs) {
                panic!("SIM_SEED={seed}, step {step} at {now:?}, {input:?} gave {outputs:?}: {wrong}");
            }
        }
    }
}

impl Watch {
    fn new(engine: Engine, policy: Policy) -> Self {
        Self {
            engine,
            policy,
            waiting: BTreeMap::new(),
            answered: vec![],
            bypass: false,
            before: vec![],
            lost: BTreeSet::new(),
            losing: BTreeSet::new(),
            now: Instant::ZERO,
        }
    }

    fn take(&mut self, input: Option<Input>, now: Instant) -> Vec<Output> {
        self.before = self.engine.leases();
        self.now = self.now.max(now);
        self.lost.clone_from(&self.losing);
        match input.clone() {
            Some(input) => self.engine.handle_input(input, now),
            None => self.engine.handle_timeout(now),
        }
        match input {
            Some(Input::Acquire(acquire)) => {
                self.waiting.entry((acquire.session, acquire.request)).or_insert(acquire);
            }
            Some(Input::Cancel { session, request } | Input::ClientGone { session, work: Work::Request(request) }) => {
                self.waiting.remove(&(session, request));
            }
            Some(Input::SessionLost { session } | Input::SessionGone { session }) => {
                self.waiting.retain(|(of, _), _| *of != session);
                self.losing.insert(session);
            }
            Some(Input::SessionOpened { session }) => drop(self.losing.remove(&session)),
            Some(Input::Bypass { on }) => self.bypass = on,
            Some(Input::PolicyChanged(policy)) if policy.check().is_ok() => self.policy = *policy,
            _ => {}
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| self.engine.poll_output()).collect();
        self.answered.clear();
        for output in &outputs {
            let asked = output.answers().and_then(|asked| self.waiting.remove(&asked));
            self.answered.extend(asked.map(|asked| (asked, output.clone())));
        }
        outputs
    }

    pub(crate) fn pool(&self, pool: PoolId) -> Option<PoolView> {
        self.engine.snapshot().pools.into_iter().find(|view| view.pool == pool)
    }

    /// Leases that hold a slot of the pool and count in T over all members.
    pub(crate) fn counted(&self, pool: &PoolView) -> Vec<LeaseView> {
        let up =
            |lease: &LeaseView| lease.member.is_none_or(|id| pool.members.iter().any(|m| m.member == id && is_up(m)));
        let leases = self.engine.leases();
        leases.into_iter().filter(|lease| lease.pool == pool.pool && !lease.suspended && up(lease)).collect()
    }
}

pub(crate) fn is_up(member: &MemberView) -> bool {
    member.state == MemberState::Up && member.slots > 0
}

/// Slots for ordinary requests.
pub(crate) fn ordinary_slots(member: &MemberView) -> u32 {
    member.slots.saturating_sub(member.reserve).max(1)
}

/// Judged like the first request of a client: by share, if it has a key, on any member.
pub(crate) fn is_plain(acquire: &Acquire) -> bool {
    acquire.kind == Kind::Ordinary
        && acquire.parent.is_none()
        && acquire.traffic.is_none()
        && acquire.candidates.is_empty()
}

/// H of a capacity, said once more.
pub(crate) fn headroom(of: Headroom, capacity: u32) -> u32 {
    match of {
        Headroom::PerMille(0) => 0,
        Headroom::PerMille(share) => (capacity * u32::from(share) / 1000).max(1).min(capacity),
        Headroom::Slots(slots) => slots.min(capacity),
    }
}
