//! Pools with their members and kinds of traffic.

use crate::config::schema::{Cooldown, Entry, Member, Park, Pool, Reader, Traffic, chosen, section_path};
use governor_common::wire::codec::{MAX_LIMITS, pool_limits_length};
use governor_engine::policy::{FairShare, MemberPolicy, PoolPolicy, TrafficPolicy};
use governor_engine::time::Duration;
use std::collections::BTreeSet;

pub(super) fn pools(
    reader: &mut Reader<'_>,
    names: &BTreeSet<Vec<String>>,
    warnings: &mut Vec<String>,
) -> Vec<PoolPolicy> {
    let mut pools = Vec::new();
    for name in chosen(Pool::PATH, &[], names) {
        let section = Pool::read(reader, &[name]);
        let park = Park::read(reader, &[name]);
        let members: Vec<MemberPolicy> = chosen(Member::PATH, &[name], names)
            .map(|member_name| member(reader, Member::read(reader, &[name, member_name]), member_name))
            .collect();
        check_gate(reader, name, &members, &section.unlimited, warnings);
        pools.push(PoolPolicy {
            name: name.clone(),
            traffic: traffic(reader, name, names, &members, warnings),
            members,
            unlimited: section.unlimited.value,
            fair_share: match section.fair_share.value {
                FairShare::MaxMin { .. } => FairShare::MaxMin { headroom: section.headroom.value },
                rule @ (FairShare::Off | FairShare::EqualSplit { .. }) => rule,
            },
            mode: section.fair_share_mode.value,
            anonymous: section.anonymous.value,
            min_guarantee: section.min_guarantee.value,
            max_wait: park.max_wait.value,
            max_parked_per_key: park.max_per_key.value,
            max_waiting: park.max_waiting.value,
            exhausted_status: exhausted_status(reader, &section.exhausted_status),
            ..cooldowns(&Cooldown::read(reader, &[name]), warnings)
        });
    }
    check_limits(reader, &pools);
    pools
}

fn exhausted_status(reader: &mut Reader<'_>, status: &Entry<'_, u32>) -> u16 {
    match status.value {
        529 => 529,
        429 => 429,
        other => {
            reader.problem(status, format!("expected 429 or 529, found {other}"));
            429
        }
    }
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
    reader.section_problem(&section_path(Pool::PATH, &[&largest.name]), message);
}

/// The cool-downs of a pool; those that its bound cuts are warned of.
fn cooldowns(section: &Cooldown<'_>, warnings: &mut Vec<String>) -> PoolPolicy {
    let Cooldown { rate_limited, overloaded, max } = section;
    for wanted in [rate_limited, overloaded].into_iter().filter(|wanted| wanted.value > max.value) {
        let seconds = |entry: &Entry<'_, Duration>| entry.value.as_secs_f64();
        warnings.push(format!("{} of {} s is cut to {} of {} s", wanted.key, seconds(wanted), max.key, seconds(max)));
    }
    PoolPolicy {
        rate_limited_cooldown: rate_limited.value,
        overloaded_cooldown: overloaded.value,
        max_cooldown: max.value,
        ..PoolPolicy::default()
    }
}

/// A pool has members or no gate; one whose members are all off grants nothing.
fn check_gate(
    reader: &mut Reader<'_>,
    pool: &str,
    members: &[MemberPolicy],
    unlimited: &Entry<'_, bool>,
    warnings: &mut Vec<String>,
) {
    match members.first() {
        Some(MemberPolicy { name, .. }) if unlimited.value => reader.problem(
            unlimited,
            format!("pool \"{pool}\" is unlimited and has member \"{name}\": remove its members, or unlimited"),
        ),
        None if !unlimited.value => reader.section_problem(
            &section_path(Pool::PATH, &[pool]),
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
    chosen(Traffic::PATH, &[pool], names)
        .map(|name| {
            let Traffic { slots } = Traffic::read(reader, &[pool, name]);
            if u64::from(slots.value) > capacity && capacity > 0 {
                let (key, slots) = (&slots.key, slots.value);
                warnings.push(format!("{key} = {slots} limits nothing: the pool has {capacity} ordinary slots"));
            }
            TrafficPolicy { name: name.clone(), slots: slots.value }
        })
        .collect()
}

/// Ordinary slots of these members when all of them are up.
pub(super) fn capacity(members: &[MemberPolicy]) -> u64 {
    let of =
        |member: &MemberPolicy| if member.slots == 0 { 0 } else { member.slots.saturating_sub(member.reserve).max(1) };
    members.iter().map(|member| u64::from(of(member))).sum()
}

fn member(reader: &mut Reader<'_>, section: Member<'_>, name: &str) -> MemberPolicy {
    let (slots, reserve) = (section.slots.value, section.reserve.value);
    if reserve > slots && slots > 0 {
        reader.problem(&section.reserve, format!("a reserve of {reserve} does not fit into {slots} slots"));
    }
    MemberPolicy { name: name.to_owned(), slots, reserve, draining: section.draining.value }
}
