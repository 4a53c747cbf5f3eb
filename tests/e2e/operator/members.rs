//! Members that a wrong report takes out, and what operators order for members: in force at once, bounded, recorded, and
//! still there after a restart.

use crate::world::{ask, back, client, lease, pool, refusal, soon};
use governor_client::MemberNews;
use serde_json::{Value, json};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

/// The longest reset that a report can name: 49 days.
const DAYS_49: MemberNews = MemberNews::RateLimited { reset_ms: Some(u32::MAX) };

fn order(daemon: &Daemon, place: &str, body: &Value) -> (u16, Value) {
    daemon.request("POST", &format!("/v1/members/{place}"), Some(body))
}

fn member(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.get("/v1/members");
    all.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone()
}

fn events(daemon: &Daemon, count: usize) -> Value {
    daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().unwrap().len() == count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_49_days_is_bounded_named_and_ended_by_an_operator() {
    let daemon = Setup::new(&pool(1, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    governor.member_report("chat", "m1", DAYS_49);
    let rows = daemon.wait_for("/v1/members", |rows| rows[0]["state"] == "cooling");
    let row = &rows[0];
    let left = row["cooling_seconds"].as_f64().unwrap();
    assert!((590.0..=600.0).contains(&left), "{row}");
    assert_eq!(row["cause"], "rate_limited");
    let by = format!("s-1 (test, pid {})", std::process::id());
    assert_eq!(row["by"], json!(by));

    // Clients get no longer wait than that: a quarter, at most 12 s, spreads their return.
    let refused = refusal(&governor, "light", Duration::from_secs(30)).await;
    assert_eq!((refused.status(), refused.reason()), (429, "all_cooling"));
    assert!(refused.retry_after().unwrap() <= Duration::from_secs(612), "{refused:?}");

    let event = &events(&daemon, 1)[0];
    assert_eq!(
        (&event["action"], &event["subject"], &event["by"]),
        (&json!("member-cooling"), &json!("chat/m1"), &json!(by))
    );
    assert_eq!(event["reason"], "reported a reset in 4294967 s, cut to cooldown.max");

    let (status, change) = order(&daemon, "chat/m1", &json!({ "order": "up" }));
    assert_eq!((status, &change["before"]["state"], &change["after"]["state"]), (200, &json!("cooling"), &json!("up")));
    lease(&governor, "light").await;
    let event = &events(&daemon, 2)[1];
    assert_eq!((&event["action"], &event["after"]), (&json!("member-up"), &json!("up")), "{event}");
    assert!(event["by"].as_str().unwrap().starts_with("uid "), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_is_a_setting_of_the_pool() {
    let daemon = Setup::new(&pool(1, 1, "cooldown.max = \"1s\"")).start();
    let governor = client(&daemon.socket()).await;
    governor.member_report("chat", "m1", DAYS_49);
    daemon.wait_for("/v1/members", |rows| rows[0]["state"] == "cooling");
    let waits = ask(&governor, "light").max_wait(Duration::from_secs(20));
    drop(soon(governor.acquire(waits)).await.unwrap());
    // The defaults are cut too, with a warning.
    let warnings = daemon.get("/v1/status")["warnings"].to_string();
    assert!(
        warnings.contains("pools.chat.cooldown.rate_limited of 60 s is cut to pools.chat.cooldown.max of 1 s"),
        "{warnings}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_member_survives_a_restart_and_is_undrained() {
    let mut daemon = Setup::new(&pool(2, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    let (status, change) = order(&daemon, "chat/m1", &json!({ "order": "drain", "reason": "key rotation" }));
    assert_eq!((status, &change["after"]["state"]), (200, &json!("draining")), "{change}");
    assert_eq!(lease(&governor, "a").await.member().as_deref(), Some("m2"));

    daemon.restart().unwrap();
    back(&governor, &daemon).await;
    let row = member(&daemon, "m1");
    assert_eq!(
        (&row["state"], &row["cause"], &row["reason"]),
        (&json!("draining"), &json!("operator"), &json!("key rotation"))
    );
    // A reload of the configuration does not undo it either.
    assert_eq!(daemon.request("PUT", "/v1/settings/node.cap", Some(&json!({ "value": 500 }))).0, 200);
    assert_eq!(member(&daemon, "m1")["state"], "draining");

    let (status, change) = order(&daemon, "chat/m1", &json!({ "order": "undrain" }));
    assert_eq!((status, &change["after"]["state"]), (200, &json!("up")), "{change}");
    daemon.restart().unwrap();
    assert_eq!(member(&daemon, "m1")["state"], "up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cool_down_that_was_ordered_survives_a_restart_and_no_report_ends_it() {
    let mut daemon = Setup::new(&pool(2, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    assert_eq!(order(&daemon, "chat/m1", &json!({ "order": "cool", "for_seconds": 7200 })).0, 200);
    governor.member_report("chat", "m1", MemberNews::Up);
    assert_eq!(lease(&governor, "a").await.member().as_deref(), Some("m2"));
    daemon.restart().unwrap();
    let row = member(&daemon, "m1");
    assert!(row["cooling_seconds"].as_f64().unwrap() > 7000.0 && row["cause"] == "operator", "{row}");

    // One for a second ends by itself, and the record says so.
    assert_eq!(order(&daemon, "chat/m1", &json!({ "order": "cool", "for_seconds": 1 })).0, 200);
    daemon.wait_for("/v1/members", |rows| rows[0]["state"] == "up");
    daemon.restart().unwrap();
    assert_eq!(member(&daemon, "m1")["state"], "up");
}

#[test]
fn a_wrong_order_says_what_is_wrong() {
    let mut setup = pool(1, 1, "");
    setup.push_str("draining = true\n");
    let daemon = Setup::new(&setup).start();
    for (place, body, status, said) in [
        ("chat/m9", json!({ "order": "up" }), 404, "the members are: chat/m1"),
        ("nosuch/m1", json!({ "order": "up" }), 404, "no member \"m1\" in a pool \"nosuch\""),
        ("chat/m1", json!({ "order": "cool" }), 400, "cool needs for_seconds"),
        ("chat/m1", json!({ "order": "drain", "for_seconds": 5 }), 400, "no other order takes it"),
        ("chat/m1", json!({ "order": "cool", "for_seconds": 0 }), 400, "from one second to 366 days"),
        ("chat/m1", json!({ "order": "undrain" }), 400, "set pools.chat.members.m1.draining to false"),
        ("chat/m1", json!({ "order": "up", "reason": "x".repeat(501) }), 400, "at most 500 characters"),
    ] {
        let (answered, answer) = order(&daemon, place, &body);
        assert_eq!(answered, status, "{body}: {answer}");
        assert!(answer.to_string().replace("\\\"", "\"").contains(said), "{body}: {answer}");
    }
}
