//! Generated histories: the engine and the reference get the same facts and must give the same orders, step by step.
//! Facts of every kind come in at random, sensible and senseless ones; policies are small, so that limits are met all
//! the time.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Held, Input, Kind, MemberNews, Outcome, Output, Reason};
use governor_engine::policy::{FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use serde::Serialize;
use support::random::Random;

use crate::model::Model;

const STEPS_PER_HISTORY: u64 = 400;

/// Runs histories until `steps` are done.
#[expect(clippy::print_stdout, reason = "how to replay a failure belongs to the test's output")]
pub(crate) fn run(seed: u64, steps: u64) {
    for history in 0..steps.div_ceil(STEPS_PER_HISTORY) {
        let seed = seed.wrapping_add(history);
        let mut log = vec![];
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| World::new(seed).run(&mut log))) {
            let file = format!("{}/history-{seed}.json", env!("CARGO_TARGET_TMPDIR"));
            let log = serde_json::to_string_pretty(&log).expect("strings and numbers");
            std::fs::write(&file, log).expect("the target folder can be written to");
            println!("SIM_SEED={seed} SIM_STEPS=1 replays this history; its log is {file}");
            resume_unwind(panic);
        }
    }
}

/// One step of the log that a failure leaves behind.
#[derive(Serialize)]
struct Step {
    at_nanos: u64,
    input: String,
    outputs: Vec<String>,
}

