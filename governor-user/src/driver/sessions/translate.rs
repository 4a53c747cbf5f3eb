//! Wire messages to engine inputs and engine outputs to wire messages: names become ids here and ids names. Decides
//! nothing.

use crate::naming::{millis, reason};
use crate::records::journal::Entry;
use governor_common::wire::KeyHash;
use governor_common::wire::reply::{self, Reply};
use governor_common::wire::request;
use governor_engine::Engine;
use governor_engine::id::{KeyId, LeaseId, MemberId, OrgId, PoolId, RequestId, SessionId, SiteId};
use governor_engine::io::{
    Acquire, Context, EndCause, Grant, Held, Input, Kind, Level, MemberNews, Numbers, Origin, Parent, Priority, Reason,
    RejectReason,
};
use governor_engine::time::{Duration, Instant};
use governor_observation::wording::{Counted, counted};

/// An `Acquire` with its names resolved, and with the candidates that frames before it named.
///
/// # Errors
/// One sentence for the client: a pool or member that is not configured.
pub fn acquire(
    engine: &Engine,
    session: SessionId,
    id: u32,
    asked: &request::Acquire<&str>,
    earlier: &[Box<str>],
    now: Instant,
) -> Result<Acquire, String> {
    let pool = engine.pool_id(asked.pool).ok_or_else(|| format!("no pool named \"{}\"", asked.pool))?;
    let member = |name: &str| {
        engine.member_id(pool, name).ok_or_else(|| format!("no member named \"{name}\" in pool \"{}\"", asked.pool))
    };
    let candidates = earlier.iter().map(|name| member(name)).chain(asked.candidates.iter().map(|name| member(name)));
    Ok(Acquire {
        session,
        request: RequestId(id),
        pool,
        key: asked.key.map(key),
        candidates: candidates.collect::<Result<_, _>>()?,
        sticky: asked.sticky.map(member).transpose()?,
        max_wait: asked.max_wait_ms.map(duration),
        deadline: asked.deadline_ms.map(|ms| now.after(duration(ms))),
        kind: kind(asked.kind),
        org: asked.org.map(org),
        // What is not configured is none: a proxy may be ahead of the configuration.
        class: asked.class.as_ref().and_then(|name| engine.class_id(name)),
        priority: priority(asked.priority),
        traffic: asked.traffic.as_ref().and_then(|name| engine.traffic_id(pool, name)),
        parent: asked.parent.map(|parent| match parent {
            request::Parent::Child { lease } => Parent::Child(LeaseId(lease)),
            request::Parent::Hop { lease } => Parent::Hop(LeaseId(lease)),
        }),
        ends_with_client: asked.ends_with_client,
        // Known to the driver only.
        site: SiteId::default(),
    })
}

/// A session's answer about an org's tier.
#[must_use]
pub fn tier(engine: &Engine, session: SessionId, told: &request::TierIs) -> Input {
    let class = told.class.as_ref().and_then(|name| engine.class_id(name));
    Input::TierIs { session, org: org(told.org), class, ttl: duration(told.ttl_ms) }
}

/// A session's report about a member; `None` if there is no such member.
#[must_use]
pub fn member_report(
    engine: &Engine,
    session: SessionId,
    report: &request::MemberReport,
    now: Instant,
) -> Option<Input> {
    let (pool, member) = find_member(engine, &report.pool, &report.member)?;
    let news = match report.state {
        request::MemberNews::RateLimited { reset_ms } => {
            MemberNews::RateLimited { until: reset_ms.map(|ms| now.after(duration(ms))) }
        }
        request::MemberNews::Overloaded => MemberNews::Overloaded,
        request::MemberNews::Up => MemberNews::Up,
    };
    Some(Input::MemberReport { session, pool, member, news })
}

/// A lease to register; `None` if its pool is not configured. A member that is gone counts as none.
#[must_use]
pub fn held(engine: &Engine, session: SessionId, lease: &request::HeldLease) -> Option<Held> {
    let pool = engine.pool_id(&lease.pool)?;
    Some(Held {
        session,
        lease: LeaseId(lease.lease),
        pool,
        key: lease.key.map(key),
        member: lease.member.as_ref().and_then(|name| engine.member_id(pool, name)),
        kind: kind(lease.kind),
        age: duration(lease.age_ms),
        org: lease.org.map(org),
        class: lease.class.as_ref().and_then(|name| engine.class_id(name)),
        priority: priority(lease.priority),
        traffic: lease.traffic.as_ref().and_then(|name| engine.traffic_id(pool, name)),
        ends_with_client: lease.ends_with_client,
        site: SiteId::default(),
        suspended: lease.suspended,
        restored: false,
    })
}

/// A grant: lease, milliseconds waited, and its member's name.
#[must_use]
pub fn grant<'a>(engine: &'a Engine, grant: &Grant) -> (u64, u32, Option<&'a str>) {
    let Context { pool, member, .. } = grant.context;
    (grant.lease.0, millis(grant.waited), member.and_then(|member| engine.member_name(pool, member)))
}

fn requests(count: u32) -> Counted<'static> {
    counted(count, "request", "requests")
}

