//! Promises that hold after every step of any history.

use super::watch::{Watch, after_every_step, headroom, is_plain, is_up, ordinary_slots};
use governor_engine::id::KeyId;
use governor_engine::io::{Acquire, EndCause, Input, Kind, Output, Reason};
use governor_engine::policy::{Anonymous, FairShare, Mode};
use governor_engine::snapshot::PoolView;
use std::collections::BTreeSet;

#[test]
fn no_grant_lifts_a_member_above_its_slots_or_ordinary_leases_above_capacity() {
    after_every_step(|watch, input, _| {
        // What shrinks a pool after a deadline was served in the same step may leave more than fits, by right.
        let shrinks = matches!(
            input,
            Some(
                Input::PolicyChanged(_)
                    | Input::MemberReport { .. }
                    | Input::MemberOrder { .. }
                    | Input::Register(_)
                    | Input::Bypass { .. }
            )
        );
        if shrinks || watch.bypass {
            return Ok(());
        }
        let leases = watch.engine.leases();
        for (asked, answer) in &watch.answered {
            let Some(grant) = answer.grant() else { continue };
            let Some(lease) = leases.iter().find(|lease| lease.lease == grant.lease) else { continue };
            let Some(pool) = watch.pool(lease.pool) else { continue };
            let Some(member) = pool.members.iter().find(|member| Some(member.member) == lease.member) else { continue };
            if member.in_flight > member.slots {
                return Err(format!("{member:?} runs more than it has slots"));
            }
            let ordinary = watch.counted(&pool).iter().filter(|l| l.kind == Kind::Ordinary && !l.child).count();
            if is_plain(asked) && is_up(member) && ordinary > pool.capacity as usize {
                return Err(format!("{ordinary} ordinary leases in a capacity of {}", pool.capacity));
            }
        }
        Ok(())
    });
}

#[test]
fn a_share_refusal_implies_that_only_the_headroom_is_left() {
    after_every_step(|watch, input, outputs| {
        if is_another_policy(input) {
            return Ok(());
        }
        for output in outputs {
            let (Output::Refused { decision, .. } | Output::WouldHave { decision }) = output else { continue };
            let name = watch.pool(decision.pool).map(|pool| pool.name);
            let policy = watch.policy.pools.iter().find(|pool| Some(&pool.name) == name.as_ref());
            let Some(FairShare::MaxMin { headroom: of }) = policy.map(|pool| pool.fair_share) else { continue };
            let n = decision.numbers;
            if decision.reason == Reason::FairShare && n.in_flight < n.capacity - headroom(of, n.capacity) {
                return Err(format!("{n:?}"));
            }
        }
        Ok(())
    });
}

/// Deadlines that were due in this step were judged by the policy before.
fn is_another_policy(input: Option<&Input>) -> bool {
    matches!(input, Some(Input::PolicyChanged(_)))
}

