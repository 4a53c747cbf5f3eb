//! The simulation: programs that ask, stream and pause, and the engine between them and a pool of members.

use super::figures::{Figures, Sample, Tally, jain, percent, percentile, water_fill};
use super::scenario::{Choice, Group, Workload};
use crate::random::Random;
use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Input, Kind, MemberNews, Output};
use governor_engine::policy::{
    ClassPolicy, Entitlement, FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy,
};
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeMap;

/// The member that refuses, in workloads where one does.
const REFUSING: MemberId = MemberId(0);
const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);

/// A run of a workload under one policy.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What came of it.
    pub figures: Figures,
    /// Every order of the engine in turn, but for records of what was not carried out.
    pub orders: Vec<Output>,
}

impl Workload {
    /// Runs it under one policy.
    ///
    /// # Panics
    /// If the workload's numbers make no policy, or the engine breaks its contract.
    #[must_use]
    pub fn simulate(&self, choice: Choice) -> Replay {
        let engine = Engine::new(self.policy(choice), 1).expect("the workload's policy is sound");
        let mut world = World {
            workload: self,
            choice,
            engine,
            random: Random::new(self.seed),
            programs: vec![],
            keys: vec![],
            events: BTreeMap::new(),
            next: 0,
            asked: BTreeMap::new(),
            now: Instant::ZERO,
            warm: Instant::ZERO.after(Duration::from_secs(self.warm_up_seconds)),
            light: Tally::default(),
            heavy: Tally::default(),
            would_have: 0,
            lengths: (0.0, 0.0),
            samples: vec![],
            orders: vec![],
        };
        world.populate();
        world.run_until(Instant::ZERO.after(Duration::from_secs(self.seconds)));
        world.replay()
    }

    fn policy(&self, choice: Choice) -> Policy {
        let member = |n| MemberPolicy {
            name: format!("account-{n}"),
            slots: self.pool.slots,
            reserve: self.reserve(choice),
            draining: false,
        };
        let fair_share = match choice {
            Choice::None | Choice::Off | Choice::StaticCap => FairShare::Off,
            Choice::Observe | Choice::EqualSplit => FairShare::EqualSplit { threshold: self.pool.threshold },
            Choice::MaxMin => FairShare::MaxMin { headroom: Headroom::default() },
        };
        // Under the static cap everybody is of a class with a ceiling.
        let ceiling = (choice == Choice::StaticCap).then_some(self.pool.static_cap);
        let each = ClassPolicy {
            name: "each".to_owned(),
            entitlement: Entitlement { cap: ceiling, ..Entitlement::default() },
        };
        let max_wait = if choice == Choice::None { 0 } else { self.pool.max_wait_seconds };
        Policy {
            // Guards that are alive renew; here none dies.
            node: NodePolicy {
                lease_ttl: Duration::from_secs(2 * self.seconds),
                caps_mode: Mode::Enforce,
                default_class: Some(each.name.clone()),
                ..NodePolicy::default()
            },
            classes: vec![each],
            pools: vec![PoolPolicy {
                name: "accounts".to_owned(),
                members: (0..self.pool.members).map(member).collect(),
                fair_share,
                mode: if choice == Choice::Observe { Mode::Observe } else { Mode::Enforce },
                min_guarantee: 2,
                max_wait: Duration::from_secs(max_wait),
                max_parked_per_key: 16,
                exhausted_status: 429,
                rate_limited_cooldown: Duration::from_secs(30),
                overloaded_cooldown: Duration::from_secs(10),
                ..PoolPolicy::default()
            }],
            ..Policy::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Try(usize),
    StreamEnds(usize),
    Sample,
}

/// One attempt slot of a client: it has at most one request under way.
struct Program {
    key: usize,
    failed_tries: u32,
    since: Instant,
    stream: Option<(LeaseId, MemberId)>,
}

/// A key and what it has had.
struct Key<'a> {
    group: &'a Group,
    /// Slots it holds, on members that refuse too.
    holds: u32,
    /// Of them on members that do not refuse.
    counted: u32,
    /// Slot time in nanoseconds after the warm-up.
    had: u128,
}

struct World<'a> {
    workload: &'a Workload,
    choice: Choice,
    engine: Engine,
    random: Random,
    programs: Vec<Program>,
    keys: Vec<Key<'a>>,
    events: BTreeMap<(Instant, u64), Event>,
    next: u64,
    asked: BTreeMap<RequestId, usize>,
    now: Instant,
    warm: Instant,
    light: Tally,
    heavy: Tally,
    would_have: u32,
    /// Streams and their seconds so far.
    lengths: (f64, f64),
    samples: Vec<Sample>,
    orders: Vec<Output>,
}

