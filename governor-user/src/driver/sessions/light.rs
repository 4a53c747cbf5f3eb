//! Which refusals hit a light key: one that held less than its share. Fair share is there so that this does not happen;
//! an alert watches it. Pure.

use governor_engine::io::{Decision, Reason};

/// The key held less than its share, or than an equal part of the capacity where no rule shares it out, and no limit of
/// its own refused it.
pub(crate) fn is_light(decision: &Decision) -> bool {
    let own_limit = match decision.reason {
        Reason::Suspended | Reason::KeyCap | Reason::OrgCap | Reason::ClassCap | Reason::SubCapacity => true,
        Reason::FairShare
        | Reason::PoolExhausted
        | Reason::AllCooling
        | Reason::NodeCap
        | Reason::KeyQueueFull
        | Reason::QueueFull
        | Reason::Overload
        | Reason::Draining => false,
    };
    let numbers = &decision.numbers;
    let equal_part = (numbers.capacity / numbers.active_keys.max(1)).max(1);
    decision.key.is_some() && !own_limit && numbers.unit_in_flight < numbers.share.min(equal_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_engine::id::KeyId;
    use governor_engine::io::Numbers;

    fn decision(reason: Reason, unit_in_flight: u32, share: u32) -> Decision {
        let numbers = Numbers { unit_in_flight, share, capacity: 98, active_keys: 10, ..Numbers::default() };
        Decision { key: Some(KeyId(1)), reason, numbers, ..Decision::default() }
    }

    #[test]
    fn who_holds_less_than_its_share_is_light_unless_a_limit_of_its_own_refused() {
        assert!(is_light(&decision(Reason::PoolExhausted, 2, 9)));
        assert!(!is_light(&decision(Reason::FairShare, 9, 9)));
        assert!(!is_light(&decision(Reason::KeyCap, 2, 9)));
        assert!(is_light(&decision(Reason::Overload, 0, 9)));
        assert!(!is_light(&Decision { key: None, ..decision(Reason::PoolExhausted, 0, 9) }));
    }

    #[test]
    fn without_a_rule_an_equal_part_is_the_measure() {
        assert!(is_light(&decision(Reason::NodeCap, 8, 98)));
        assert!(!is_light(&decision(Reason::NodeCap, 9, 98)));
    }
}
