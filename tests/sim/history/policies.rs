//! Policies at random: small numbers, so that every limit is met.

use governor_engine::id::{KeyId, OrgId};
use governor_engine::policy::{
    Anonymous, ClassPolicy, Entitlement, FairShare, Headroom, KeyPolicy, MemberPolicy, Mode, NodePolicy, OrgPolicy,
    Policy, PoolPolicy, TrafficPolicy,
};
use governor_engine::time::Duration;
use support::random::Random;

pub(super) fn any_policy(random: &mut Random) -> Policy {
    let seconds = |n: u64| Duration::from_secs(n);
    let pools: &[&str] = if random.chance(92) { &["first", "second"] } else { &["second"] };
    let classes: &[&str] = if random.chance(85) { &["free", "pro", "most"] } else { &["pro"] };
    let plain = random.chance(25);
    let node = NodePolicy {
        cap: if random.chance(50) { 0 } else { random.within(6, 30) },
        max_parked: random.within(2, 20),
        lease_ttl: seconds(random.below(30) + 1),
        session_grace: seconds(random.below(5)),
        reclaim_grace: seconds(random.below(4)),
        caps_mode: any_mode(random),
        shed_mode: any_mode(random),
        default_class: random.chance(40).then(|| "pro".to_owned()),
    };
    let mut policy = Policy {
        node,
        pools: pools.iter().map(|name| any_pool(random, name)).collect(),
        classes: vec![],
        orgs: vec![],
        keys: vec![],
    };
    for name in classes {
        let entitlement = if plain { Entitlement::default() } else { any_entitlement(random) };
        policy.classes.push(ClassPolicy { name: (*name).to_owned(), entitlement });
    }
    if !plain {
        let orgs = (1..=2).filter(|_| random.chance(30)).collect::<Vec<u128>>();
        policy.orgs =
            orgs.iter().map(|org| OrgPolicy { org: OrgId(*org), entitlement: any_entitlement(random) }).collect();
        let keys = (0..5).filter(|_| random.chance(15)).collect::<Vec<u128>>();
        policy.keys =
            keys.iter().map(|key| KeyPolicy { key: KeyId(*key), entitlement: any_entitlement(random) }).collect();
    }
    policy
}

/// Something that [`Policy::check`] refuses.
pub(super) fn broken(mut policy: Policy, random: &mut Random) -> Policy {
    match random.below(4) {
        0 => policy.node.lease_ttl = Duration::ZERO,
        1 => policy.classes.push(ClassPolicy::default()),
        2 => policy.node.default_class = Some("nobody".to_owned()),
        _ => {
            let entitlement = Entitlement { floor: Some(3), cap: Some(2), ..Entitlement::default() };
            policy.classes = vec![ClassPolicy { name: "free".to_owned(), entitlement }];
            policy.node.default_class = None;
        }
    }
    policy
}

pub(super) fn any_entitlement(random: &mut Random) -> Entitlement {
    let cap = random.chance(30).then(|| random.within(0, 6));
    let floor = random.chance(30).then(|| random.within(0, 3));
    let possible = |floor: &u32| cap.is_none_or(|cap| cap == 0 || *floor <= cap);
    Entitlement { weight: random.chance(40).then(|| random.within(1, 4)), floor: floor.filter(possible), cap }
}

fn any_mode(random: &mut Random) -> Mode {
    if random.chance(70) { Mode::Enforce } else { Mode::Observe }
}

fn any_fair_share(random: &mut Random) -> FairShare {
    let mut within = |low, high| u16::try_from(random.within(low, high)).expect("a share");
    match within(0, 99) {
        0..12 => FairShare::Off,
        12..55 => FairShare::EqualSplit { threshold: u8::try_from(within(30, 100)).expect("a percentage") },
        55..80 => FairShare::MaxMin { headroom: Headroom::PerMille(within(0, 400)) },
        _ => FairShare::MaxMin { headroom: Headroom::Slots(u32::from(within(0, 4))) },
    }
}

fn any_pool(random: &mut Random, name: &str) -> PoolPolicy {
    let unlimited = random.chance(3);
    // Now and then all of them are off.
    let most = if random.chance(3) { 0 } else { 5 };
    let names: &[&str] = match random.below(100) {
        _ if unlimited => &[],
        0..84 => &["a", "b", "c"],
        84..99 => &["c", "a"],
        _ => &[],
    };
    let mut members = vec![];
    for name in names {
        members.push(MemberPolicy {
            name: (*name).to_owned(),
            slots: random.within(0, most),
            reserve: random.within(0, 2),
            draining: random.chance(8),
        });
    }
    let kinds: &[&str] = if random.chance(70) { &["media", "batch"] } else { &["batch"] };
    let kind = |name: &&str| TrafficPolicy { name: (*name).to_owned(), slots: random.within(0, 3) };
    let traffic = kinds.iter().map(kind).collect();
    PoolPolicy {
        name: name.to_owned(),
        members,
        unlimited,
        fair_share: any_fair_share(random),
        mode: any_mode(random),
        anonymous: if random.chance(75) { Anonymous::Judge } else { Anonymous::Bypass },
        min_guarantee: random.within(0, 2),
        max_wait: Duration::from_millis(random.below(9_000)),
        max_parked_per_key: random.within(1, 5),
        max_waiting: random.chance(40).then(|| random.within(0, 8)),
        exhausted_status: if random.chance(50) { 429 } else { 529 },
        rate_limited_cooldown: Duration::from_millis(random.below(9_000) + 1),
        overloaded_cooldown: Duration::from_millis(random.below(4_000) + 1),
        max_cooldown: Duration::from_millis(random.below(12_000) + 1),
        traffic,
    }
}
