//! The production incident in virtual time, under settings read from `tests/scenarios/incident.toml`. A logical request
//! has failed when its first try and all its retries were refused, by the gate or by the member.

use std::collections::BTreeMap;

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, MemberNews, Output};
use governor_engine::policy::{FairShare, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use serde::Deserialize;

use crate::rng::Rng;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    seconds: u64,
    seed: u64,
    pool: PoolShape,
    heavy: Heavy,
    light: Light,
    stream: Stream,
    client: Client,
    refusing: Refusing,
    pub(crate) run: Vec<Run>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolShape {
    members: u32,
    slots: u32,
    reserve: u32,
    threshold: u8,
    max_wait_seconds: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heavy {
    attempts: usize,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Light {
    keys: u32,
    streams: usize,
    pause_seconds: [f64; 2],
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    shortest_seconds: f64,
    longest_seconds: f64,
    shape: f64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    retries: u32,
    backoff_seconds: f64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusing {
    from_percent: u64,
}

/// One setting and the bands its figures must fall into.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) mode: Setting,
    pub(crate) light_failed_percent: [f64; 2],
    pub(crate) light_requests: [u32; 2],
    pub(crate) utilisation_percent: [f64; 2],
}

/// How much of the governor there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Setting {
    /// Nothing but what the proxy did before: member caps, first come first served, a member that answered 429 left
    /// alone for a while; immediate refusal, no Retry-After, no second member.
    None,
    /// Member slots, parking and cool-down, without a fair-share rule.
    Off,
    Observe,
    Enforce,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) light_requests: u32,
    pub(crate) light_failed: u32,
    pub(crate) heavy_requests: u32,
    pub(crate) heavy_failed: u32,
    /// Tries of light keys, retries included.
    pub(crate) light_tries: u32,
    pub(crate) light_wait_max: Duration,
    /// Streams running on members that do not refuse, of their ordinary slots, on average.
    pub(crate) utilisation_percent: f64,
    /// Orders about requests that were not carried out.
    pub(crate) would_have: u32,
}

/// The refusing member.
const REFUSING: MemberId = MemberId(0);
const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Try(usize),
    StreamEnds(usize),
}

/// One attempt slot of a client program: it has at most one request under way.
struct Worker {
    key: u32,
    failed_tries: u32,
    since: Instant,
    stream: Option<(LeaseId, MemberId)>,
}

struct World<'a> {
    scenario: &'a Scenario,
    setting: Setting,
    engine: Engine,
    rng: Rng,
    workers: Vec<Worker>,
    events: BTreeMap<(Instant, u64), Event>,
    next: u64,
    asked: BTreeMap<RequestId, usize>,
    now: Instant,
    busy_nanos: u128,
    running: u32,
    figures: Figures,
    trace: Vec<Output>,
}

const HEAVY: u32 = 0;

impl Scenario {
    /// Replays it under one setting; the figures, and every order but the records.
    pub(crate) fn replay(&self, setting: Setting) -> (Figures, Vec<Output>) {
        let end = Instant::ZERO.after(Duration::from_secs(self.seconds));
        let engine = Engine::new(self.policy(setting), 1).expect("the scenario's policy is sound");
        let mut world = World {
            scenario: self,
            setting,
            engine,
            rng: Rng::new(self.seed),
            workers: vec![],
            events: BTreeMap::new(),
            next: 0,
            asked: BTreeMap::new(),
            now: Instant::ZERO,
            busy_nanos: 0,
            running: 0,
            figures: Figures::default(),
            trace: vec![],
        };
        let heavy = std::iter::repeat_n(HEAVY, self.heavy.attempts);
        let light = (1..=self.light.keys).flat_map(|key| std::iter::repeat_n(key, self.light.streams));
        for (index, key) in heavy.chain(light).enumerate() {
            world.workers.push(Worker { key, failed_tries: 0, since: Instant::ZERO, stream: None });
            let start = world.rng.below(2_000);
            world.schedule(Duration::from_millis(start), Event::Try(index));
        }
        world.run_until(end);
        let slots = u128::from((self.pool.members - 1) * (self.pool.slots - self.reserve(setting)));
        let permille = world.busy_nanos * 1000 / (slots * u128::from(end.0));
        world.figures.utilisation_percent = f64::from(u32::try_from(permille).expect("a share")) / 10.0;
        (world.figures, world.trace)
    }

    /// Before the governor nothing was kept back: the cap of a member was all of its slots.
    fn reserve(&self, setting: Setting) -> u32 {
        if setting == Setting::None { 0 } else { self.pool.reserve }
    }

    fn policy(&self, setting: Setting) -> Policy {
        let member = |n| MemberPolicy {
            name: format!("account-{n}"),
            slots: self.pool.slots,
            reserve: self.reserve(setting),
            draining: false,
        };
        let rule = FairShare::EqualSplit { threshold: self.pool.threshold };
        Policy {
            // Guards that are alive renew; here none dies.
            node: NodePolicy { lease_ttl: Duration::from_secs(2 * self.seconds), ..NodePolicy::default() },
            pools: vec![PoolPolicy {
                name: "accounts".to_owned(),
                members: (0..self.pool.members).map(member).collect(),
                fair_share: if matches!(setting, Setting::None | Setting::Off) { FairShare::Off } else { rule },
                mode: if setting == Setting::Enforce { Mode::Enforce } else { Mode::Observe },
                min_guarantee: 2,
                max_wait: match setting {
                    Setting::None => Duration::ZERO,
                    Setting::Off | Setting::Observe | Setting::Enforce => {
                        Duration::from_secs(self.pool.max_wait_seconds)
                    }
                },
                max_parked_per_key: 16,
                exhausted_status: 429,
                rate_limited_cooldown: Duration::from_secs(30),
                overloaded_cooldown: Duration::from_secs(10),
            }],
        }
    }
}

