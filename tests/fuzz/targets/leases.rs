//! What sessions do with leases, as bytes: three a step. Held against a model of what leases promise: one terminal answer a
//! request, ids that are never used twice, a released lease that stays released, counts that are those of the live
//! leases and never more than the slots, and nothing left when everybody is gone.

use super::outcome;
use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, Grant, Input, Kind, MemberNews, Output, Work};
use governor_engine::policy::{FairShare, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

const POOLS: u32 = 2;
const SESSIONS: u64 = 3;

/// Longest history: an input that is longer is cut.
const STEPS: usize = 150;

struct World {
    engine: Engine,
    now: Instant,
    next: u32,
    /// Requests without their terminal answer, and the lease they are about if they are not for a new one.
    open: BTreeMap<(SessionId, RequestId), Option<LeaseId>>,
    /// Leases as the model believes: granted, and not yet told to be over.
    held: BTreeMap<LeaseId, SessionId>,
    ever: BTreeSet<LeaseId>,
    seen: BTreeSet<u8>,
}

pub(crate) fn hold(bytes: &[u8]) -> u64 {
    let mut world = World::new();
    for step in bytes.chunks_exact(3).take(STEPS) {
        world.step(step[0], step[1], step[2]);
        world.check();
    }
    for session in 0..SESSIONS {
        world.gone(SessionId(session));
    }
    world.check();
    assert!(world.engine.leases().is_empty() && world.engine.is_idle(), "something outlives everybody");
    outcome(&world.seen)
}

impl World {
    fn new() -> Self {
        let member = |n| MemberPolicy { name: format!("m{n}"), slots: 2, reserve: n, draining: false };
        let pool = |n| PoolPolicy {
            name: format!("p{n}"),
            members: vec![member(0), member(1)],
            fair_share: FairShare::EqualSplit { threshold: 50 },
            mode: Mode::Enforce,
            min_guarantee: 1,
            max_wait: Duration::from_secs(5),
            ..PoolPolicy::default()
        };
        let node = NodePolicy {
            cap: 7,
            lease_ttl: Duration::from_secs(4),
            session_grace: Duration::from_secs(2),
            ..NodePolicy::default()
        };
        let policy = Policy { node, pools: (0..POOLS).map(pool).collect(), ..Policy::default() };
        Self {
            engine: Engine::new(policy, 1).expect("the policy is sound"),
            now: Instant::ZERO,
            next: 0,
            open: BTreeMap::new(),
            held: BTreeMap::new(),
            ever: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    fn step(&mut self, what: u8, one: u8, other: u8) {
        let session = SessionId(u64::from(one) % SESSIONS);
        let pool = PoolId(u32::from(other) % POOLS);
        let lease = self.ever.iter().nth(usize::from(other) % self.ever.len().max(1)).copied().unwrap_or_default();
        match what % 12 {
            0..=2 => self.acquire(session, pool, one, other),
            3 => {
                self.put(Input::Release { session, lease });
            }
            4 => self.put(Input::Renew { session, lease, idle: None }),
            5 => {
                let request = self.ask(session, Some(lease));
                self.put(Input::Move { session, request, lease });
            }
            6 => self.put(Input::Suspend { session, lease }),
            7 => {
                let request = self.ask(session, Some(lease));
                self.put(Input::Resume {
                    session,
                    request,
                    lease,
                    max_wait: (other & 1 == 0).then_some(Duration::ZERO),
                });
            }
            8 => {
                self.open.retain(|(of, _), _| *of != session);
                self.put(Input::SessionLost { session });
            }
            9 if other & 7 == 0 => self.gone(session),
            9 => self.put(Input::ClientGone { session, work: Work::Lease(lease) }),
            10 => {
                let news = [MemberNews::Up, MemberNews::Overloaded, MemberNews::RateLimited { until: None }];
                let news = news[usize::from(one) % 3];
                self.put(Input::MemberReport { session, pool, member: MemberId(u32::from(other >> 1) % 2), news });
            }
            _ => {
                self.now = self.now.after(Duration::from_millis(u64::from(one) * 20));
                self.engine.handle_timeout(self.now);
                self.hear();
            }
        }
        let over: Vec<_> = self.held.keys().copied().filter(|lease| self.engine.holder(*lease).is_none()).collect();
        assert!(over.is_empty(), "{over:?} ended in silence");
    }

    fn acquire(&mut self, session: SessionId, pool: PoolId, one: u8, other: u8) {
        let request = self.ask(session, None);
        let kinds = [Kind::Ordinary, Kind::Ordinary, Kind::Ordinary, Kind::Reattach, Kind::Exempt];
        let acquire = Acquire {
            session,
            request,
            pool,
            key: (other & 0x30 != 0).then_some(KeyId(u128::from(other >> 4))),
            kind: kinds[usize::from(one >> 3) % kinds.len()],
            sticky: (one & 4 != 0).then_some(MemberId(u32::from(one) & 1)),
            max_wait: (other & 2 != 0).then_some(Duration::ZERO),
            ends_with_client: other & 4 != 0,
            ..Acquire::default()
        };
        self.put(Input::Acquire(acquire));
        if other & 8 != 0 && one & 2 != 0 {
            // Withdrawn in the same breath: answered already or never.
            self.put(Input::Cancel { session, request });
            self.open.remove(&(session, request));
        }
    }

    fn ask(&mut self, session: SessionId, about: Option<LeaseId>) -> RequestId {
        self.next += 1;
        self.open.insert((session, RequestId(self.next)), about);
        RequestId(self.next)
    }

    fn gone(&mut self, session: SessionId) {
        self.open.retain(|(of, _), _| *of != session);
        self.put(Input::SessionGone { session });
    }

    fn put(&mut self, input: Input) {
        self.engine.handle_input(input, self.now);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Began(grant) | Output::Resumed(grant) | Output::Moved { grant, .. } => self.granted(&grant),
                Output::Passed { context, request } => drop(self.answered(0, context.session, request)),
                Output::Refused { request, decision } => drop(self.answered(1, decision.session, request)),
                Output::Rejected { session, request, .. } => drop(self.answered(2, session, request)),
                Output::Ended { context, lease, cause, .. } => {
                    self.seen.insert(3);
                    let holder = self.held.remove(&lease);
                    assert_eq!(
                        holder,
                        Some(context.session),
                        "{lease:?} ended once, with {cause:?}, and for its holder"
                    );
                }
                Output::Parked { context, request } => {
                    self.seen.insert(4);
                    assert!(self.open.contains_key(&(context.session, request)), "parked after its answer");
                }
                Output::ClientGone { .. } => drop(self.seen.insert(5)),
                Output::Suspended { .. }
                | Output::Unparked { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::WouldHave { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::MemberChanged { .. }
                | Output::LimitsChanged { .. }
                | Output::ModeChanged { .. } => {}
            }
        }
    }

    fn granted(&mut self, grant: &Grant) {
        let (session, lease) = (grant.context.session, grant.lease);
        let about = self.answered(0, session, grant.request);
        match about {
            Some(about) => assert_eq!(lease, about, "a lease goes on under its own id"),
            None => assert!(self.ever.insert(lease), "{lease:?} was used before"),
        }
        self.held.insert(lease, session);
        self.seen.insert(10 + u8::from(about.is_some()) + 2 * u8::from(grant.waited > Duration::ZERO));
    }

    fn answered(&mut self, how: u8, session: SessionId, request: RequestId) -> Option<LeaseId> {
        self.seen.insert(20 + how);
        self.open.remove(&(session, request)).expect("one terminal answer, to a request that waits for one")
    }

    fn check(&self) {
        let leases = self.engine.leases();
        let live: BTreeMap<_, _> = leases.iter().map(|lease| (lease.lease, lease.session)).collect();
        assert_eq!(live, self.held, "the engine's leases are the model's");
        for pool in self.engine.pools() {
            let running = leases.iter().filter(|lease| lease.pool == pool && !lease.suspended).count();
            let figures = self.engine.pool_figures(pool).expect("it is a pool");
            assert!(figures.in_flight as usize == running && running <= 4, "{running} run, {figures:?}");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![
        [[0, 0, 0x10], [0, 0, 0x10], [3, 0, 0], [4, 0, 1], [11, 255, 0]].concat(),
        [[0, 0, 0x10], [6, 0, 0], [7, 0, 0], [5, 0, 0], [3, 0, 0]].concat(),
        [[0, 1, 0x14], [8, 1, 0], [11, 200, 0], [9, 1, 1], [9, 1, 8]].concat(),
        [[0, 0, 0x10]; 9].concat(),
        [[10, 1, 0], [10, 2, 2], [1, 0, 0x20], [2, 12, 0x21], [0, 34, 0]].concat(),
    ]
}
