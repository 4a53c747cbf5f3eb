//! Admission for the time the daemon is away: what this process may run by the last limits it received, and what it
//! runs now. Counts while no daemon answers, decides only when asked; knows no socket and reads no clock.

use crate::config::Fallback;
use crate::lease::LeaseState;
use crate::lease::refused::Refused;
use crate::lease::request::Wire;
use governor_common::wire::KeyHash;
use governor_common::wire::reply::{Limits, Origin, PoolLimits};
use governor_common::wire::request::{Kind, MemberNews, MemberReport};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// `Retry-After` of a refusal by the fallback: a daemon is usually back within seconds.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a member is avoided after a refusal that names no reset.
const COOL_DOWN: Duration = Duration::from_secs(10);

/// Members that are remembered at most: more than a daemon's configuration may have.
const MOST_MEMBERS: usize = 65_536;
/// The longest cool-down that the fallback keeps, whatever reset a member names: the daemon's own default.
const LONGEST_COOL_DOWN: Duration = Duration::from_secs(600);

/// The fallback's memory and the counts it decides on.
#[derive(Debug)]
pub(crate) struct LocalShare {
    policy: Fallback,
    node_cap: u32,
    /// The last `Limits`, its pools in `pools`.
    limits: Option<Limits>,
    pools: BTreeMap<String, PoolLimits>,
    /// Members of `pools`.
    members: usize,
    /// `None` while the daemon counts.
    running: Option<Running>,
    cooling: BTreeMap<(String, String), Instant>,
}

/// What runs in this process.
#[derive(Debug, Default)]
struct Running {
    total: u32,
    pools: BTreeMap<Arc<str>, PoolCount>,
}

/// What runs in one pool.
#[derive(Debug, Default)]
struct PoolCount {
    in_flight: u32,
    /// `None`: the identity that requests without a key share.
    keys: BTreeMap<Option<KeyHash>, u32>,
    members: BTreeMap<Arc<str>, u32>,
}

impl LocalShare {
    /// Of a process that runs nothing yet. `node_cap` holds until limits are known.
    pub(crate) fn new(policy: Fallback, node_cap: u32) -> Self {
        Self {
            policy,
            node_cap,
            limits: None,
            pools: BTreeMap::new(),
            members: 0,
            running: Some(Running::default()),
            cooling: BTreeMap::new(),
        }
    }

