//! The engine and the reference side by side, and what must hold after every step.

use super::Step;
use super::mirror::Mirror;
use crate::model::{Model, Shown};
use governor_engine::Engine;
use governor_engine::id::{RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Outcome, Output, Reason, Work};
use governor_engine::policy::Policy;
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;

const EPOCH: u16 = 7;

pub(super) struct Pair {
    engine: Engine,
    model: Model,
    mirror: Mirror,
    now: Instant,
    /// Requests that wait for their one terminal answer.
    unanswered: BTreeMap<(SessionId, RequestId), u32>,
}

impl Pair {
    pub(super) fn new(policy: &Policy) -> Self {
        let engine = Engine::new(policy.clone(), EPOCH).expect("generated policies are sound");
        Self {
            mirror: Mirror::of(&engine),
            engine,
            model: Model::new(policy.clone(), EPOCH),
            now: Instant::ZERO,
            unanswered: BTreeMap::new(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    /// Both take the step; the orders they agree on.
    pub(super) fn step(&mut self, step: Step) -> Vec<Output> {
        self.now = self.now.max(step.at);
        if let Some(input) = &step.input {
            self.expect_answer(input);
        }
        let expected = match step.input.clone() {
            Some(input) => self.model.step(input, self.now),
            None => self.model.timeout(self.now),
        };
        match step.input.clone() {
            Some(input) => self.engine.handle_input(input, self.now),
            None => self.engine.handle_timeout(self.now),
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| self.engine.poll_output()).collect();
        assert_eq!(outputs, expected, "engine (left) and reference (right) disagree");
        for output in &outputs {
            self.check(output);
            self.mirror.read(output);
        }
        self.mirror.compare(&self.engine);
        if let Some(input) = &step.input {
            self.excuse_answer(input);
        }
        assert_eq!(self.engine.poll_timeout(), self.model.next_deadline(), "next deadline");
        self.engine.check_invariants();
        let shown = Shown::of(self.engine.snapshot(), self.engine.leases());
        assert_eq!(shown, self.model.shown(), "engine (left) and reference (right) show different things");
        outputs
    }

    /// Liveness: left alone, everything is answered and everything returns.
    pub(super) fn drain(mut self) {
        self.step(Step { at: self.now, input: Some(Input::Bypass { on: false }) });
        while let Some(at) = self.engine.poll_timeout() {
            self.step(Step { at, input: None });
        }
        assert!(self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        assert_eq!(self.engine.snapshot().node_counted, 0, "left over at the end");
        assert!(self.engine.leases().is_empty());
    }

    /// Notes what must be answered.
    fn expect_answer(&mut self, input: &Input) {
        if let Input::Acquire(Acquire { session, request, .. })
        | Input::Move { session, request, .. }
        | Input::Resume { session, request, .. } = input
        {
            *self.unanswered.entry((*session, *request)).or_insert(0) += 1;
        }
    }

    /// Notes what no longer can be answered. Deadlines due before the input may still have answered it in this step.
    fn excuse_answer(&mut self, input: &Input) {
        if let Input::Cancel { session, request } = input {
            self.unanswered.remove(&(*session, *request));
        }
        if let Input::ClientGone { session, work: Work::Request(request) } = input {
            assert!(!self.unanswered.contains_key(&(*session, *request)), "a client that is gone was not answered");
        }
        if let Input::SessionLost { session } | Input::SessionGone { session } = input {
            self.unanswered.retain(|(s, _), _| s != session);
        }
    }

    fn check(&mut self, output: &Output) {
        if let Some((session, request)) = output.answers() {
            self.answered(session, request);
        }
        if let Output::Refused { decision, .. } = output {
            let n = decision.numbers;
            assert_eq!(decision.outcome, Outcome::Shed);
            let told = decision.retry_after;
            assert!(told >= Duration::from_secs(1) && told.subsec_nanos() % 1_000_000 == 0, "{told:?}");
            assert!(told <= Duration::from_secs(60) || decision.reason == Reason::AllCooling, "{told:?}");
            if decision.reason == Reason::FairShare {
                assert!(n.capacity > 0, "{n:?}");
            }
        }
    }

    fn answered(&mut self, session: SessionId, request: RequestId) {
        let left = self.unanswered.get_mut(&(session, request)).expect("answered once and only if asked");
        *left -= 1;
        if *left == 0 {
            self.unanswered.remove(&(session, request));
        }
    }
}