/// A refusal with its sentence.
#[must_use]
pub fn shed(entry: &Entry) -> Reply {
    let decision = &entry.decision;
    let numbers = &decision.numbers;
    let pool = &entry.pool;
    // Numbers of the caller and of the whole pool; no other key is ever named.
    let whose = decision.key.map_or("the identity that requests without a key share", |_| "your key");
    let of_whom = if decision.key.is_none() { " when a request without a key comes" } else { "" };
    let detail = match decision.reason {
        Reason::FairShare => format!(
            "{whose} holds {} of its share of {}; pool {pool} has {} of {} in use by {}",
            numbers.key_in_flight,
            numbers.share,
            numbers.in_flight,
            counted(numbers.capacity, "slot", "slots"),
            counted(numbers.active_keys, "active key", "active keys"),
        ),
        Reason::PoolExhausted if numbers.capacity == 0 => {
            format!("no member of pool {pool} takes requests now")
        }
        Reason::PoolExhausted => {
            format!("all slots of pool {pool} are in use: {} of {}", numbers.in_flight, numbers.capacity)
        }
        Reason::AllCooling => format!("every member of pool {pool} is rate limited upstream"),
        Reason::NodeCap => {
            format!("this node handles {} of at most {}", numbers.node_counted, requests(numbers.node_cap))
        }
        Reason::KeyQueueFull => {
            format!("{whose} has {} waiting for pool {pool} already, the most it may have", requests(numbers.limited))
        }
        Reason::QueueFull if decision.origin == Origin::Node => {
            format!("{} are waiting on this node, at most {} may{of_whom}", requests(numbers.limited), numbers.limit)
        }
        Reason::QueueFull => {
            format!("{} are waiting for pool {pool}, at most {} may{of_whom}", requests(numbers.limited), numbers.limit)
        }
        Reason::Overload => "this node is overloaded".to_owned(),
        Reason::Suspended => "an operator suspended your key".to_owned(),
        Reason::Draining => "this node is being drained and takes nothing new".to_owned(),
        Reason::KeyCap => format!("your key has {} of at most {}", numbers.limited, requests(numbers.limit)),
        Reason::OrgCap => format!("your organisation has {} of at most {}", numbers.limited, requests(numbers.limit)),
        Reason::ClassCap => format!("your plan allows {} at a time: {}", requests(numbers.limit), numbers.limited),
        Reason::SubCapacity => {
            let slots = counted(numbers.limit, "slot", "slots");
            format!("this kind of traffic fills its {slots} of pool {pool}: {}", numbers.limited)
        }
    };
    Reply::Shed(reply::Shed {
        status: decision.status,
        origin: match decision.origin {
            Origin::Key => reply::Origin::Key,
            Origin::Org => reply::Origin::Org,
            Origin::Pool => reply::Origin::Pool,
            Origin::Node => reply::Origin::Node,
            Origin::Upstream => reply::Origin::Upstream,
        },
        reason: reason(decision.reason).to_owned(),
        retry_after_ms: millis(decision.retry_after),
        decision: decision.id.0,
        detail,
        quota: quota(decision.reason, numbers),
    })
}

/// What the limit that refused allows at a time; waiting rooms, levels and suspensions are no such number.
fn quota(reason: Reason, numbers: &Numbers) -> Option<u32> {
    match reason {
        Reason::FairShare => Some(numbers.share),
        Reason::PoolExhausted => Some(numbers.capacity),
        Reason::NodeCap => Some(numbers.node_cap),
        Reason::KeyCap | Reason::OrgCap | Reason::ClassCap | Reason::SubCapacity => Some(numbers.limit),
        Reason::AllCooling
        | Reason::KeyQueueFull
        | Reason::QueueFull
        | Reason::Overload
        | Reason::Suspended
        | Reason::Draining => None,
    }
}

/// What is wrong with a request, for the proxy's developer.
#[must_use]
pub fn reject(why: RejectReason) -> &'static str {
    match why {
        RejectReason::UnknownPool => "no such pool",
        RejectReason::UnknownMember => "a candidate or sticky member is not in the pool",
        RejectReason::DuplicateRequest => "this request id is still unanswered",
        RejectReason::ReattachWithoutMember => "a re-attach names the member of its running session",
        RejectReason::NoSuchLease => "this session holds no such lease, or not in the state this needs",
        RejectReason::ClientGone => "its client is gone",
    }
}

/// Why a lease was revoked, on the wire; `None` where its holder knows of the end.
#[must_use]
pub fn revoke(cause: EndCause) -> Option<reply::RevokeReason> {
    match cause {
        EndCause::Expired => Some(reply::RevokeReason::Expired),
        EndCause::Reclaimed => Some(reply::RevokeReason::Reclaimed),
        EndCause::Revoked => Some(reply::RevokeReason::Operator),
        EndCause::PoolGone => Some(reply::RevokeReason::PoolGone),
        EndCause::Released | EndCause::NotMoved | EndCause::SessionGone => None,
    }
}

/// The level as the engine takes it.
#[must_use]
pub fn level(level: reply::Level) -> Level {
    match level {
        reply::Level::Normal => Level::Normal,
        reply::Level::Elevated => Level::Elevated,
        reply::Level::High => Level::High,
        reply::Level::Overloaded => Level::Overloaded,
    }
}

fn key(hash: KeyHash) -> KeyId {
    KeyId(u128::from_be_bytes(hash.0))
}

fn org(hash: KeyHash) -> OrgId {
    OrgId(u128::from_be_bytes(hash.0))
}

fn priority(priority: request::Priority) -> Priority {
    match priority {
        request::Priority::Critical => Priority::Critical,
        request::Priority::Normal => Priority::Normal,
        request::Priority::Sheddable => Priority::Sheddable,
    }
}

fn kind(kind: request::Kind) -> Kind {
    match kind {
        request::Kind::Ordinary => Kind::Ordinary,
        request::Kind::Reattach => Kind::Reattach,
        request::Kind::Exempt => Kind::Exempt,
    }
}

fn duration(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// The member of these names.
#[must_use]
pub fn find_member(engine: &Engine, pool: &str, member: &str) -> Option<(PoolId, MemberId)> {
    let pool = engine.pool_id(pool)?;
    Some((pool, engine.member_id(pool, member)?))
}