impl<'a> World<'a> {
    fn populate(&mut self) {
        for group in &self.workload.keys {
            for _ in 0..group.count {
                self.keys.push(Key { group, holds: 0, counted: 0, had: 0 });
                for _ in 0..group.streams {
                    let program = self.programs.len();
                    self.programs.push(Program {
                        key: self.keys.len() - 1,
                        failed_tries: 0,
                        since: Instant::ZERO,
                        stream: None,
                    });
                    let start = Duration::from_millis(self.random.below(2_000));
                    self.schedule(start, Event::Try(program));
                }
            }
        }
        self.schedule(Duration::from_secs(1), Event::Sample);
    }

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
                    Event::Try(program) => self.ask(program),
                    Event::StreamEnds(program) => self.end_stream(program),
                    Event::Sample => self.sample(),
                }
            } else {
                self.engine.handle_timeout(at);
            }
            self.carry_out();
        }
    }

    fn pass(&mut self, to: Instant) {
        let nanos = to.since(self.now.max(self.warm)).as_nanos();
        for key in &mut self.keys {
            key.had += u128::from(key.counted) * nanos;
        }
        self.now = to;
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.events.insert((self.now.after(after), self.next), event);
        self.next += 1;
    }

    fn group(&self, program: usize) -> &'a Group {
        self.keys[self.programs[program].key].group
    }

    /// Where to note what happens to this request; nowhere during the warm-up.
    fn tally(&mut self, program: usize) -> Option<&mut Tally> {
        let light = self.group(program).light;
        let counts = self.programs[program].since >= self.warm;
        counts.then_some(if light { &mut self.light } else { &mut self.heavy })
    }

    fn ask(&mut self, index: usize) {
        let first = self.programs[index].failed_tries == 0;
        if first {
            self.programs[index].since = self.now;
        }
        if let Some(tally) = self.tally(index) {
            tally.requests += u32::from(first);
            tally.tries += 1;
        }
        let key = self.programs[index].key;
        let request = self.request(index);
        let input = Input::Acquire(Acquire {
            session: SESSION,
            request,
            pool: POOL,
            key: Some(KeyId(key as u128)),
            org: self.keys[key]
                .group
                .org
                .filter(|_| self.choice != Choice::StaticCap)
                .map(|org| OrgId(u128::from(org))),
            candidates: vec![],
            sticky: None,
            max_wait: None,
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        });
        self.engine.handle_input(input, self.now);
    }

    fn request(&mut self, program: usize) -> RequestId {
        let request = RequestId(u32::try_from(self.next).expect("fewer than u32"));
        self.next += 1;
        self.asked.insert(request, program);
        request
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match &output {
                Output::Began(grant) | Output::Moved { grant, .. } => {
                    let program = self.asked.remove(&grant.request).expect("asked");
                    let member = grant.context.member.expect("an ordinary lease");
                    self.call_upstream(program, (grant.lease, member));
                }
                Output::Refused { request, decision } => {
                    let program = self.asked.remove(request).expect("asked");
                    // Without the governor nobody measures a drain: clients have their own backoff and nothing else.
                    let told = if self.choice == Choice::None { Duration::ZERO } else { decision.retry_after };
                    self.fail_try(program, told);
                }
                Output::WouldHave { .. } => {
                    self.would_have += 1;
                    continue;
                }
                Output::Parked { .. }
                | Output::Unparked { .. }
                | Output::Ended { .. }
                | Output::MemberChanged { .. }
                | Output::LimitsChanged { .. } => {}
                Output::Passed { .. }
                | Output::Resumed(_)
                | Output::Suspended { .. }
                | Output::Rejected { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::ClientGone { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::ModeChanged { .. } => panic!("no part of a workload: {output:?}"),
            }
            self.orders.push(output);
        }
    }

    fn refuses(&self, member: MemberId) -> bool {
        let share = self.workload.refusing.as_ref().map(|refusing| refusing.from_percent);
        let from = |percent| Duration::from_millis(self.workload.seconds * 10 * percent);
        member == REFUSING && share.is_some_and(|percent| self.now >= Instant::ZERO.after(from(percent)))
    }

    /// Whether slots of this member count in the figures: one that will refuse does not.
    fn counts(&self, member: MemberId) -> bool {
        member != REFUSING || self.workload.refusing.is_none()
    }

    fn call_upstream(&mut self, index: usize, (lease, member): (LeaseId, MemberId)) {
        if self.refuses(member) {
            let news = MemberNews::RateLimited { until: None };
            self.engine.handle_input(Input::MemberReport { session: SESSION, pool: POOL, member, news }, self.now);
            if self.choice == Choice::None {
                self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
                return self.fail_try(index, Duration::ZERO);
            }
            let request = self.request(index);
            return self.engine.handle_input(Input::Move { session: SESSION, request, lease }, self.now);
        }
        let stream = &self.workload.stream;
        let length = self.random.pareto(stream.shortest_seconds, stream.shape, stream.longest_seconds);
        self.lengths = (self.lengths.0 + 1.0, self.lengths.1 + length);
        let wait = self.now.since(self.programs[index].since).as_secs_f64();
        if let Some(tally) = self.tally(index) {
            tally.waits.push(wait);
        }
        let counted = u32::from(self.counts(member));
        let program = &mut self.programs[index];
        (program.stream, program.failed_tries) = (Some((lease, member)), 0);
        let key = &mut self.keys[program.key];
        (key.holds, key.counted) = (key.holds + 1, key.counted + counted);
        self.schedule(Duration::from_secs_f64(length), Event::StreamEnds(index));
    }

    fn end_stream(&mut self, index: usize) {
        let (lease, member) = self.programs[index].stream.take().expect("it runs");
        let counted = u32::from(self.counts(member));
        let key = &mut self.keys[self.programs[index].key];
        (key.holds, key.counted) = (key.holds - 1, key.counted - counted);
        self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
        self.next_request(index);
    }

    fn fail_try(&mut self, index: usize, retry_after: Duration) {
        let client = &self.workload.client;
        self.programs[index].failed_tries += 1;
        let failed_tries = self.programs[index].failed_tries;
        let gives_up = failed_tries > client.retries;
        if let Some(tally) = self.tally(index) {
            tally.refused += 1;
            tally.failed += u32::from(gives_up);
        }
        if gives_up {
            self.programs[index].failed_tries = 0;
            return self.next_request(index);
        }
        let doubled = f64::from(1 << (failed_tries - 1)) * client.backoff_seconds;
        let backoff = Duration::from_secs_f64(doubled * self.random.between([0.75, 1.25]));
        self.schedule(backoff.max(retry_after), Event::Try(index));
    }

    fn next_request(&mut self, index: usize) {
        let pause = self.random.between(self.group(index).pause_seconds);
        self.schedule(Duration::from_secs_f64(pause), Event::Try(index));
    }

    fn sample(&mut self) {
        let of = |light| self.keys.iter().filter(|key| key.group.light == light).map(|key| key.holds).sum();
        let at = self.now.since(Instant::ZERO).as_secs_f64();
        self.samples.push(Sample { at, heavy: of(false), light: of(true) });
        self.schedule(Duration::from_secs(1), Event::Sample);
    }

    fn replay(mut self) -> Replay {
        let span = self.now.since(self.warm).as_secs_f64();
        let slots = f64::from(self.workload.ordinary_slots(self.choice));
        let had: Vec<f64> =
            self.keys.iter().map(|key| Duration::from_nanos_u128(key.had).as_secs_f64() / span).collect();
        // What a key would use if it never waited: each of its programs streams and pauses in turn.
        let mean = self.lengths.1 / self.lengths.0.max(1.0);
        let demand = |key: &Key<'_>| {
            let [shortest, longest] = key.group.pause_seconds;
            f64::from(key.group.streams) * mean / (mean + f64::midpoint(shortest, longest))
        };
        // Who shares: an org, or a key without one.
        let mut units: BTreeMap<(Option<u32>, usize), (f64, f64)> = BTreeMap::new();
        for (index, (key, had)) in self.keys.iter().zip(&had).enumerate() {
            let org = key.group.org;
            let unit = units.entry((org, if org.is_some() { 0 } else { index })).or_default();
            *unit = (unit.0 + demand(key), unit.1 + had);
        }
        let demands: Vec<f64> = units.values().map(|(demand, _)| *demand).collect();
        let shares = water_fill(&demands, slots);
        let ratios: Vec<f64> = units.values().zip(&shares).map(|((_, had), share)| had / share).collect();
        let mut org_percent = BTreeMap::new();
        for (key, had) in self.keys.iter().zip(&had) {
            if let Some(org) = key.group.org {
                *org_percent.entry(org).or_default() += 100.0 * had / slots;
            }
        }
        self.light.waits.sort_by(f64::total_cmp);
        let (light, heavy) = (self.light, self.heavy);
        let figures = Figures {
            utilisation_percent: (100.0 * had.iter().sum::<f64>() / slots).min(100.0),
            light_requests: light.requests,
            light_failed_percent: light.failed_percent(),
            light_late_percent: light.late_percent(),
            light_refused_percent: light.refused_percent(),
            light_tries: f64::from(light.tries) / f64::from(light.requests.max(1)),
            light_wait_p50: percentile(&light.waits, 0.5),
            light_wait_p99: percentile(&light.waits, 0.99),
            heavy_failed_percent: heavy.failed_percent(),
            refused_percent: percent(light.refused + heavy.refused, light.tries + heavy.tries),
            jain: jain(&ratios),
            org_percent,
            would_have: self.would_have,
            light_waits: light.waits,
            samples: self.samples,
        };
        Replay { figures, orders: self.orders }
    }
}