    /// The daemon does not count any more: from here on this does, beginning with what runs.
    pub(crate) fn count<'a>(&mut self, runs: impl Iterator<Item = &'a LeaseState>) {
        self.running = Some(Running::default());
        runs.for_each(|lease| self.enter(lease));
    }

    /// The daemon counts again.
    pub(crate) fn rest(&mut self) {
        self.running = None;
    }

    /// Remembers what the daemon said last.
    pub(crate) fn learn(&mut self, mut limits: Limits) {
        let pools = std::mem::take(&mut limits.pools);
        self.limits = Some(limits);
        self.pools.clear();
        self.members = 0;
        self.learn_more(pools);
    }

    /// Remembers a further part of it.
    pub(crate) fn learn_more(&mut self, pools: Vec<PoolLimits>) {
        for mut pool in pools {
            pool.members.truncate(MOST_MEMBERS.saturating_sub(self.members));
            self.members += pool.members.len();
            if let Some(known) = self.pools.get_mut(&pool.name) {
                known.members.append(&mut pool.members);
            } else if self.pools.len() < MOST_MEMBERS {
                self.pools.insert(pool.name.clone(), pool);
            }
        }
    }

    /// Remembers what a member answered, so that it is avoided while no daemon can say so.
    pub(crate) fn report(&mut self, report: &MemberReport, now: Instant) {
        let until = match report.state {
            MemberNews::RateLimited { reset_ms: Some(ms) } => {
                Some(now + Duration::from_millis(ms.into()).min(LONGEST_COOL_DOWN))
            }
            MemberNews::RateLimited { reset_ms: None } | MemberNews::Overloaded => Some(now + COOL_DOWN),
            MemberNews::Up => None,
        };
        self.cooling.retain(|_, until| *until > now);
        let member = (report.pool.clone(), report.member.clone());
        match until {
            Some(until) => self.cooling.insert(member, until),
            None => self.cooling.remove(&member),
        };
    }

    /// A lease began, or runs again.
    pub(crate) fn enter(&mut self, lease: &LeaseState) {
        let Some(running) = self.running.as_mut().filter(|_| !lease.free) else { return };
        running.total += 1;
        let count = running.pools.entry(lease.ask.wire.pool.clone()).or_default();
        count.in_flight += 1;
        *count.keys.entry(lease.ask.wire.key).or_default() += 1;
        if let Some(member) = lease.member() {
            *count.members.entry(member).or_default() += 1;
        }
    }

    /// It ended, or does not run. Must mirror an `enter`.
    pub(crate) fn leave(&mut self, lease: &LeaseState) {
        let Some(running) = self.running.as_mut().filter(|_| !lease.free) else { return };
        let pool = &lease.ask.wire.pool;
        let Some(count) = running.pools.get_mut(pool) else { return };
        running.total -= 1;
        count.in_flight -= 1;
        decrement(&mut count.keys, &lease.ask.wire.key);
        if let Some(member) = lease.member() {
            decrement(&mut count.members, &member);
        }
        if count.in_flight == 0 {
            running.pools.remove(pool);
        }
    }

    /// A lease moves to another member.
    pub(crate) fn move_to(&mut self, lease: &LeaseState, member: Arc<str>) {
        let from = lease.member();
        lease.set_member(Some(member.clone()));
        let Some(running) = self.running.as_mut().filter(|_| !lease.free) else { return };
        let Some(count) = running.pools.get_mut(&lease.ask.wire.pool) else { return };
        if let Some(from) = from {
            decrement(&mut count.members, &from);
        }
        *count.members.entry(member).or_default() += 1;
    }

    /// Decides one request: the member to use, if any is known, or the refusal. `turn` spreads ties over the members.
    ///
    /// Order: exempt work passes; a closed fallback refuses; then the node cap; then, per pool, one slot for every key
    /// and the share ⌈C / sessions⌉ for all together.
    pub(crate) fn decide(&self, ask: &Wire, turn: u64, now: Instant) -> Result<Option<Arc<str>>, Refused> {
        if ask.kind == Kind::Exempt {
            return Ok(None);
        }
        if self.policy == Fallback::Closed {
            let detail = "the governor is away and this node is configured to wait for it";
            return Err(refuse(529, Origin::Node, "governor_away", detail.to_owned()));
        }
        let cap = self.node_share();
        if self.running.as_ref().is_some_and(|running| running.total >= cap) {
            let detail = format!("the governor is away and this process runs its limit of {cap} requests");
            return Err(refuse(529, Origin::Node, "node_cap", detail).with_quota(cap));
        }
        let Some(limits) = &self.limits else { return Ok(self.choose(ask, None, turn, now)) };
        let Some(pool) = self.pools.get(&*ask.pool) else {
            return Err(Refused::rejected(format!("pool {:?} does not exist", ask.pool)));
        };
        // No members means that the pool has no gate.
        if pool.members.is_empty() {
            return Ok(self.choose(ask, Some(pool), turn, now));
        }
        // A re-attach is part of work already admitted.
        if ask.kind == Kind::Ordinary {
            self.within_share(ask, pool, limits.sessions.max(1))?;
        }
        let member = self.choose(ask, Some(pool), turn, now);
        member.map(Some).ok_or_else(|| {
            let detail = format!("the governor is away and no member of pool {} that it may use has slots", ask.pool);
            refuse(429, Origin::Pool, "fallback_share", detail)
        })
    }

    /// Another member for a lease whose member refused; `None` when there is no other.
    pub(crate) fn other_member(&self, lease: &LeaseState, turn: u64, now: Instant) -> Option<Arc<str>> {
        let (pool, not) = (&lease.ask.wire.pool, lease.member());
        let known = self.pools.get(&**pool)?;
        let others = known.members.iter().filter(|(name, _)| Some(name.as_str()) != not.as_deref());
        let candidates = others.map(|(name, _)| name.as_str().into()).collect::<Vec<Arc<str>>>();
        if candidates.is_empty() {
            return None;
        }
        let ask = Wire { pool: pool.clone(), candidates, ..Wire::default() };
        self.choose(&ask, Some(known), turn, now)
    }

    /// Requests this process may run: its part of the node cap once the daemon has sent how many share it.
    fn node_share(&self) -> u32 {
        match &self.limits {
            Some(limits) if limits.node_cap > 0 => limits.node_cap.div_ceil(limits.sessions.max(1)),
            Some(_) | None => self.node_cap,
        }
    }

    fn within_share(&self, ask: &Wire, pool: &PoolLimits, sessions: u32) -> Result<(), Refused> {
        let count = self.running_in(&ask.pool);
        let in_flight = count.map_or(0, |count| count.in_flight);
        let share = pool.capacity.div_ceil(sessions);
        let first_of_key = count.is_none_or(|count| !count.keys.contains_key(&ask.key));
        if in_flight < share || first_of_key {
            return Ok(());
        }
        let detail = format!("the governor is away and this process runs {in_flight} of its {share} slots");
        Err(refuse(429, Origin::Pool, "fallback_share", detail).with_quota(share))
    }

    /// The sticky member, else the least loaded for its slots; members that cool only when there is no other, and none
    /// that is off.
    fn choose(&self, ask: &Wire, pool: Option<&PoolLimits>, turn: u64, now: Instant) -> Option<Arc<str>> {
        let names: Vec<(&str, u32)> = match pool {
            Some(pool) => {
                // A member without slots is off.
                let members = pool.members.iter().filter(|(_, slots)| *slots > 0);
                let members = members.map(|(name, slots)| (name.as_str(), *slots));
                let wanted: BTreeSet<&str> = ask.candidates.iter().map(|name| &**name).collect();
                members.filter(|(name, _)| wanted.is_empty() || wanted.contains(name)).collect()
            }
            None => ask.candidates.iter().map(|name| (&**name, 1)).collect(),
        };
        if let Some(sticky) = &ask.sticky {
            let known = pool.is_none() || names.iter().any(|(name, _)| **name == **sticky);
            if known && (ask.kind == Kind::Reattach || !self.is_cooling(&ask.pool, sticky, now)) {
                return Some(sticky.clone());
            }
            if ask.kind == Kind::Reattach {
                // Its session runs there and nowhere else.
                return None;
            }
        }
        let count = self.running_in(&ask.pool);
        let load = |name: &str| u64::from(count.and_then(|count| count.members.get(name)).copied().unwrap_or(0));
        let length = names.len();
        let start = usize::try_from(turn).unwrap_or(0).checked_rem(length)?;
        let rotated = names.iter().cycle().skip(start).take(length);
        let least = rotated.min_by(|(a, a_slots), (b, b_slots)| {
            let cooling = self.is_cooling(&ask.pool, a, now).cmp(&self.is_cooling(&ask.pool, b, now));
            cooling.then_with(|| (load(a) * u64::from(*b_slots)).cmp(&(load(b) * u64::from(*a_slots))))
        });
        least.map(|(name, _)| (*name).into())
    }

    fn running_in(&self, pool: &str) -> Option<&PoolCount> {
        self.running.as_ref()?.pools.get(pool)
    }

    fn is_cooling(&self, pool: &str, member: &str, now: Instant) -> bool {
        self.cooling.get(&(pool.to_owned(), member.to_owned())).is_some_and(|until| *until > now)
    }
}

fn refuse(status: u16, origin: Origin, reason: &str, detail: String) -> Refused {
    Refused::local(status, origin, reason, RETRY_AFTER, detail)
}

/// One less; a count that reaches 0 leaves the table.
fn decrement<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, u32>, key: &Q) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
