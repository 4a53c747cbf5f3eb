//! A state with the numbers of a record: who held how much is made up wherever the rule does not look at it.

use governor_api::{Decision, Numbers, Outcome};
use governor_engine::Engine;
use governor_engine::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, TrafficId};
use governor_engine::io::{self, Acquire, Held, Input, Level, MemberNews, Output, Priority};
use governor_engine::policy::{
    Anonymous, ClassPolicy, Entitlement, FairShare, Headroom, MemberPolicy, Mode, NodePolicy, OrgPolicy, Override,
    Policy, PoolPolicy, TrafficPolicy,
};
use governor_engine::time::{Duration, Instant};
use governor_user::control::views;
use governor_user::naming::ANONYMOUS;
use governor_user::records::journal::Entry;

const SESSION: SessionId = SessionId(1);
const POOL: PoolId = PoolId(0);
/// What else the node handles.
const ELSEWHERE: PoolId = PoolId(1);
const MEMBER: MemberId = MemberId(0);
const ASKING: KeyId = KeyId(1);
const ORG: OrgId = OrgId(1);
const CLASS: ClassId = ClassId(0);
const TRAFFIC: TrafficId = TrafficId(0);
const HOUR: Duration = Duration::from_secs(3600);
/// Slots of a member that never fills.
const PLENTY: u32 = 1_000_000;
const CONTRADICTION: &str = "its numbers contradict each other";

/// What the engine says.
#[derive(Debug)]
pub(super) enum Answer {
    /// A decision: refused, or recorded and not carried out.
    Decided(Box<Decision>),
    /// Nothing stands in the way.
    Granted,
    /// It may wait.
    Waits,
}

/// An engine, and the request to make.
#[derive(Debug)]
pub(super) struct State {
    engine: Engine,
    ask: Acquire,
    pool: String,
    leases: u64,
}

