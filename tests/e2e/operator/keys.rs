//! What operators set for single keys: at once, for a while, listed, recorded, and still there after a restart.

use crate::world::{ask, back, client, lease, pool, refusal, soon};
use governor_client::{Governor, Origin};
use serde_json::{Value, json};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

fn enforcing() -> Daemon {
    Setup::new(&format!("[node]\ncaps_mode = \"enforce\"\n{}", pool(1, 8, ""))).start()
}

fn put(daemon: &Daemon, key: &str, order: &Value) -> (u16, Value) {
    daemon.request("PUT", &format!("/v1/overrides/{key}"), Some(order))
}

fn actions(daemon: &Daemon) -> Vec<String> {
    let events = daemon.get("/v1/events?last_seconds=600");
    events.as_array().unwrap().iter().map(|event| event["action"].as_str().unwrap().to_owned()).collect()
}

fn hash(governor: &Governor, key: &str) -> String {
    governor.key(key.as_bytes()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_holds_at_once_survives_a_restart_and_is_taken_away_again() {
    let mut daemon = enforcing();
    let governor = client(&daemon.socket()).await;
    let _held = (lease(&governor, "batch").await, lease(&governor, "batch").await);
    let (status, change) = put(&daemon, "batch", &json!({ "cap": 2, "reason": "runaway job" }));
    assert_eq!((status, &change["before"], &change["after"]["cap"]), (200, &Value::Null, &json!(2)), "{change}");
    assert_eq!(change["note"], Value::Null);
    let refused = refusal(&governor, "batch", Duration::from_secs(30)).await;
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (429, Some(Origin::Key), "key_cap"));
    let _other = lease(&governor, "light").await;

    daemon.restart().unwrap();
    back(&governor, &daemon).await;
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 3);
    let listed = daemon.get("/v1/overrides");
    assert_eq!((&listed[0]["key"], &listed[0]["cap"]), (&json!(hash(&governor, "batch")), &json!(2)), "{listed}");
    assert_eq!((&listed[0]["reason"], &listed[0]["label"]), (&json!("runaway job"), &json!("batch")));
    assert!(listed[0]["set_by"].as_str().unwrap().starts_with("uid ") && listed[0]["set_at"].is_string(), "{listed}");
    assert_eq!(refusal(&governor, "batch", Duration::ZERO).await.reason(), "key_cap");

    let path = format!("/v1/overrides/{}", hash(&governor, "batch"));
    let (status, change) = daemon.request("DELETE", &path, None);
    assert_eq!((status, &change["before"]["cap"], &change["after"]), (200, &json!(2), &Value::Null), "{change}");
    lease(&governor, "batch").await;
    assert_eq!(daemon.request("DELETE", &path, None).0, 404);
    let end = std::time::Instant::now() + crate::world::SOON;
    while actions(&daemon) != ["key", "key-clear"] {
        assert!(std::time::Instant::now() < end, "{:?}", actions(&daemon));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_key_is_refused_whatever_the_modes_say_and_what_runs_goes_on() {
    let daemon = Setup::new(&pool(1, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    let running = lease(&governor, "batch").await;
    let waiting = tokio::spawn({
        let (governor, request) = (governor.clone(), ask(&governor, "batch"));
        async move { governor.acquire(request).await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    assert_eq!(put(&daemon, &hash(&governor, "batch"), &json!({ "suspend": true, "for_seconds": 600 })).0, 200);
    let refused = soon(waiting).await.unwrap().unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (403, "suspended"));
    assert_eq!(refusal(&governor, "batch", Duration::ZERO).await.reason(), "suspended");
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 1);
    let key = daemon.get("/v1/keys")[0].clone();
    assert_eq!((&key["suspended"], &key["overridden"]), (&json!(true), &json!(true)), "{key}");
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_for_a_while_ends_by_itself_and_the_record_says_so() {
    let daemon = enforcing();
    let governor = client(&daemon.socket()).await;
    let _held = lease(&governor, "batch").await;
    assert_eq!(put(&daemon, "batch", &json!({ "cap": 1, "for_seconds": 1, "reason": "a minute" })).0, 200);
    assert_eq!(refusal(&governor, "batch", Duration::ZERO).await.reason(), "key_cap");
    daemon.wait_for("/v1/overrides", |overrides| overrides == &json!([]));
    daemon.wait_for("/v1/keys", |keys| keys[0]["overridden"] == false);
    lease(&governor, "batch").await;
    let events = daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().unwrap().len() == 2);
    assert_eq!((&events[0]["action"], &events[0]["after"]["cap"]), (&json!("key"), &json!(1)), "{events}");
    assert_eq!((&events[1]["action"], &events[1]["by"]), (&json!("key-expired"), &json!("governord")), "{events}");
    assert_eq!((&events[1]["before"]["cap"], &events[1]["after"]), (&json!(1), &Value::Null), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_the_reason() {
    let daemon = enforcing();
    let governor = client(&daemon.socket()).await;
    let _held = lease(&governor, "batch").await;
    for (order, words) in [
        (json!({}), "sets a cap, a weight, a floor"),
        (json!({ "weight": 0 }), "weight of 0"),
        (json!({ "floor": 4, "cap": 2 }), "floor of 4 is above its own cap of 2"),
        (json!({ "cap": -1 }), "u32"),
        (json!({ "cap": 1, "for_seconds": 0 }), "366 days"),
        (json!({ "cap": 1, "capp": 2 }), "unknown field"),
    ] {
        let (status, answer) = put(&daemon, "batch", &order);
        assert!((400..=422).contains(&status), "{order}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(words)), "{order}: {answer}");
    }
    let (status, answer) = put(&daemon, "nobody", &json!({ "cap": 1 }));
    assert_eq!(status, 404, "{answer}");
    let _second = soon(governor.acquire(ask(&governor, "twin").label("batch"))).await.unwrap();
    let (status, answer) = put(&daemon, "batch", &json!({ "cap": 1 }));
    assert_eq!(status, 409, "{answer}");
    assert!(answer["hint"].as_str().unwrap().contains(&hash(&governor, "twin")), "{answer}");
    assert_eq!(daemon.get("/v1/overrides"), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_that_would_only_be_recorded_says_so() {
    let daemon = Setup::new(&pool(1, 8, "")).start();
    let governor = client(&daemon.socket()).await;
    let (_, change) = put(&daemon, &hash(&governor, "batch"), &json!({ "cap": 1, "weight": 2 }));
    let note = change["note"].as_str().unwrap();
    assert!(note.contains("node.caps_mode is observe") && note.contains("max-min"), "{note}");
}

#[test]
fn settings_and_bypass_are_recorded_too() {
    let daemon = Setup::new(&pool(1, 8, "")).start();
    assert_eq!(daemon.request("PUT", "/v1/settings/node.cap", Some(&json!({ "value": 7 }))).0, 200);
    assert_eq!(daemon.request("DELETE", "/v1/settings/node.cap", None).0, 200);
    assert_eq!(daemon.request("POST", "/v1/bypass", Some(&json!({ "on": true }))).0, 200);
    let events = daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().unwrap().len() == 3);
    let lines: Vec<_> =
        events.as_array().unwrap().iter().map(|event| (&event["action"], &event["before"], &event["after"])).collect();
    assert_eq!(
        lines,
        [
            (&json!("set"), &json!(1000), &json!(7)),
            (&json!("unset"), &json!(7), &json!(1000)),
            (&json!("bypass"), &json!("off"), &json!("on")),
        ]
    );
}
