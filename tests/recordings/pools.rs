//! Situations of a pool, brought about on the engine in virtual time and written as recordings where a folder is named.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Context, Grant, Input, MemberNews, Output};
use governor_engine::policy::{FairShare, Headroom, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use governor_observation::{ListenerView, Tier};
use std::collections::BTreeMap;
use std::path::Path;
use support::recording::{FORMAT, Header, Moment, Pool, Recording, Span, WRITE_TO};

const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);
const PROXY: u32 = 7;
const PORT: u16 = 8080;
/// Length of a step in milliseconds.
const STEP: u64 = 10;
/// Steps between two moments.
const PER_MOMENT: u64 = 25;

/// What clients and upstream do at one time, in milliseconds.
struct Situation {
    name: &'static str,
    sentence: &'static str,
    seconds: u64,
    /// Requests a second.
    rate: fn(u64) -> u64,
    /// How long a request takes, in milliseconds; `None`: no member can be reached.
    service: fn(u64) -> Option<u64>,
    verdicts: &'static [(Option<u64>, &'static [&'static str])],
}

const SITUATIONS: [Situation; 5] = [
    Situation {
        name: "healthy",
        sentence: "20 requests a second of 1.4 s each on 98 slots",
        seconds: 30,
        rate: |_| 20,
        service: |_| Some(1_400),
        verdicts: &[(None, &["ok"])],
    },
    Situation {
        name: "upstream-down",
        sentence: "no member can be reached from 10 s to 30 s",
        seconds: 60,
        rate: |_| 20,
        service: |ms| (!(10_000..30_000).contains(&ms)).then_some(1_400),
        verdicts: &[
            (Some(10_000), &["ok"]),
            (Some(16_000), &["ok", "upstream_down"]),
            (Some(30_000), &["upstream_down"]),
            (Some(56_000), &["ok", "upstream_down", "inflight_saturated"]),
            (None, &["ok"]),
        ],
    },
    Situation {
        name: "upstream-slow",
        sentence: "requests take 5 s instead of 1.4 s from 20 s on, and more come than the pool can take",
        seconds: 60,
        rate: |_| 50,
        service: |ms| Some(if ms < 20_000 { 1_400 } else { 5_000 }),
        verdicts: &[
            (Some(20_000), &["ok"]),
            (Some(36_000), &["ok", "inflight_saturated", "upstream_slow"]),
            (None, &["upstream_slow"]),
        ],
    },
    Situation {
        name: "saturated-under-max-min",
        sentence: "more requests than the pool can take, without a pause, under max-min",
        seconds: 60,
        rate: |_| 120,
        service: |_| Some(1_400),
        verdicts: &[(Some(4_000), &["ok", "inflight_saturated"]), (None, &["inflight_saturated"])],
    },
    Situation {
        name: "busy-after-quiet",
        sentence: "few requests, then none, then more than the pool can take; the upstream does not change",
        seconds: 80,
        rate: |ms| match ms {
            ..30_000 => 10,
            30_000..50_000 => 0,
            _ => 120,
        },
        service: |_| Some(1_400),
        verdicts: &[
            (Some(50_000), &["ok"]),
            (Some(54_000), &["ok", "inflight_saturated"]),
            (None, &["inflight_saturated"]),
        ],
    },
];

/// A pool of 14 members with 8 slots, its clients and its upstream.
struct World {
    engine: Engine,
    now: Instant,
    requests: u32,
    /// Leases by when they end, and whether the member failed them.
    running: BTreeMap<u64, Vec<(LeaseId, Option<MemberId>)>>,
}

impl World {
    fn new() -> Self {
        let member = |index| MemberPolicy { name: format!("m{index}"), slots: 8, reserve: 1, draining: false };
        let pool = PoolPolicy {
            name: "chat".to_owned(),
            members: (0..14).map(member).collect(),
            fair_share: FairShare::MaxMin { headroom: Headroom::default() },
            mode: Mode::Enforce,
            min_guarantee: 2,
            max_wait: Duration::from_secs(2),
            overloaded_cooldown: Duration::from_secs(10),
            ..PoolPolicy::default()
        };
        let policy = Policy { node: NodePolicy::default(), pools: vec![pool], ..Policy::default() };
        let engine = Engine::new(policy, 1).expect("the policy is sound");
        Self { engine, now: Instant::ZERO, requests: 0, running: BTreeMap::new() }
    }