impl State {
    /// Rebuilds it.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub(super) fn rebuild(record: &Decision) -> Result<Self, &'static str> {
        let n = &record.numbers;
        let reason = record.reason.as_str();
        if ["queue_full", "key_queue_full"].contains(&reason) {
            return Err("it depends on who waited, which a record does not list");
        }
        let engine = Engine::new(policy(record), 1).map_err(|_| CONTRADICTION)?;
        // One that names no key was judged under an identity of its own, unless its pool lets such requests bypass.
        let bypassed = |key: &&String| *key == ANONYMOUS && n.active_keys == 0;
        let asking = record.key.as_ref().filter(|key| !bypassed(key)).map(|_| ASKING);
        let in_org = record.origin == "org";
        let ask = Acquire {
            session: SESSION,
            request: RequestId(1),
            pool: POOL,
            key: asking,
            org: in_org.then_some(ORG),
            class: (reason == "class_cap").then_some(CLASS),
            traffic: (reason == "sub_capacity").then_some(TRAFFIC),
            priority: if reason == "overload" { Priority::Sheddable } else { Priority::Normal },
            // Who waits first is refused later, on the same numbers.
            max_wait: (record.outcome != Outcome::WouldPark).then_some(Duration::ZERO),
            ..Acquire::default()
        };
        let mut state = Self { engine, ask, pool: record.pool.clone(), leases: 0 };
        state.hold_of_the_asking(n, reason)?;
        state.hold_of_the_others(n)?;
        state.hold_elsewhere(n, reason)?;
        state.set_the_scene(n, reason, record.outcome);
        while state.engine.poll_output().is_some() {}
        Ok(state)
    }

    /// Makes the request.
    pub(super) fn ask(&mut self) -> Answer {
        let ask = self.ask.clone();
        self.engine.handle_input(Input::Acquire(ask), Instant::ZERO);
        let mut answer = Answer::Granted;
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Refused { decision, .. } | Output::WouldHave { decision } => {
                    answer = Answer::Decided(Box::new(self.in_words_of_a_record(*decision)));
                }
                Output::Parked { .. } => answer = Answer::Waits,
                Output::Began(_)
                | Output::Passed { .. }
                | Output::Moved { .. }
                | Output::Resumed(_)
                | Output::Suspended { .. }
                | Output::Ended { .. }
                | Output::Unparked { .. }
                | Output::Rejected { .. }
                | Output::Registered { .. }
                | Output::UnknownLease { .. }
                | Output::ClientGone { .. }
                | Output::TierAsk { .. }
                | Output::SessionEnded { .. }
                | Output::MemberChanged { .. }
                | Output::LimitsChanged { .. }
                | Output::ModeChanged { .. } => {}
            }
        }
        answer
    }

    fn in_words_of_a_record(&self, decision: io::Decision) -> Decision {
        let entry = Entry { decision, pool: self.pool.clone(), label: None, class: None };
        views::numbers(&entry, Instant::ZERO)
    }

    /// The key's own leases, and those of its org.
    fn hold_of_the_asking(&mut self, n: &Numbers, reason: &str) -> Result<(), &'static str> {
        let own = Held { org: self.ask.org, class: self.ask.class, ..self.held(self.ask.key) };
        let kind = if reason == "sub_capacity" { self.ask.traffic } else { None };
        self.hold(n.key_in_flight, &Held { traffic: kind, ..own.clone() });
        if self.ask.org.is_some() && n.unit_in_flight > 0 {
            let siblings = n.unit_in_flight.checked_sub(n.key_in_flight).ok_or(CONTRADICTION)?;
            self.hold(siblings, &Held { key: Some(KeyId(2)), ..own });
        }
        Ok(())
    }

    /// Everybody else's leases in the pool.
    fn hold_of_the_others(&mut self, n: &Numbers) -> Result<(), &'static str> {
        let mine = if self.ask.org.is_some() && n.unit_in_flight > 0 { n.unit_in_flight } else { n.key_in_flight };
        let rest = n.in_flight.checked_sub(mine).ok_or(CONTRADICTION)?;
        let active = u32::from(self.ask.key.is_some()) + u32::from(mine > n.key_in_flight);
        let others = n.active_keys.checked_sub(active).ok_or(CONTRADICTION)?;
        let heavy = if n.filled > 0 { self.heaviest(n, rest, others)? } else { rest.min(1) };
        let light = others.saturating_sub(1);
        let without = if others == 0 { rest } else { rest.checked_sub(heavy + light).ok_or(CONTRADICTION)? };
        // Without a level to mind, the first of the others has what is left over.
        let (heavy, without) = if others > 0 && n.filled == 0 { (heavy + without, 0) } else { (heavy, without) };
        let key = |number: u32| Some(KeyId(u128::from(number) + 10));
        if others > 0 {
            self.hold(heavy, &self.held(key(0)));
        }
        for number in 0..light {
            self.hold(1, &self.held(key(number + 1)));
        }
        self.hold(without, &self.held(None));
        Ok(())
    }

    /// What the heaviest of the others holds, so that all of them fill up to what the record says: what is over the
    /// level of the asking is held and not counted.
    fn heaviest(&self, n: &Numbers, rest: u32, others: u32) -> Result<u32, &'static str> {
        let level = (n.unit_in_flight + 1) / n.weight.max(1);
        let filled = n.filled.checked_sub(n.unit_in_flight + 1).ok_or(CONTRADICTION)?;
        match rest.checked_sub(filled) {
            None => Err("it depends on requests that waited, which a record does not list"),
            Some(0) => Ok(u32::from(others > 0)),
            Some(over) => Ok(level + over),
        }
    }

    /// What counts on the node or against a cap and is not in this pool.
    fn hold_elsewhere(&mut self, n: &Numbers, reason: &str) -> Result<(), &'static str> {
        let in_pool = self.ask.org.map_or(n.key_in_flight, |_| n.unit_in_flight.max(n.key_in_flight));
        let (count, held) = match reason {
            "node_cap" => (n.node_counted.checked_sub(n.in_flight), self.held(None)),
            "key_cap" | "org_cap" | "class_cap" => {
                let own = Held { org: self.ask.org, class: self.ask.class, ..self.held(self.ask.key) };
                (n.limited.checked_sub(in_pool), own)
            }
            _ => return Ok(()),
        };
        self.hold(count.ok_or(CONTRADICTION)?, &Held { pool: ELSEWHERE, ..held });
        Ok(())
    }

    fn set_the_scene(&mut self, n: &Numbers, reason: &str, outcome: Outcome) {
        let cap = Entitlement { cap: Some(n.limit), ..Entitlement::default() };
        let fact = match reason {
            "all_cooling" => Input::MemberReport {
                session: SESSION,
                pool: POOL,
                member: MEMBER,
                news: MemberNews::RateLimited { until: Some(Instant::ZERO.after(HOUR)) },
            },
            "draining" => Input::Drain { on: true },
            "overload" => Input::OverloadChanged { level: Level::Overloaded },
            "suspended" => {
                Input::Override { key: ASKING, with: Some(Override { suspend: true, ..Override::default() }) }
            }
            "key_cap" => {
                Input::Override { key: ASKING, with: Some(Override { entitlement: cap, ..Override::default() }) }
            }
            _ => return,
        };
        debug_assert!(reason != "suspended" || outcome == Outcome::Shed, "a suspension is never only recorded");
        self.engine.handle_input(fact, Instant::ZERO);
    }

    fn held(&self, key: Option<KeyId>) -> Held {
        Held { session: SESSION, pool: POOL, key, member: Some(MEMBER), restored: true, ..Held::default() }
    }

    fn hold(&mut self, count: u32, held: &Held) {
        for _ in 0..count {
            self.leases += 1;
            let held = Held { lease: LeaseId(self.leases), ..held.clone() };
            self.engine.handle_input(Input::Register(held), Instant::ZERO);
        }
    }
}

