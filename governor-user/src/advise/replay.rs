//! One replay of the jobs of a pool under one rule.

use super::jobs::Job;
use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, OrgId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, Output};
use governor_engine::policy::{FairShare, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// What a rule would have done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that would have waited and then been granted.
    pub waited_requests: u64,
    /// Of so many keys.
    pub waited_keys: u64,
    /// Requests that would have been refused.
    pub refused_requests: u64,
    /// Of so many keys.
    pub refused_keys: u64,
    /// Slots in use, of the capacity, on average over the window, in percent; `None` without capacity.
    pub utilisation_percent: Option<f64>,
}

const SESSION: SessionId = SessionId(1);

/// Replays the jobs of one pool over `window` nanoseconds under this rule, enforced, with the weights and floors that
/// `policy` sets for orgs and keys; caps are left out.
#[must_use]
pub fn replay(policy: &Policy, pool: &PoolPolicy, rule: FairShare, jobs: &[Job], window: u64) -> Outcome {
    let max_parked = policy.node.max_parked;
    let policy = Policy {
        orgs: policy.orgs.clone(),
        keys: policy.keys.clone(),
        node: NodePolicy { cap: 0, max_parked, lease_ttl: Duration::from_nanos(u64::MAX), ..NodePolicy::default() },
        pools: vec![PoolPolicy { fair_share: rule, mode: Mode::Enforce, ..pool.clone() }],
        ..Policy::default()
    };
    let Ok(engine) = Engine::new(policy, 1) else { return Outcome::default() };
    let mut world = World::new(engine, jobs, window);
    world.run();
    world.outcome()
}

struct World<'a> {
    engine: Engine,
    jobs: &'a [Job],
    window: u64,
    /// Ends of running jobs.
    ends: BTreeSet<(Instant, LeaseId)>,
    now: Instant,
    running: u64,
    busy: u128,
    waited: BTreeMap<Option<KeyId>, u64>,
    refused: BTreeMap<Option<KeyId>, u64>,
}

impl<'a> World<'a> {
    fn new(engine: Engine, jobs: &'a [Job], window: u64) -> Self {
        Self {
            engine,
            jobs,
            window,
            ends: BTreeSet::new(),
            now: Instant::ZERO,
            running: 0,
            busy: 0,
            waited: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Whatever is next: an end before an arrival of the same moment, so that nothing waits for a slot that is free.
    fn run(&mut self) {
        let mut next_job = 0;
        loop {
            let arrival = self.jobs.get(next_job).map(|job| Instant(job.at));
            let end = self.ends.first().map(|(at, _)| *at);
            let timer = self.engine.poll_timeout();
            let Some(at) = [end, timer, arrival].into_iter().flatten().min() else {
                return self.pass(Instant(self.window));
            };
            if at.0 > self.window {
                return self.pass(Instant(self.window));
            }
            self.pass(at);
            if end == Some(at) {
                let (_, lease) = self.ends.pop_first().expect("it is the first");
                self.running -= 1;
                self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
            } else if timer == Some(at) {
                self.engine.handle_timeout(self.now);
            } else {
                self.ask(next_job);
                next_job += 1;
            }
            self.carry_out();
        }
    }

    fn pass(&mut self, to: Instant) {
        self.busy += u128::from(self.running) * to.since(self.now).as_nanos();
        self.now = self.now.max(to);
    }

    fn ask(&mut self, index: usize) {
        let job = &self.jobs[index];
        let Some(pool) = self.engine.pools().next() else { return };
        let acquire = Acquire {
            session: SESSION,
            request: RequestId(u32::try_from(index).unwrap_or(u32::MAX)),
            pool,
            key: self.key(index),
            org: job.org.map(OrgId),
            candidates: Vec::new(),
            sticky: None,
            max_wait: job.max_wait_ms.map(|ms| Duration::from_millis(ms.into())),
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        };
        self.engine.handle_input(Input::Acquire(acquire), self.now);
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Began(grant) => {
                    let Ok(index) = usize::try_from(grant.request.0) else { continue };
                    if !grant.waited.is_zero() {
                        *self.waited.entry(self.key(index)).or_default() += 1;
                    }
                    self.running += 1;
                    let runs = self.jobs.get(index).map_or(0, |job| job.runs);
                    self.ends.insert((self.now.after(Duration::from_nanos(runs)), grant.lease));
                }
                Output::Refused { request, .. } => {
                    let key = usize::try_from(request.0).ok().and_then(|index| self.key(index));
                    *self.refused.entry(key).or_default() += 1;
                }
                // A replay only asks and releases.
                Output::Passed { .. }
                | Output::Moved { .. }
                | Output::Resumed(_)
                | Output::Suspended { .. }
                | Output::Ended { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::ClientGone { .. }
                | Output::Parked { .. }
                | Output::Unparked { .. }
                | Output::Rejected { .. }
                | Output::WouldHave { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::MemberChanged { .. }
                | Output::LimitsChanged { .. }
                | Output::ModeChanged { .. } => {}
            }
        }
    }

    fn key(&self, index: usize) -> Option<KeyId> {
        self.jobs.get(index)?.key.map(KeyId)
    }

    fn outcome(&self) -> Outcome {
        let capacity = self.engine.pools().next().and_then(|pool| self.engine.capacity(pool)).unwrap_or(0);
        let slots = u128::from(capacity) * u128::from(self.window);
        let permille = (self.busy * 1000).checked_div(slots).and_then(|permille| u32::try_from(permille).ok());
        // Requests without a key share one identity.
        let keys = |of: &BTreeMap<Option<KeyId>, u64>| u64::try_from(of.len()).unwrap_or(u64::MAX);
        Outcome {
            waited_requests: self.waited.values().sum(),
            waited_keys: keys(&self.waited),
            refused_requests: self.refused.values().sum(),
            refused_keys: keys(&self.refused),
            utilisation_percent: permille.map(|permille| f64::from(permille) / 10.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::policy::{Headroom, MemberPolicy};

    const SECOND: u64 = 1_000_000_000;

    fn job(at: u64, key: u32, org: Option<u32>, wait: u32, runs: u64) -> Job {
        Job {
            at: at * SECOND,
            key: Some(key.into()),
            org: org.map(u128::from),
            max_wait_ms: Some(wait * 1000),
            runs: runs * SECOND,
        }
    }

    /// Ten keys of one org fill the pool and an eleventh waits; then another key comes. Slots are free at 3 s and 10 s.
    fn outcome(org: Option<u32>) -> (u64, u64) {
        let mut jobs: Vec<Job> = (0..8).map(|key| job(0, key, org, 5, 100)).collect();
        jobs.extend([job(0, 8, org, 5, 3), job(0, 9, org, 5, 10), job(1, 10, org, 5, 100), job(2, 99, None, 30, 100)]);
        let member = MemberPolicy { name: "m".to_owned(), slots: 10, ..MemberPolicy::default() };
        let pool = PoolPolicy { name: "chat".to_owned(), members: vec![member], ..PoolPolicy::default() };
        let rule = FairShare::MaxMin { headroom: Headroom::Slots(0) };
        let done = replay(&Policy::default(), &pool, rule, &jobs, 60 * SECOND);
        (done.waited_requests, done.refused_requests)
    }

    #[test]
    fn the_keys_of_an_org_are_replayed_as_one_share() {
        assert_eq!(outcome(None), (2, 0), "all keys alike: who came first is served first");
        assert_eq!(outcome(Some(7)), (1, 1), "the org holds the pool: whoever holds nothing goes before it");
    }
}
