//! Decisions in plain words: pure text from the numbers, so that `curl` and `governorctl explain` say the same.

use crate::naming::ANONYMOUS;
use governor_api::{Decision, Outcome};
use governor_observation::wording::{Counted, counted};

/// One or two sentences: what happened by which rule, on which numbers, and what the client was answered.
/// Reads everything of `decision` but its `explanation`; names no key but the requester's own.
#[must_use]
pub fn explain(decision: &Decision) -> String {
    let end = match decision.outcome {
        Outcome::Shed => format!(
            "It {}was answered {} with origin {} and told to come back after {}.",
            waited(decision),
            decision.status,
            decision.origin,
            seconds(decision.retry_after_seconds)
        ),
        Outcome::WouldPark | Outcome::WouldRefuse => {
            "The rule is in observe mode, so it was granted at once.".to_owned()
        }
    };
    format!("{} {} {end}", happened(decision), rule(decision))
}

fn happened(decision: &Decision) -> &'static str {
    match decision.outcome {
        Outcome::Shed => "The request was refused",
        Outcome::WouldPark => "The request would have been parked",
        Outcome::WouldRefuse => "The request would have been refused",
    }
}

fn rule(decision: &Decision) -> String {
    let n = &decision.numbers;
    let pool = &decision.pool;
    let anonymous = decision.key.as_deref() == Some(ANONYMOUS);
    let its_key = if anonymous { "the identity of requests without a key" } else { "its key" };
    let of_whom = if anonymous { " for requests without a key" } else { "" };
    let use_now = format!("{} of {} in use", n.in_flight, counted(n.capacity, "slot", "slots"));
    match decision.reason.as_str() {
        "fair_share" if decision.origin == "org" => {
            format!("by fair share: its org held {} with a share of {}, {use_now}.", n.unit_in_flight, n.share,)
        }
        "fair_share" => format!(
            "by fair share: {its_key} held {} with a share of {} while pool {pool} was congested, {use_now} by {}.",
            n.key_in_flight,
            n.share,
            counted(n.active_keys, "active key", "active keys"),
        ),
        "pool_exhausted" if n.capacity == 0 => format!(
            "because every member of pool {pool} it may use is off, draining or cooling down; {} parked.",
            n.parked
        ),
        "pool_exhausted" => {
            format!("because no member of pool {pool} it may use had a free slot: {use_now}, {} parked.", n.parked)
        }
        "draining" => "because an operator drains this node: what runs goes on, nothing new begins.".to_owned(),
        "all_cooling" => format!(
            "because every member of pool {pool} it may use is cooling down after a rate limit of the upstream, and the \
             earliest reset is further away than it could wait."
        ),
        "node_cap" => {
            let requests = counted(n.node_counted, "counted request", "counted requests");
            format!("by the node cap: {requests} of at most {} on this node.", n.node_cap)
        }
        "key_queue_full" => format!(
            "because {} of {its_key} were parked in pool {pool}, of at most {} (pools.{pool}.park.max_per_key).",
            requests(n.limited),
            n.limit,
        ),
        "queue_full" if decision.origin == "node" => format!(
            "because {} were parked on the node, of at most {}{of_whom} (node.max_parked).",
            requests(n.limited),
            n.limit,
        ),
        "queue_full" => format!(
            "because {} were parked in pool {pool}, of at most {}{of_whom} (pools.{pool}.park.max_waiting).",
            requests(n.limited),
            n.limit,
        ),
        "overload" => format!(
            "by overload: the node's level was {} and the request {}.",
            decision.level.as_deref().unwrap_or("high"),
            decision.priority.as_deref().unwrap_or("normal"),
        ),
        "suspended" => {
            "because an operator suspended its key; governorctl key says who, until when and why.".to_owned()
        }
        "key_cap" => format!("by the cap of its key: {} of at most {}.", n.limited, requests(n.limit)),
        "org_cap" => format!("by the cap of its org: {} of at most {}.", n.limited, requests(n.limit)),
        "class_cap" => format!(
            "by the ceiling of its class{}: {} of at most {}.",
            decision.class.as_ref().map(|class| format!(" {class}")).unwrap_or_default(),
            n.limited,
            requests(n.limit),
        ),
        "sub_capacity" => format!(
            "because its kind of traffic held {} of the {} slots of pool {pool} it may hold: {use_now}, {} parked.",
            n.limited, n.limit, n.parked,
        ),
        other => format!("by the rule {other}, with {use_now} in pool {pool}."),
    }
}