    fn step(&mut self, ms: u64, situation: &Situation) {
        self.now = Instant::ZERO.after(Duration::from_millis(ms));
        self.engine.handle_timeout(self.now);
        let later = self.running.split_off(&(ms + 1));
        for (lease, failed) in std::mem::replace(&mut self.running, later).into_values().flatten() {
            if let Some(member) = failed {
                let report = Input::MemberReport { session: SESSION, pool: POOL, member, news: MemberNews::Overloaded };
                self.engine.handle_input(report, self.now);
            }
            self.engine.handle_input(Input::Release { session: SESSION, lease }, self.now);
        }
        let rate = (situation.rate)(ms);
        for _ in 0..(rate * (ms + STEP) / 1000 - rate * ms / 1000) {
            self.requests += 1;
            let (request, key) = (RequestId(self.requests), Some(KeyId(u128::from(self.requests % 9))));
            let acquire = Acquire { session: SESSION, request, pool: POOL, key, ..Acquire::default() };
            self.engine.handle_input(Input::Acquire(acquire), self.now);
        }
        while let Some(output) = self.engine.poll_output() {
            let Output::Began(Grant { context: Context { member, .. }, lease, .. }) = output else { continue };
            let (length, failed) = (situation.service)(ms).map_or((50, member), |length| (length, None));
            self.running.entry(ms + length).or_default().push((lease, failed));
        }
    }

    fn moment(&self, ms: u64) -> Moment {
        let figures = self.engine.pool_figures(POOL).expect("there is a pool");
        let oldest = self.engine.oldest_parked().get(&POOL).map(|arrived| self.now.since(*arrived));
        let listener = serde_json::json!({
            "cookie": 1, "netns": 1, "protocol": "tcp", "family": "ipv4", "address": "127.0.0.1", "port": PORT,
            "backlog": 1024, "depth": 0, "abandoned": 0, "depth_peak": 1, "enqueued_total": 0, "accepted_total": 0,
            "overflows_total": 0, "overflows_since_seconds": null, "overflow_syn_total": 0, "overflow_ack_total": 0,
            "oldest_queued_seconds": null, "sojourn": null, "drops_total": 0, "owner_cgroup": null, "pids": [PROXY],
            "tier": "tracepoint",
        });
        let listener: ListenerView = serde_json::from_value(listener).expect("it is a listener");
        Moment {
            ms,
            tier: Tier::Tracepoint,
            listeners: vec![listener],
            namespaces: Vec::new(),
            descriptors: Vec::new(),
            counted: self.engine.counted(),
            cap: 1000,
            pools: vec![Pool::of("chat", &figures, oldest)],
        }
    }
}

fn record(situation: &Situation) -> Recording {
    let mut world = World::new();
    let mut moments = Vec::new();
    for step in 0..situation.seconds * 1000 / STEP {
        world.step(step * STEP, situation);
        if step % PER_MOMENT == 0 {
            moments.push(world.moment(step * STEP));
        }
    }
    let span = |(until_ms, any_of): &(Option<u64>, &[&str])| Span {
        until_ms: *until_ms,
        any_of: any_of.iter().map(|name| (*name).to_owned()).collect(),
    };
    let header = Header {
        format: FORMAT,
        situation: situation.sentence.to_owned(),
        ports: vec![PORT],
        proxies: vec![PROXY],
        verdicts: situation.verdicts.iter().map(span).collect(),
        records: Vec::new(),
    };
    Recording { header, moments }
}

/// The files stay as they were recorded; what the engine does today must be judged the same way.
#[test]
fn pools_of_todays_engine_are_judged_as_the_recorded_ones() {
    for situation in &SITUATIONS {
        let recording = record(situation);
        if let Some(folder) = std::env::var_os(WRITE_TO) {
            let path = Path::new(&folder).join(format!("{}.jsonl", situation.name));
            recording.write(&path).expect("the folder can be written");
        }
        let wrong = super::wrong(&recording.header, &super::replay(&recording).verdicts);
        assert_eq!(wrong, None, "{}", situation.name);
    }
}
