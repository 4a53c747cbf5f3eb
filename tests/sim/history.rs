//! Generated histories: the engine and the reference get the same facts and must give the same orders, step by step.
//! Facts of every kind come in at random, sensible and senseless ones; policies are small, so that limits are met all
//! the time. A history that fails is shortened before it is shown.

pub(crate) mod facts;
mod mirror;
mod pair;
mod policies;
mod shrink;

use facts::Facts;
use governor_engine::io::Input;
use governor_engine::policy::Policy;
use governor_engine::time::Instant;
use pair::Pair;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

pub(crate) const STEPS_PER_HISTORY: u64 = 400;

/// What happened under which policy.
#[derive(Clone, Debug)]
struct History {
    policy: Policy,
    steps: Vec<Step>,
}

/// A fact, or only time, which passed until then.
#[derive(Clone, Debug)]
struct Step {
    at: Instant,
    input: Option<Input>,
}

/// Runs histories until `steps` are done, some at a time.
pub(crate) fn run(seed: u64, steps: u64) {
    let histories = steps.div_ceil(STEPS_PER_HISTORY);
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let work = |first: usize| {
            move || (0..histories).skip(first).step_by(workers).for_each(|history| one(seed.wrapping_add(history)))
        };
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
        for worker in running {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

#[expect(clippy::print_stdout, reason = "how to replay a failure belongs to the test's output")]
fn one(seed: u64) {
    let mut facts = Facts::new(seed);
    let mut history = History { policy: facts.policy(), steps: vec![] };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| generate(&mut facts, &mut history))) {
        println!("SIM_SEED={seed} SIM_STEPS=1 replays this history; the shortest that still fails:");
        println!("{}", shrink::shortest(history));
        resume_unwind(panic);
    }
}

/// Makes up a history as it goes on, since facts name what the engine answered before.
fn generate(facts: &mut Facts, history: &mut History) {
    let mut pair = Pair::new(&history.policy);
    for _ in 0..STEPS_PER_HISTORY {
        let at = facts.pass_time(pair.next_deadline());
        let step = Step { at, input: facts.next() };
        history.steps.push(step.clone());
        facts.learn(&pair.step(step));
    }
    pair.drain();
}