struct World {
    rng: Random,
    engine: Engine,
    model: Model,
    policy: Policy,
    now: Instant,
    next_request: u32,
    leases: Vec<(SessionId, LeaseId)>,
    /// Requests that wait for their one terminal answer.
    unanswered: BTreeMap<(SessionId, RequestId), u32>,
    senders: Vec<SessionId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Random::new(seed);
        let policy = any_policy(&mut rng);
        Self {
            engine: Engine::new(policy.clone(), 7).expect("generated policies are sound"),
            model: Model::new(policy.clone(), 7),
            rng,
            policy,
            now: Instant::ZERO,
            next_request: 0,
            leases: vec![],
            unanswered: BTreeMap::new(),
            senders: (1..=4).map(SessionId).collect(),
        }
    }

    fn run(mut self, log: &mut Vec<Step>) {
        for _ in 0..STEPS_PER_HISTORY {
            self.pass_time();
            let input = if self.rng.chance(12) { None } else { Some(self.any_input()) };
            self.step(input, log);
        }
        // Liveness: left alone, everything is answered and everything returns.
        self.step(Some(Input::Bypass { on: false }), log);
        while let Some(at) = self.engine.poll_timeout() {
            self.now = self.now.max(at);
            self.step(None, log);
        }
        assert!(self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        let end = self.engine.snapshot();
        assert_eq!(end.node_counted, 0, "left over at the end");
        assert!(self.engine.leases().is_empty());
    }

    fn step(&mut self, input: Option<Input>, log: &mut Vec<Step>) {
        log.push(Step { at_nanos: self.now.0, input: format!("{input:?}"), outputs: vec![] });
        let expected = match input.clone() {
            Some(input) => self.model.step(input, self.now),
            None => self.model.timeout(self.now),
        };
        if let Some(input) = &input {
            self.expect_answer(input);
        }
        match input.clone() {
            Some(input) => self.engine.handle_input(input, self.now),
            None => self.engine.handle_timeout(self.now),
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| self.engine.poll_output()).collect();
        if let Some(step) = log.last_mut() {
            step.outputs = outputs.iter().map(|output| format!("{output:?}")).collect();
        }
        for output in &outputs {
            self.learn(output);
        }
        if let Some(input) = &input {
            self.excuse_answer(input);
        }
        assert_eq!(outputs, expected, "engine (left) and reference (right) disagree");
        assert_eq!(self.engine.poll_timeout(), self.model.next_deadline(), "next deadline");
        self.engine.check_invariants();
        let snapshot = self.engine.snapshot();
        assert_eq!(snapshot.node_counted, self.model.counted(), "counted on the node");
        let mut pools: Vec<_> = snapshot.pools.iter().map(|p| (p.pool, p.in_flight, p.parked)).collect();
        pools.sort_unstable();
        assert_eq!(pools, self.model.pool_counts(), "in flight and parked by pool");
    }

    /// Notes what must be answered.
    fn expect_answer(&mut self, input: &Input) {
        if let Input::Acquire(Acquire { session, request, .. }) | Input::Move { session, request, .. } = input {
            *self.unanswered.entry((*session, *request)).or_insert(0) += 1;
        }
    }

    /// Notes what no longer can be answered. Deadlines due before the input may still have answered it in this step.
    fn excuse_answer(&mut self, input: &Input) {
        if let Input::Cancel { session, request } = input {
            self.unanswered.remove(&(*session, *request));
        }
        if let Input::SessionLost { session } | Input::SessionGone { session } = input {
            self.unanswered.retain(|(s, _), _| s != session);
        }
    }

    fn answered(&mut self, session: SessionId, request: RequestId) {
        let left = self.unanswered.get_mut(&(session, request)).expect("answered once and only if asked");
        *left -= 1;
        if *left == 0 {
            self.unanswered.remove(&(session, request));
        }
    }

    fn learn(&mut self, output: &Output) {
        match output {
            Output::Grant(grant) => {
                self.answered(grant.session, grant.request);
                self.leases.extend(grant.lease.map(|lease| (grant.session, lease)));
            }
            Output::Shed { session, request, decision } => {
                self.answered(*session, *request);
                let n = decision.numbers;
                assert_eq!(decision.outcome, Outcome::Shed);
                assert!(decision.retry_after >= Duration::from_secs(1) && decision.retry_after.subsec_nanos() == 0);
                if decision.reason == Reason::FairShare {
                    assert!(n.key_in_flight >= n.share && n.capacity > 0, "{n:?}");
                }
            }
            Output::Reject { session, request, .. } => self.answered(*session, *request),
            Output::Registered { session, new, .. } => self.leases.extend(new.map(|lease| (*session, lease))),
            Output::Parked { .. }
            | Output::Revoke { .. }
            | Output::ClientGone { .. }
            | Output::TierAsk { .. }
            | Output::WouldHave { .. } => {}
        }
    }

    fn pass_time(&mut self) {
        let by = match self.rng.below(100) {
            0..30 => 0,
            30..85 => self.rng.below(400),
            85..95 => self.rng.below(4_000),
            95..98 => {
                // Exactly at the deadline.
                self.now = self.now.max(self.engine.poll_timeout().unwrap_or(self.now));
                return;
            }
            _ => self.rng.below(40_000),
        };
        self.now = self.now.after(Duration::from_millis(by));
    }

    fn any_input(&mut self) -> Input {
        let session = self.any_session();
        match self.rng.below(100) {
            0..45 => Input::Acquire(self.any_acquire(session)),
            45..62 => {
                let (session, lease) = self.any_lease(session);
                Input::Release { session, lease }
            }
            62..68 => {
                let (session, lease) = self.any_lease(session);
                let idle = self.rng.chance(50).then(|| self.any_millis(9_000));
                Input::Renew { session, lease, idle }
            }
            68..72 => {
                let waiting: Vec<_> = self.unanswered.keys().copied().collect();
                let (session, request) = self.rng.pick(&waiting).copied().unwrap_or((session, RequestId(0)));
                Input::Cancel { session, request }
            }
            72..79 => {
                let (session, lease) = self.any_lease(session);
                Input::Move { session, request: self.any_request(), lease }
            }
            79..87 => Input::MemberReport { pool: self.any_pool(), member: self.any_member(), news: self.any_news() },
            87..90 => Input::Register(self.any_held(session)),
            90..92 => Input::SessionOpened { session },
            92..94 => Input::SessionLost { session },
            94 => Input::SessionGone { session },
            95 => Input::Revoke { lease: self.any_lease(session).1 },
            96 => Input::Bypass { on: self.rng.chance(30) },
            _ => Input::PolicyChanged(Box::new(self.changed_policy())),
        }
    }

    fn any_acquire(&mut self, session: SessionId) -> Acquire {
        let kind = match self.rng.below(100) {
            0..88 => Kind::Ordinary,
            88..96 => Kind::Reattach,
            _ => Kind::Exempt,
        };
        let candidates =
            if self.rng.chance(30) { (0..self.rng.below(4)).map(|_| self.any_member()).collect() } else { vec![] };
        let sticky = (kind == Kind::Reattach && self.rng.chance(95)) || self.rng.chance(20);
        Acquire {
            session,
            request: self.any_request(),
            pool: self.any_pool(),
            key: self.any_key(),
            candidates,
            sticky: sticky.then(|| self.any_member()),
            max_wait: self.rng.chance(30).then(|| self.any_millis(4_000)),
            deadline: self.rng.chance(25).then(|| self.now.after(self.any_millis(9_000))),
            kind,
            ..Acquire::default()
        }
    }

    fn any_held(&mut self, session: SessionId) -> Held {
        Held {
            session,
            lease: self.any_lease(session).1,
            pool: self.any_pool(),
            key: self.any_key(),
            member: self.rng.chance(70).then(|| self.any_member()),
            kind: if self.rng.chance(90) { Kind::Ordinary } else { Kind::Reattach },
            age: self.any_millis(20_000),
            ..Held::default()
        }
    }

    fn any_news(&mut self) -> MemberNews {
        match self.rng.below(4) {
            0 => {
                let reset = self.any_millis(9_000);
                MemberNews::RateLimited { until: self.rng.chance(60).then(|| self.now.after(reset)) }
            }
            1 => MemberNews::Overloaded,
            _ => MemberNews::Up,
        }
    }

    fn any_session(&mut self) -> SessionId {
        *self.rng.pick(&self.senders).expect("there are senders")
    }

    /// Mostly a lease of that session, else of another, else of nobody.
    fn any_lease(&mut self, session: SessionId) -> (SessionId, LeaseId) {
        let recent = self.leases.len().saturating_sub(24);
        match self.rng.pick(&self.leases[recent..]) {
            Some(lease) if self.rng.below(100) < 92 => *lease,
            Some((_, lease)) => (session, *lease),
            None => (session, LeaseId(3)),
        }
    }

    fn any_request(&mut self) -> RequestId {
        if !self.rng.chance(2) {
            self.next_request += 1;
        }
        RequestId(self.next_request)
    }

    fn any_pool(&mut self) -> PoolId {
        let last = if self.rng.chance(2) { 9 } else { 1 };
        PoolId(self.rng.within(0, last))
    }

    fn any_member(&mut self) -> MemberId {
        let last = if self.rng.chance(2) { 9 } else { 2 };
        MemberId(self.rng.within(0, last))
    }

    fn any_key(&mut self) -> Option<KeyId> {
        self.rng.chance(88).then(|| KeyId(u128::from(self.rng.below(5))))
    }

    fn any_millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.rng.below(end))
    }

    fn changed_policy(&mut self) -> Policy {
        match self.rng.below(4) {
            // The same once more.
            0 => {}
            // Something impossible.
            1 => {
                let mut broken = self.policy.clone();
                broken.node.lease_ttl = Duration::ZERO;
                return broken;
            }
            _ => self.policy = any_policy(&mut self.rng),
        }
        self.policy.clone()
    }
}