impl World<'_> {
    fn run_until(&mut self, end: Instant) {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = event.into_iter().chain(self.engine.poll_timeout()).min().filter(|at| *at <= end) else {
                return self.pass(end);
            };
            self.pass(at);
            if event == Some(at) {
                let (_, event) = self.events.pop_first().expect("it is the first");
                match event {
                    Event::Try(worker) => self.ask(worker),
                    Event::StreamEnds(worker) => self.end_stream(worker),
                }
            } else {
                self.engine.handle_timeout(at);
            }
            self.carry_out();
        }
    }

    fn pass(&mut self, to: Instant) {
        self.busy_nanos += u128::from(self.running) * to.since(self.now).as_nanos();
        self.now = to;
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.events.insert((self.now.after(after), self.next), event);
        self.next += 1;
    }

    fn ask(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if worker.failed_tries == 0 {
            worker.since = self.now;
            *(if worker.key == HEAVY { &mut self.figures.heavy_requests } else { &mut self.figures.light_requests }) +=
                1;
        }
        self.figures.light_tries += u32::from(worker.key != HEAVY);
        let key = Some(KeyId(u128::from(worker.key)));
        let request = self.request(index);
        let input = Input::Acquire(Acquire {
            session: SESSION,
            request,
            pool: POOL,
            key,
            candidates: vec![],
            sticky: None,
            max_wait: None,
            deadline: None,
            kind: Kind::Ordinary,
        });
        self.engine.handle_input(input, self.now);
    }

    fn request(&mut self, worker: usize) -> RequestId {
        let request = RequestId(u32::try_from(self.next).expect("fewer than u32"));
        self.next += 1;
        self.asked.insert(request, worker);
        request
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match &output {
                Output::Grant(grant) => {
                    let worker = self.asked.remove(&grant.request).expect("asked");
                    let place = grant.lease.zip(grant.member).expect("an ordinary lease");
                    self.call_upstream(worker, place);
                }
                Output::Shed { request, decision, .. } => {
                    let worker = self.asked.remove(request).expect("asked");
                    // Without the governor nobody measures a drain: clients have their own backoff and nothing else.
                    let told = if self.setting == Setting::None { Duration::ZERO } else { decision.retry_after };
                    self.fail_try(worker, told);
                }
                Output::WouldHave { .. } => {
                    self.figures.would_have += 1;
                    continue;
                }
                Output::Parked { .. } => {}
                Output::Reject { .. } | Output::Registered { .. } | Output::Revoke { .. } => {
                    panic!("no part of this scenario: {output:?}")
                }
            }
            self.trace.push(output);
        }
    }

    fn call_upstream(&mut self, index: usize, (lease, member): (LeaseId, MemberId)) {
        let from = Duration::from_secs(self.scenario.seconds * self.scenario.refusing.from_percent / 100);
        if member == REFUSING && self.now >= Instant::ZERO.after(from) {
            let news = MemberNews::RateLimited { until: None };
            self.engine.handle_input(Input::MemberReport { pool: POOL, member, news }, self.now);
            if self.setting == Setting::None {
                self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
                return self.fail_try(index, Duration::ZERO);
            }
            let request = self.request(index);
            return self.engine.handle_input(Input::Move { session: SESSION, request, lease }, self.now);
        }
        let stream = &self.scenario.stream;
        let length = stream.shortest_seconds / (1.0 - self.rng.unit()).max(1e-6).powf(1.0 / stream.shape);
        let worker = &mut self.workers[index];
        worker.stream = Some((lease, member));
        worker.failed_tries = 0;
        self.running += u32::from(member != REFUSING);
        if worker.key != HEAVY {
            self.figures.light_wait_max = self.figures.light_wait_max.max(self.now.since(worker.since));
        }
        self.schedule(Duration::from_secs_f64(length.min(stream.longest_seconds)), Event::StreamEnds(index));
    }

    fn end_stream(&mut self, index: usize) {
        let (lease, member) = self.workers[index].stream.take().expect("it runs");
        self.running -= u32::from(member != REFUSING);
        self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
        self.next_request(index);
    }

    fn fail_try(&mut self, index: usize, retry_after: Duration) {
        let client = &self.scenario.client;
        let worker = &mut self.workers[index];
        worker.failed_tries += 1;
        if worker.failed_tries > client.retries {
            worker.failed_tries = 0;
            *(if worker.key == HEAVY { &mut self.figures.heavy_failed } else { &mut self.figures.light_failed }) += 1;
            return self.next_request(index);
        }
        let doubled = f64::from(1 << (worker.failed_tries - 1)) * client.backoff_seconds;
        let backoff = Duration::from_secs_f64(doubled * (0.75 + 0.5 * self.rng.unit()));
        self.schedule(backoff.max(retry_after), Event::Try(index));
    }

    /// The heavy key asks again at once, the others after a pause.
    fn next_request(&mut self, index: usize) {
        let pause = if self.workers[index].key == HEAVY {
            Duration::from_millis(10)
        } else {
            let [shortest, longest] = self.scenario.light.pause_seconds;
            Duration::from_secs_f64(shortest + (longest - shortest) * self.rng.unit())
        };
        self.schedule(pause, Event::Try(index));
    }
}