fn policy(record: &Decision) -> Policy {
    let n = &record.numbers;
    let reason = record.reason.as_str();
    let mode = if record.outcome == Outcome::Shed { Mode::Enforce } else { Mode::Observe };
    let limited = |by: &str| Entitlement { cap: (reason == by).then_some(n.limit), ..Entitlement::default() };
    let unit = Entitlement {
        weight: (n.weight > 0).then_some(n.weight),
        floor: (n.floor > 0).then_some(n.floor),
        ..limited("org_cap")
    };
    // What cools counts in no capacity, so a record does not tell how many slots there were.
    let slots = if reason == "all_cooling" { PLENTY } else { n.capacity };
    let member = |slots| vec![MemberPolicy { name: "member".to_owned(), slots, ..MemberPolicy::default() }];
    Policy {
        node: NodePolicy {
            cap: if reason == "node_cap" { n.node_cap } else { 0 },
            max_parked: PLENTY,
            lease_ttl: HOUR,
            caps_mode: mode,
            shed_mode: mode,
            ..NodePolicy::default()
        },
        pools: vec![
            PoolPolicy {
                name: "pool".to_owned(),
                members: member(slots),
                fair_share: rule(n, reason),
                mode,
                // What the others hold without a key is nobody's.
                anonymous: Anonymous::Bypass,
                min_guarantee: guarantee(n),
                exhausted_status: if reason == "pool_exhausted" || reason == "sub_capacity" {
                    record.status
                } else {
                    429
                },
                traffic: vec![TrafficPolicy { name: "traffic".to_owned(), slots: n.limit }],
                ..PoolPolicy::default()
            },
            PoolPolicy { name: "elsewhere".to_owned(), members: member(PLENTY), ..PoolPolicy::default() },
        ],
        classes: vec![ClassPolicy { name: "class".to_owned(), entitlement: limited("class_cap") }],
        orgs: vec![OrgPolicy { org: ORG, entitlement: unit }],
        keys: vec![governor_engine::policy::KeyPolicy { key: ASKING, entitlement: Entitlement { cap: None, ..unit } }],
    }
}

/// The rule that the numbers are of: only `max-min` fills up to a level.
fn rule(n: &Numbers, reason: &str) -> FairShare {
    if reason != "fair_share" {
        FairShare::Off
    } else if n.filled > 0 {
        FairShare::MaxMin { headroom: Headroom::Slots(n.headroom) }
    } else {
        // Any threshold at or below the use that was found makes the pool as congested as it was.
        let percent = (u64::from(n.in_flight) * 100).checked_div(n.capacity.into()).unwrap_or(100).clamp(1, 100);
        FairShare::EqualSplit { threshold: u8::try_from(percent).unwrap_or(100) }
    }
}

/// A record tells the share, which is the guarantee where that is more than the split.
fn guarantee(n: &Numbers) -> u32 {
    let split = n.capacity.checked_div(n.active_keys).unwrap_or(n.capacity);
    if n.share > split { n.share } else { 1 }
}
