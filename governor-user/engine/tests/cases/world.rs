//! An engine, its clock, and what a test asks of them.

use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, PoolId, RequestId, SessionId};
use governor_engine::io::{Acquire, EndCause, Grant, Input, Kind, MemberNews, Origin, Output, Reason};
use governor_engine::policy::{FairShare, MemberPolicy, Mode, NodePolicy, Policy, PoolPolicy};
use governor_engine::time::{Duration, Instant};

pub(crate) const SESSION: SessionId = SessionId(1);
pub(crate) const POOL: PoolId = PoolId(0);

pub(crate) fn policy(slots: &[u32]) -> Policy {
    let member =
        |(n, slots): (usize, &u32)| MemberPolicy { name: format!("m{n}"), slots: *slots, reserve: 0, draining: false };
    Policy {
        node: NodePolicy { lease_ttl: Duration::from_secs(3600), ..NodePolicy::default() },
        pools: vec![PoolPolicy {
            name: "pool".to_owned(),
            members: slots.iter().enumerate().map(member).collect(),
            fair_share: FairShare::EqualSplit { threshold: 80 },
            mode: Mode::Enforce,
            min_guarantee: 2,
            max_wait: Duration::from_secs(30),
            max_parked_per_key: 16,
            exhausted_status: 429,
            rate_limited_cooldown: Duration::from_secs(30),
            overloaded_cooldown: Duration::from_secs(10),
            ..PoolPolicy::default()
        }],
        ..Policy::default()
    }
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: Instant,
    pub(crate) next: u32,
}

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        let engine = Engine::new(policy, 1).expect("the policy is sound");
        Self { engine, now: Instant::ZERO, next: 0 }
    }

    pub(crate) fn put(&mut self, input: Input) -> Vec<Output> {
        self.engine.handle_input(input, self.now);
        self.outputs()
    }

    pub(crate) fn at(&mut self, millis: u64) -> Vec<Output> {
        self.now = Instant::ZERO.after(Duration::from_millis(millis));
        self.engine.handle_timeout(self.now);
        self.outputs()
    }

    /// What sessions are sent; [`Self::stream`] has every order.
    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        self.stream().into_iter().filter(is_sent).collect()
    }

    pub(crate) fn stream(&mut self) -> Vec<Output> {
        self.engine.check_invariants();
        std::iter::from_fn(|| self.engine.poll_output()).collect()
    }

    pub(crate) fn ask(&mut self, change: impl FnOnce(&mut Acquire)) -> Vec<Output> {
        self.next += 1;
        let mut acquire = Acquire {
            session: SESSION,
            request: RequestId(self.next),
            pool: POOL,
            key: None,
            candidates: vec![],
            sticky: None,
            max_wait: None,
            deadline: None,
            kind: Kind::Ordinary,
            ..Acquire::default()
        };
        change(&mut acquire);
        self.put(Input::Acquire(acquire))
    }

    pub(crate) fn ask_for(&mut self, key: u128) -> Vec<Output> {
        self.ask(|acquire| acquire.key = Some(KeyId(key)))
    }

    pub(crate) fn held_for(&mut self, key: u128) -> LeaseId {
        lease(&self.ask_for(key))
    }

    pub(crate) fn release(&mut self, lease: LeaseId) -> Vec<Output> {
        self.put(Input::Release { session: SESSION, lease })
    }

    pub(crate) fn report(&mut self, member: u32, news: MemberNews) -> Vec<Output> {
        self.put(Input::MemberReport { session: SESSION, pool: POOL, member: MemberId(member), news })
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.engine.snapshot().pools[0].in_flight
    }

    /// As the pool's counter has it.
    pub(crate) fn granted(&self) -> u64 {
        self.engine.pool_figures(PoolId(0)).expect("there is a pool").granted
    }
}

pub(crate) fn lease(outputs: &[Output]) -> LeaseId {
    one_grant(outputs).lease
}

pub(crate) fn member(outputs: &[Output]) -> u32 {
    one_grant(outputs).context.member.expect("a member").0
}

fn one_grant(outputs: &[Output]) -> &Grant {
    match outputs {
        [order] => order.grant().unwrap_or_else(|| panic!("not a grant: {order:?}")),
        other => panic!("not one grant: {other:?}"),
    }
}

pub(crate) fn is_parked(outputs: &[Output]) -> bool {
    matches!(outputs, [Output::Parked { .. }])
}

pub(crate) fn shed(outputs: &[Output]) -> (Reason, Origin, u16) {
    match outputs {
        [Output::Refused { decision, .. }] => (decision.reason, decision.origin, decision.status),
        other => panic!("not one refusal: {other:?}"),
    }
}

/// Sessions hear of answers, and of leases that others ended.
fn is_sent(order: &Output) -> bool {
    match order {
        Output::Ended { cause, .. } => {
            matches!(cause, EndCause::Expired | EndCause::Reclaimed | EndCause::Revoked | EndCause::PoolGone)
        }
        Output::Parked { .. }
        | Output::Registered { .. }
        | Output::UnknownLease { .. }
        | Output::ClientGone { .. }
        | Output::WouldHave { .. }
        | Output::TierAsk { .. } => true,
        Output::Suspended { .. }
        | Output::Unparked { .. }
        | Output::SessionEnded { .. }
        | Output::MemberChanged { .. }
        | Output::LimitsChanged { .. }
        | Output::ModeChanged { .. } => false,
        Output::Began(_)
        | Output::Passed { .. }
        | Output::Moved { .. }
        | Output::Resumed(_)
        | Output::Refused { .. }
        | Output::Rejected { .. } => true,
    }
}

/// The lease and the cause, for an end that a session hears of.
pub(crate) fn ended(order: &Output) -> Option<(LeaseId, EndCause)> {
    let Output::Ended { lease, cause, .. } = order else { return None };
    Some((*lease, *cause))
}
