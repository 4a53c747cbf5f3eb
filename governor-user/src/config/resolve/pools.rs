//! Pools with their members and kinds of traffic.

use super::reader::Reader;
use crate::config::value::Value;
use governor_common::wire::codec::{MAX_LIMITS, pool_limits_length};
use governor_engine::policy::{Anonymous, FairShare, MemberPolicy, PoolPolicy, TrafficPolicy};
use governor_engine::time::Duration;
use std::collections::BTreeSet;

pub(super) fn pools(
    reader: &mut Reader<'_>,
    names: &BTreeSet<Vec<String>>,
    warnings: &mut Vec<String>,
) -> Vec<PoolPolicy> {
    let mut pools = Vec::new();
    for name in chosen(names, ["pools"]) {
        let key = |leaf: &str| format!("pools.{name}.{leaf}");
        let members: Vec<MemberPolicy> =
            chosen(names, ["pools", name, "members"]).map(|member_name| member(reader, name, member_name)).collect();
        let unlimited = matches!(reader.value(&key("unlimited")), Some(Value::Bool(true)));
        check_gate(reader, name, &members, unlimited, warnings);
        let traffic = traffic(reader, name, names, &members, warnings);
        let exhausted_status = match reader.integer(&key("exhausted_status")) {
            529 => 529,
            other => {
                if other != 429 {
                    reader.problem(&key("exhausted_status"), format!("expected 429 or 529, found {other}"));
                }
                429
            }
        };
        pools.push(PoolPolicy {
            name: name.clone(),
            members,
            unlimited,
            fair_share: match (reader.value(&key("fair_share")), reader.value(&key("headroom"))) {
                (Some(Value::FairShare(FairShare::MaxMin { .. })), Some(Value::Headroom(headroom))) => {
                    FairShare::MaxMin { headroom: *headroom }
                }
                (Some(Value::FairShare(rule)), _) => *rule,
                _ => FairShare::Off,
            },
            mode: reader.act(&key("fair_share_mode")),
            anonymous: match reader.text(&key("anonymous")).as_str() {
                "bypass" => Anonymous::Bypass,
                _ => Anonymous::Judge,
            },
            min_guarantee: reader.integer(&key("min_guarantee")),
            max_wait: reader.duration(&key("park.max_wait")),
            max_parked_per_key: reader.integer(&key("park.max_per_key")),
            max_waiting: reader.number(&key("park.max_waiting")),
            exhausted_status,
            rate_limited_cooldown: reader.duration(&key("cooldown.rate_limited")),
            overloaded_cooldown: reader.duration(&key("cooldown.overloaded")),
            max_cooldown: cooldown_max(reader, &key, warnings),
            traffic,
        });
    }
    check_limits(reader, &pools);
    pools
}

/// The names that the operator chose in a section. Looks at its part of `names` only, which are in order.
pub(super) fn chosen<'a, const N: usize>(
    names: &'a BTreeSet<Vec<String>>,
    section: [&str; N],
) -> impl Iterator<Item = &'a String> {
    let prefix = section.map(str::to_owned).to_vec();
    let within = names.range(prefix.clone()..).take_while(move |path| path.starts_with(&prefix));
    within.filter(|path| path.len() == N + 1).filter_map(|path| path.last())
}

/// Proxies are sent every pool and member for the time without a daemon.
fn check_limits(reader: &mut Reader<'_>, pools: &[PoolPolicy]) {
    let length =
        |pool: &PoolPolicy| pool_limits_length(&pool.name, pool.members.iter().map(|member| member.name.as_str()));
    let total: usize = pools.iter().map(length).sum();
    let Some(largest) = pools.iter().max_by_key(|pool| length(pool)).filter(|_| total > MAX_LIMITS) else { return };
    let members: usize = pools.iter().map(|pool| pool.members.len()).sum();
    let message = format!(
        "{} pools with {members} members take {total} bytes of what proxies are sent, at most {MAX_LIMITS}: use fewer \
         members or shorter names; \"{}\" is the largest with {} members",
        pools.len(),
        largest.name,
        largest.members.len()
    );
    reader.problem(&format!("pools.{}", largest.name), message);
}

/// The bound of cool-downs; the configured cool-downs that it cuts are warned of.
fn cooldown_max(reader: &mut Reader<'_>, key: &impl Fn(&str) -> String, warnings: &mut Vec<String>) -> Duration {
    let most = reader.duration(&key("cooldown.max"));
    for leaf in ["cooldown.rate_limited", "cooldown.overloaded"] {
        let wanted = reader.duration(&key(leaf));
        if wanted > most {
            let (wanted, most) = (wanted.as_secs_f64(), most.as_secs_f64());
            warnings.push(format!("{} of {wanted} s is cut to {} of {most} s", key(leaf), key("cooldown.max")));
        }
    }
    most
}

/// A pool has members or no gate; one whose members are all off grants nothing.
fn check_gate(
    reader: &mut Reader<'_>,
    pool: &str,
    members: &[MemberPolicy],
    unlimited: bool,
    warnings: &mut Vec<String>,
) {
    match members.first() {
        Some(MemberPolicy { name, .. }) if unlimited => reader.problem(
            &format!("pools.{pool}.unlimited"),
            format!("pool \"{pool}\" is unlimited and has member \"{name}\": remove its members, or unlimited"),
        ),
        None if !unlimited => reader.problem(
            &format!("pools.{pool}"),
            format!(
                "pool \"{pool}\" has no members: add [pools.{pool}.members.NAME] with its slots, or unlimited = true for \
                 a pool without a gate"
            ),
        ),
        Some(_) if members.iter().all(|member| member.slots == 0) => {
            warnings.push(format!("every member of pool \"{pool}\" has slots = 0 and is off: nothing is granted"));
        }
        Some(_) | None => {}
    }
}

fn traffic(
    reader: &Reader<'_>,
    pool: &str,
    names: &BTreeSet<Vec<String>>,
    members: &[MemberPolicy],
    warnings: &mut Vec<String>,
) -> Vec<TrafficPolicy> {
    let capacity = capacity(members);
    chosen(names, ["pools", pool, "traffic"])
        .map(|name| {
            let key = format!("pools.{pool}.traffic.{name}.slots");
            let slots = reader.integer(&key);
            if u64::from(slots) > capacity && capacity > 0 {
                warnings.push(format!("{key} = {slots} limits nothing: the pool has {capacity} ordinary slots"));
            }
            TrafficPolicy { name: name.clone(), slots }
        })
        .collect()
}

/// Ordinary slots of these members when all of them are up.
pub(super) fn capacity(members: &[MemberPolicy]) -> u64 {
    let of =
        |member: &MemberPolicy| if member.slots == 0 { 0 } else { member.slots.saturating_sub(member.reserve).max(1) };
    members.iter().map(|member| u64::from(of(member))).sum()
}

fn member(reader: &mut Reader<'_>, pool: &str, name: &str) -> MemberPolicy {
    let key = |leaf: &str| format!("pools.{pool}.members.{name}.{leaf}");
    let (slots, reserve) = (reader.integer(&key("slots")), reader.integer(&key("reserve")));
    if reserve > slots && slots > 0 {
        reader.problem(&key("reserve"), format!("a reserve of {reserve} does not fit into {slots} slots"));
    }
    MemberPolicy {
        name: name.to_owned(),
        slots,
        reserve,
        draining: matches!(reader.value(&key("draining")), Some(Value::Bool(true))),
    }
}
