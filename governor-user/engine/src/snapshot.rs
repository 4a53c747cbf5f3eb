//! Read-only views for display and metrics. Built on demand, sorted, owned; never on the decision path.

use crate::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, SessionId, SiteId, TrafficId};
pub use crate::io::{CoolingCause, MemberState};
use crate::io::{Kind, Level, Priority, Reason};
use crate::policy::{FairShare, Mode, Override};
use crate::time::{Duration, Instant};

/// The whole engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counted requests, granted or parked.
    pub node_counted: u32,
    /// Exempt work in progress is not tracked: number of exempt grants so far.
    pub exempt_total: u64,
    /// Bypass is on.
    pub bypass: bool,
    /// An operator drains the node.
    pub draining: bool,
    /// The overload level in force.
    pub level: Level,
    /// Orgs with anything in flight, parked or suspended, by org.
    pub orgs: Vec<OrgView>,
    /// Overrides that hold, by key.
    pub overrides: Vec<(KeyId, Override)>,
    /// Pools in policy order.
    pub pools: Vec<PoolView>,
    /// Counters since the engine was made.
    pub totals: Totals,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Index.
    pub pool: PoolId,
    /// Name.
    pub name: String,
    /// C over all members that count now.
    pub capacity: u32,
    /// The pool has no gate; its capacity of 0 bounds nothing.
    pub unlimited: bool,
    /// Leases in flight, on all members, cooling ones too.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// When the oldest parked request arrived.
    pub oldest_parked: Option<Instant>,
    /// The rule.
    pub fair_share: FairShare,
    /// Its mode.
    pub mode: Mode,
    /// Congested now, over all members.
    pub congested: bool,
    /// Slots kept for newcomers, over all members; 0 but under `max-min`.
    pub headroom: u32,
    /// `max-min`: the floors of those that hold or await something exceed C − H and are scaled down (A21).
    pub oversubscribed: bool,
    /// Keys with at least one in flight, over all members that count.
    pub active_keys: u32,
    /// Members in policy order.
    pub members: Vec<MemberView>,
    /// Keys with anything in flight or parked, by key; first those without one.
    pub keys: Vec<KeyView>,
    /// Orgs with anything in flight or parked, by org.
    pub orgs: Vec<PoolOrgView>,
    /// Kinds of traffic in policy order.
    pub traffic: Vec<TrafficView>,
}

/// One pool in figures that are kept anyway: what a look at it every few milliseconds may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// C over all members that count now.
    pub capacity: u32,
    /// The pool has no gate; its capacity of 0 bounds nothing.
    pub unlimited: bool,
    /// Leases in flight, on all members, cooling ones too.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// Congested now, over all members.
    pub congested: bool,
    /// Grants since the engine was made, of leases that resumed too, but not moves.
    pub granted: u64,
    /// Members in the policy.
    pub members: u32,
    /// Of those, the ones that are cooling.
    pub cooling: u32,
    /// Members that take requests unless they cool: with slots and not draining.
    pub usable: u32,
    /// Of the usable, those in a cool-down: `cooling` and the one that stays selectable because all others fail too.
    pub failing: u32,
    /// Reports since the engine was made that a member failed: rate-limited, overloaded or not reached.
    pub failures: u64,
    /// Reports that a member is up.
    pub recoveries: u64,
    /// Refusals for want of a slot since the engine was made: those of caps, of suspended keys and of the level are not
    /// among them.
    pub refused: u64,
    /// All refusals since the engine was made, whatever their reason.
    pub refused_in_all: u64,
    /// Leases that their holder released since the engine was made, without those that were suspended then.
    pub ended: u64,
    /// Sum of the times those had held their slot.
    pub held: Duration,
}

/// One org on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgView {
    /// The org.
    pub org: OrgId,
    /// Its class: what its last request named, if that is there, or the default.
    pub class: Option<ClassId>,
    /// Requests in flight and parked, in all pools.
    pub counted: u32,
    /// What `counted` may come to; 0 is no limit.
    pub cap: u32,
    /// The tier that was answered and until when it holds; the tier is `None` if nothing was found.
    pub tier: Option<(Option<ClassId>, Instant)>,
}

/// One org in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOrgView {
    /// The org.
    pub org: OrgId,
    /// In flight.
    pub in_flight: u32,
    /// Parked.
    pub parked: u32,
    /// What it may hold while the pool is congested; `None` but under `max-min`.
    pub share: Option<u32>,
    /// Weight.
    pub weight: u32,
    /// Floor, as configured.
    pub floor: u32,
}

