//! Which parts of the policy are compared: those that the engine carries out. The rest is kept out of the facts, and its
//! fields out of the comparison.

use std::sync::LazyLock;

use governor_engine::io::{Acquire, Decision, Held, Input, Level, Output, Priority};
use governor_engine::policy::Policy;

/// What is compared without being asked for.
const COMPARED: &[&str] =
    &["orgs", "caps", "overrides", "levels", "nested", "idle", "gone", "traffic", "early", "decisions"];

/// Whether a part is compared. `SIM_PARTS=all`, or a list of names, asks for more.
pub(crate) fn is_compared(part: &str) -> bool {
    static ASKED: LazyLock<String> = LazyLock::new(|| std::env::var("SIM_PARTS").unwrap_or_default());
    COMPARED.contains(&part) || ASKED.split(',').any(|asked| asked == part || asked == "all")
}

pub(crate) fn policy(mut policy: Policy) -> Policy {
    if !is_compared("orgs") {
        let entitlements = policy.classes.iter_mut().map(|c| &mut c.entitlement);
        let entitlements = entitlements.chain(policy.orgs.iter_mut().map(|o| &mut o.entitlement));
        for entitlement in entitlements.chain(policy.keys.iter_mut().map(|k| &mut k.entitlement)) {
            (entitlement.weight, entitlement.floor) = (None, None);
        }
    }
    if !is_compared("caps") {
        let entitlements = policy.classes.iter_mut().map(|c| &mut c.entitlement);
        let entitlements = entitlements.chain(policy.orgs.iter_mut().map(|o| &mut o.entitlement));
        for entitlement in entitlements.chain(policy.keys.iter_mut().map(|k| &mut k.entitlement)) {
            entitlement.cap = None;
        }
    }
    if !is_compared("traffic") {
        policy.pools.iter_mut().for_each(|pool| pool.traffic.clear());
    }
    policy
}

pub(crate) fn input(input: Input) -> Option<Input> {
    Some(match input {
        Input::Acquire(mut acquire) => {
            if !is_compared("orgs") {
                acquire.org = None;
            }
            if !is_compared("nested") {
                acquire.parent = None;
            }
            Input::Acquire(Acquire { ..acquire })
        }
        Input::Register(mut held) => {
            if !is_compared("orgs") {
                held.org = None;
            }
            held.suspended &= is_compared("idle");
            Input::Register(Held { ..held })
        }
        Input::PolicyChanged(changed) => Input::PolicyChanged(Box::new(policy(*changed))),
        Input::Suspend { .. } | Input::Resume { .. } if !is_compared("idle") => return None,
        Input::ClientGone { .. } if !is_compared("gone") => return None,
        Input::OverloadChanged { .. } if !is_compared("levels") => return None,
        Input::TierIs { .. } if !is_compared("caps") => return None,
        Input::Override { .. } if !is_compared("overrides") => return None,
        Input::SessionOpened { .. }
        | Input::Cancel { .. }
        | Input::Release { .. }
        | Input::Renew { .. }
        | Input::Move { .. }
        | Input::MemberReport { .. }
        | Input::SessionLost { .. }
        | Input::SessionGone { .. }
        | Input::Revoke { .. }
        | Input::Suspend { .. }
        | Input::Resume { .. }
        | Input::ClientGone { .. }
        | Input::OverloadChanged { .. }
        | Input::TierIs { .. }
        | Input::Override { .. }
        | Input::Bypass { .. } => input,
    })
}

pub(super) fn outputs(mut outputs: Vec<Output>) -> Vec<Output> {
    for output in &mut outputs {
        if let Output::Shed { decision, .. } | Output::WouldHave { decision } = output
            && !is_compared("decisions")
        {
            let known = std::mem::take(decision);
            *decision = Decision { org: None, class: None, priority: Priority::Normal, level: Level::Normal, ..known };
            let n = &mut decision.numbers;
            (n.unit_in_flight, n.weight, n.floor, n.headroom, n.filled) = (0, 0, 0, 0, 0);
        }
    }
    outputs
}