fn any_policy(rng: &mut Random) -> Policy {
    let seconds = |n: u64| Duration::from_secs(n);
    let names: &[&str] = if rng.chance(92) { &["first", "second"] } else { &["second"] };
    Policy {
        node: NodePolicy {
            cap: if rng.chance(50) { 0 } else { rng.within(6, 30) },
            max_parked: rng.within(2, 20),
            lease_ttl: seconds(rng.below(30) + 1),
            session_grace: seconds(rng.below(5)),
            ..NodePolicy::default()
        },
        pools: names.iter().map(|name| any_pool_policy(rng, name)).collect(),
        ..Policy::default()
    }
}

fn any_fair_share(rng: &mut Random) -> FairShare {
    let mut within = |low, high| u16::try_from(rng.within(low, high)).expect("a share");
    match within(0, 99) {
        0..12 => FairShare::Off,
        12..55 => FairShare::EqualSplit { threshold: u8::try_from(within(30, 100)).expect("a percentage") },
        55..80 => FairShare::MaxMin { headroom: Headroom::PerMille(within(0, 400)) },
        _ => FairShare::MaxMin { headroom: Headroom::Slots(u32::from(within(0, 4))) },
    }
}

fn any_pool_policy(rng: &mut Random, name: &str) -> PoolPolicy {
    let unlimited = rng.chance(3);
    let names: &[&str] = if rng.chance(85) { &["a", "b", "c"] } else { &["c", "a"] };
    let mut members = vec![];
    for name in names {
        members.push(MemberPolicy {
            name: (*name).to_owned(),
            slots: if unlimited { 0 } else { rng.within(0, 5) },
            reserve: rng.within(0, 2),
            draining: rng.chance(8),
        });
    }
    PoolPolicy {
        name: name.to_owned(),
        members,
        fair_share: any_fair_share(rng),
        mode: if rng.chance(70) { Mode::Enforce } else { Mode::Observe },
        min_guarantee: rng.within(0, 2),
        max_wait: Duration::from_millis(rng.below(9_000)),
        max_parked_per_key: rng.within(1, 5),
        exhausted_status: if rng.chance(50) { 429 } else { 529 },
        rate_limited_cooldown: Duration::from_millis(rng.below(9_000) + 1),
        overloaded_cooldown: Duration::from_millis(rng.below(4_000) + 1),
        ..PoolPolicy::default()
    }
}
