//! Records of every reason that can be rebuilt, as the daemon writes them.

use super::*;
use governor_api::Numbers;

fn record(reason: &str, origin: &str, numbers: Numbers) -> Decision {
    Decision {
        id: "0001000000000007".to_owned(),
        age_seconds: 3.0,
        session: 4,
        pool: "chat".to_owned(),
        key: Some("00000000000000000000000000000011".to_owned()),
        label: None,
        outcome: Outcome::Shed,
        reason: reason.to_owned(),
        origin: origin.to_owned(),
        status: 429,
        retry_after_seconds: 2.0,
        waited_seconds: 30.0,
        numbers,
        explanation: String::new(),
        ..Decision::default()
    }
}

fn split() -> Numbers {
    let key = Numbers { key_in_flight: 50, unit_in_flight: 50, weight: 1, ..Numbers::default() };
    Numbers { share: 49, in_flight: 79, capacity: 98, active_keys: 2, ..key }
}

#[test]
fn a_refusal_by_equal_split_is_decided_the_same() {
    assert_eq!(replay(&record("fair_share", "key", split())), Verdict::Same);
}

#[test]
fn a_refusal_by_max_min_is_decided_the_same() {
    // Nine others hold one each: with one more the key would have 88, all together 97 of the 96 that are shared.
    let lone =
        Numbers { key_in_flight: 87, unit_in_flight: 87, weight: 1, headroom: 4, filled: 97, ..Numbers::default() };
    let nine = Numbers { share: 87, in_flight: 96, capacity: 100, active_keys: 10, ..lone };
    assert_eq!(replay(&record("fair_share", "key", nine)), Verdict::Same);
    // One other holds more than the key may: only up to the key's level it counts.
    let held = Numbers { key_in_flight: 48, unit_in_flight: 48, filled: 98, share: 48, active_keys: 2, ..nine };
    assert_eq!(replay(&record("fair_share", "key", Numbers { in_flight: 100, ..held })), Verdict::Same);
}

#[test]
fn caps_and_suspended_keys_are_decided_the_same() {
    let capped = Numbers { in_flight: 60, share: 98, limit: 50, limited: 50, ..split() };
    for (reason, origin) in [("key_cap", "key"), ("class_cap", "key"), ("org_cap", "org"), ("class_cap", "org")] {
        assert_eq!(replay(&record(reason, origin, capped)), Verdict::Same, "{reason} of the {origin}");
    }
    let below = Numbers { limited: 49, key_in_flight: 49, unit_in_flight: 49, ..capped };
    assert_ne!(replay(&record("key_cap", "key", below)), Verdict::Same);
    let suspended = Numbers { share: 98, in_flight: 60, ..split() };
    let refused = Decision { status: 403, ..record("suspended", "key", suspended) };
    assert_eq!(replay(&refused), Verdict::Same);
    let overloaded = Decision { status: 529, ..record("overload", "node", suspended) };
    assert_eq!(replay(&overloaded), Verdict::Same);
}

#[test]
fn a_record_that_the_rule_does_not_explain_is_told_apart() {
    let Verdict::Different(what) = replay(&record("fair_share", "key", Numbers { share: 40, ..split() })) else {
        panic!("98 slots by 2 keys are 49 each");
    };
    assert_eq!(what, ["the share was 40 and is 49"]);
    let below = Numbers { key_in_flight: 20, unit_in_flight: 20, ..split() };
    assert_eq!(
        replay(&record("fair_share", "key", below)),
        Verdict::Different(vec!["the request is granted".to_owned()]),
        "a key below its share is not refused"
    );
}

#[test]
fn an_observed_decision_is_replayed_as_it_was_observed() {
    for outcome in [Outcome::WouldPark, Outcome::WouldRefuse] {
        let record = Decision { outcome, ..record("fair_share", "key", split()) };
        assert_eq!(replay(&record), Verdict::Same, "{outcome:?}");
    }
}

#[test]
fn a_full_pool_and_a_full_node_are_decided_the_same() {
    let full = Numbers { in_flight: 98, share: 98, active_keys: 3, ..split() };
    assert_eq!(replay(&record("pool_exhausted", "pool", full)), Verdict::Same);
    let node = Numbers { share: 98, node_counted: 1000, node_cap: 1000, ..split() };
    assert_eq!(replay(&Decision { status: 529, ..record("node_cap", "node", node) }), Verdict::Same);
}

#[test]
fn what_a_record_does_not_tell_is_not_made_up() {
    let verdict = replay(&record("key_queue_full", "key", split()));
    assert!(matches!(verdict, Verdict::NotReplayed(why) if why.contains("waited")), "{verdict:?}");
    let impossible = Numbers { in_flight: 3, ..split() };
    assert!(matches!(replay(&record("fair_share", "key", impossible)), Verdict::NotReplayed(_)));
}

#[test]
fn a_file_is_read_in_each_of_its_forms() {
    let one = record("fair_share", "key", split());
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(read(text.as_bytes()).unwrap(), vec![one.clone()]);
    assert_eq!(read(format!("{text}\n{text}\n").as_bytes()).unwrap().len(), 2);
    assert_eq!(read(format!("[{text},{text},{text}]").as_bytes()).unwrap().len(), 3);
    let wrapped = format!("{{\"wall\":1700000000,\"decision\":{text}}}");
    let mut segment = u32::try_from(wrapped.len()).unwrap().to_le_bytes().to_vec();
    segment.extend_from_slice(wrapped.as_bytes());
    assert_eq!(read(&segment).unwrap(), vec![one]);
    assert!(matches!(read(b"PNG and so on"), Err(ReadError::Format(_))));
    assert!(matches!(read(b"{\"pool\": 3}"), Err(ReadError::Record { number: 1, .. })));
}