/// One kind of traffic in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficView {
    /// Index.
    pub traffic: TrafficId,
    /// Name.
    pub name: String,
    /// Its sub-capacity; 0 is no limit.
    pub slots: u32,
    /// In flight.
    pub in_flight: u32,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Index.
    pub member: MemberId,
    /// Name.
    pub name: String,
    /// Slots.
    pub slots: u32,
    /// Reserve.
    pub reserve: u32,
    /// In flight.
    pub in_flight: u32,
    /// `up`, `cooling`, `off` or `draining`. A member that fails but is kept selectable, because all others fail too,
    /// is `up`.
    pub state: MemberState,
    /// End of its cool-down, also of one that is kept selectable; `None` without one.
    pub cooling_until: Option<Instant>,
    /// What it cools for, also where it stays selectable; `None` if it does not.
    pub cooling: Option<CoolingCause>,
    /// An operator drained it at run time.
    pub drained: bool,
}

/// One key in one pool, or all requests there that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key; `None`: the requests that name none.
    pub key: Option<KeyId>,
    /// Its org: the one of its oldest lease, else of its oldest parked request.
    pub org: Option<OrgId>,
    /// In flight.
    pub in_flight: u32,
    /// Parked.
    pub parked: u32,
    /// What it may hold while the pool is congested; `None` where no rule is set, and for requests without a key that
    /// bypass it. Of a key in an org under `max-min`,
    /// what the org may hold.
    pub share: Option<u32>,
    /// Weight.
    pub weight: u32,
    /// Floor, as configured.
    pub floor: u32,
    /// Cap of its own on the node; 0 is no limit.
    pub cap: u32,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Id.
    pub lease: LeaseId,
    /// Holder.
    pub session: SessionId,
    /// Pool.
    pub pool: PoolId,
    /// Key.
    pub key: Option<KeyId>,
    /// Org.
    pub org: Option<OrgId>,
    /// Class of its org or key by now.
    pub class: Option<ClassId>,
    /// Kind of traffic.
    pub traffic: Option<TrafficId>,
    /// Priority.
    pub priority: Priority,
    /// Member; of a suspended lease, where it ran last.
    pub member: Option<MemberId>,
    /// Kind.
    pub kind: Kind,
    /// Nested work: new upstream work of another lease's holder.
    pub child: bool,
    /// Holds no slot: its holder is idle.
    pub suspended: bool,
    /// It may be reclaimed when its client's socket is gone.
    pub ends_with_client: bool,
    /// Its client's socket is gone.
    pub client_gone: bool,
    /// Where it was asked for.
    pub site: SiteId,
    /// When it was granted, or resumed last.
    pub granted: Instant,
    /// When it ends unless renewed; earlier if it is reclaimed.
    pub expires: Instant,
    /// When it last moved bytes, as far as its holder reported.
    pub moved: Option<Instant>,
}

/// Counters since the engine was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Grants, of leases that resumed too, but not moves, per pool in policy order.
    pub granted: Vec<u64>,
    /// Requests parked at least once, per pool in policy order.
    pub parked: Vec<u64>,
    /// Refusals per pool and reason, sorted; observe-mode records not among them.
    pub shed: Vec<(PoolId, Reason, u64)>,
    /// What enforce would have done: (pool, reason, would park, would refuse).
    pub would_have: Vec<(PoolId, Reason, u64, u64)>,
    /// Leases ended, by cause: released, expired, session gone, revoked.
    pub released: u64,
    /// See `released`.
    pub expired: u64,
    /// See `released`.
    pub session_gone: u64,
    /// See `released`.
    pub revoked: u64,
    /// Leases taken back after their client was gone: leaks.
    pub reclaimed: u64,
    /// Leases that their holder lost, by where they were asked for, sorted: those that expired and those reclaimed.
    pub lost: Vec<(SiteId, u64, u64)>,
    /// Leases suspended.
    pub suspended: u64,
    /// Suspended leases resumed.
    pub resumed: u64,
    /// Hops: they shared their parent's lease.
    pub hops: u64,
    /// Tiers asked for.
    pub tier_asks: u64,
    /// Answers about tiers that this session was not asked for, or that came twice.
    pub tier_answers_ignored: u64,
    /// Leases that a proxy claimed to hold and that were not believed.
    pub claims_refused: u64,
    /// Releases, renewals and the like of leases that were not there.
    pub unknown: u64,
    /// Grants made while bypass was on.
    pub bypassed: u64,
    /// Rejected requests.
    pub rejected: u64,
    /// Policies and overrides that were not taken because something in them is wrong.
    pub policies_refused: u64,
}

impl Totals {
    /// A lease was taken back because its holder did not renew it, or because its client was gone.
    pub(crate) fn lose(&mut self, site: SiteId, reclaimed: bool) {
        let at = self.lost.binary_search_by_key(&site, |(site, _, _)| *site).unwrap_or_else(|at| {
            self.lost.insert(at, (site, 0, 0));
            at
        });
        let (_, by_time, by_client) = &mut self.lost[at];
        *(if reclaimed { by_client } else { by_time }) += 1;
    }
}