#[test]
fn nobody_is_refused_below_its_floor_by_the_share_test() {
    after_every_step(|_, _, outputs| {
        for output in outputs {
            let (Output::Refused { decision, .. } | Output::WouldHave { decision }) = output else { continue };
            let n = decision.numbers;
            if decision.reason == Reason::FairShare && n.unit_in_flight < n.floor {
                return Err(format!("{n:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn a_newcomer_is_never_refused_by_its_share() {
    after_every_step(|watch, input, outputs| {
        if is_another_policy(input) {
            return Ok(());
        }
        for output in outputs {
            let (Output::Refused { decision, .. } | Output::WouldHave { decision }) = output else { continue };
            let name = watch.pool(decision.pool).map(|pool| pool.name);
            let policy = watch.policy.pools.iter().find(|pool| Some(&pool.name) == name.as_ref());
            let Some(policy) = policy.filter(|pool| pool.fair_share != FairShare::Off) else { continue };
            let least = match policy.fair_share {
                FairShare::MaxMin { .. } => policy.min_guarantee.max(1),
                FairShare::Off | FairShare::EqualSplit { .. } => policy.min_guarantee,
            };
            let n = decision.numbers;
            if decision.reason == Reason::FairShare && n.unit_in_flight < least {
                return Err(format!("{n:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn a_free_slot_and_an_eligible_parked_request_imply_a_grant_in_the_same_step() {
    after_every_step(|watch, _, _| {
        for acquire in watch.waiting.values().filter(|acquire| is_plain(acquire)) {
            let Some(pool) = watch.pool(acquire.pool) else { return Err("waits in no pool".to_owned()) };
            if watch.bypass || (has_room(watch, &pool) && is_eligible(watch, &pool, acquire)) {
                return Err(format!("{acquire:?} waits although {pool:?} has a slot for it"));
            }
        }
        Ok(())
    });
}

fn has_room(watch: &Watch, pool: &PoolView) -> bool {
    let ordinary = watch.counted(pool).iter().filter(|lease| lease.kind == Kind::Ordinary && !lease.child).count();
    let free = pool.members.iter().any(|member| is_up(member) && member.in_flight < ordinary_slots(member));
    free && ordinary < pool.capacity as usize
}

/// Whether the share test lets it in, as far as one can say without the reference: always where no rule acts, below
/// congestion, and by the equal split.
fn is_eligible(watch: &Watch, pool: &PoolView, acquire: &Acquire) -> bool {
    let policy = watch.policy.pools.iter().find(|policy| policy.name == pool.name).expect("it is there");
    if pool.mode == Mode::Observe || (acquire.key.is_none() && policy.anonymous == Anonymous::Bypass) {
        return true;
    }
    let counted = watch.counted(pool);
    let t = u32::try_from(counted.len()).expect("few");
    match pool.fair_share {
        FairShare::Off => true,
        FairShare::MaxMin { headroom: of } => t < pool.capacity - headroom(of, pool.capacity),
        FairShare::EqualSplit { threshold } => {
            // Those without a key are one, or none.
            let identified = |key: Option<KeyId>| key.is_some() || policy.anonymous == Anonymous::Judge;
            let mut keys: BTreeSet<_> = counted.iter().map(|lease| lease.key).filter(|key| identified(*key)).collect();
            keys.insert(acquire.key);
            let share = policy.min_guarantee.max(pool.capacity / u32::try_from(keys.len()).expect("few"));
            let held = counted.iter().filter(|lease| lease.key == acquire.key).count();
            t * 100 < pool.capacity * u32::from(threshold) || held < share as usize
        }
    }
}

#[test]
fn a_lease_ends_only_by_its_holder_its_time_its_session_or_an_operator() {
    after_every_step(|watch, input, outputs| {
        let leases = watch.engine.leases();
        for lease in watch.before.iter().filter(|lease| !leases.iter().any(|left| left.lease == lease.lease)) {
            let cause = outputs.iter().find_map(|output| {
                let Output::Ended { lease: id, cause, .. } = output else { return None };
                (*id == lease.lease).then_some(*cause)
            });
            let is_right = match (cause, input) {
                (Some(EndCause::Released), Some(Input::Release { lease: id, .. })) => *id == lease.lease,
                (Some(EndCause::Revoked), Some(Input::Revoke { lease: id })) => *id == lease.lease,
                (Some(EndCause::PoolGone), input) => is_another_policy(input),
                (
                    Some(EndCause::SessionGone),
                    Some(Input::SessionGone { session } | Input::SessionLost { session }),
                ) => *session == lease.session || watch.lost.contains(&lease.session),
                (Some(EndCause::SessionGone), _) => watch.lost.contains(&lease.session),
                // A move that finds no other member ends its lease, at once or when its wait is over or hopeless.
                (Some(EndCause::NotMoved), _) => outputs.iter().any(|output| matches!(output, Output::Refused { .. })),
                (Some(EndCause::Expired | EndCause::Reclaimed), _) => lease.expires <= watch.now,
                (Some(EndCause::Released | EndCause::Revoked) | None, _) => false,
            };
            if !is_right {
                return Err(format!("{lease:?} is gone: {cause:?}"));
            }
        }
        Ok(())
    });
}