fn requests(count: u32) -> Counted<'static> {
    counted(count, "request", "requests")
}

fn waited(decision: &Decision) -> String {
    if decision.waited_seconds > 0.0 {
        format!("had been parked for {} and ", seconds(decision.waited_seconds))
    } else {
        String::new()
    }
}

fn seconds(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0} s") } else { format!("{value:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::Numbers;

    fn refused(reason: &str, origin: &str, status: u16) -> Decision {
        Decision {
            id: "0001000000000007".into(),
            age_seconds: 1.0,
            session: 3,
            pool: "chat".into(),
            key: None,
            label: None,
            outcome: Outcome::Shed,
            reason: reason.into(),
            origin: origin.into(),
            status,
            retry_after_seconds: 1.0,
            waited_seconds: 0.0,
            numbers: Numbers {
                key_in_flight: 9,
                share: 9,
                in_flight: 95,
                capacity: 98,
                active_keys: 10,
                parked: 12,
                node_counted: 1000,
                node_cap: 1000,
                limit: 50,
                limited: 50,
                unit_in_flight: 30,
                ..Numbers::default()
            },
            explanation: String::new(),
            ..Decision::default()
        }
    }

    #[test]
    fn every_reason_has_words_of_its_own() {
        for (reason, origin, words) in [
            ("fair_share", "key", "its key held 9 with a share of 9"),
            ("pool_exhausted", "pool", "95 of 98 slots in use, 12 parked"),
            ("all_cooling", "upstream", "is cooling down"),
            ("node_cap", "node", "1000 counted requests of at most 1000"),
            (
                "key_queue_full",
                "key",
                "50 requests of its key were parked in pool chat, of at most 50 (pools.chat.park",
            ),
            ("queue_full", "pool", "50 requests were parked in pool chat, of at most 50 (pools.chat.park.max_waiting)"),
            ("queue_full", "node", "50 requests were parked on the node, of at most 50 (node.max_parked)"),
            ("overload", "node", "level was high and the request normal"),
            ("suspended", "key", "an operator suspended its key"),
            ("key_cap", "key", "cap of its key: 50 of at most 50 requests"),
            ("org_cap", "org", "cap of its org: 50 of at most 50 requests"),
            ("class_cap", "org", "ceiling of its class: 50 of at most 50 requests"),
            ("sub_capacity", "pool", "held 50 of the 50 slots of pool chat it may hold"),
            ("fair_share", "org", "its org held 30 with a share of 9"),
            ("from_a_newer_daemon", "org", "the rule from_a_newer_daemon"),
        ] {
            let text = explain(&refused(reason, origin, 429));
            assert!(text.contains(words) && text.contains(&format!("origin {origin}")), "{text}");
        }
    }

    #[test]
    fn a_refusal_after_parking_says_how_long_it_waited() {
        let text = explain(&Decision { waited_seconds: 30.0, ..refused("fair_share", "key", 429) });
        assert!(text.ends_with(
            "It had been parked for 30 s and was answered 429 with origin key and told to come back after 1 s."
        ));
    }

    #[test]
    fn observe_mode_says_that_nothing_happened() {
        let text = explain(&Decision { outcome: Outcome::WouldPark, ..refused("fair_share", "key", 429) });
        assert!(text.starts_with("The request would have been parked by fair share"), "{text}");
        assert!(text.ends_with("it was granted at once."), "{text}");
    }
}
