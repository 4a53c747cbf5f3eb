//! The drain of the node: new requests are refused, what runs ends, and the order outlives a restart.

use crate::world::{ask, back, client, lease, pool, refusal, soon};
use governor_client::Origin;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup, ctl_command};

fn drain(daemon: &Daemon, on: bool) -> Value {
    let (status, answer) = daemon.request("POST", "/v1/drain", Some(&json!({ "on": on })));
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_refuses_what_is_new_and_what_runs_goes_on() {
    let mut daemon = Setup::new(&pool(1, 1, "")).start();
    let governor = client(&daemon.socket()).await;
    let running = lease(&governor, "batch").await;
    let waiting = tokio::spawn({
        let (governor, request) = (governor.clone(), ask(&governor, "light"));
        async move { governor.acquire(request).await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    let answer = drain(&daemon, true);
    assert_eq!((&answer["on"], &answer["leases"]), (&json!(true), &json!(1)), "{answer}");
    assert_eq!((&answer["longest"][0]["label"], &answer["longest"][1]), (&json!("batch"), &Value::Null));
    let refused = soon(waiting).await.unwrap().unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (529, Some(Origin::Node), "draining"));
    let refused = refusal(&governor, "light", Duration::from_secs(30)).await;
    assert_eq!(refused.reason(), "draining");
    let decision = daemon.get(&format!("/v1/explain/{:016x}", refused.decision().unwrap()));
    assert!(decision["explanation"].as_str().unwrap().contains("an operator drains this node"), "{decision}");

    daemon.restart().unwrap();
    back(&governor, &daemon).await;
    assert_eq!(daemon.get("/v1/status")["drain"]["on"], true);
    assert_eq!(refusal(&governor, "light", Duration::ZERO).await.reason(), "draining");
    drop(running);
    daemon.wait_for("/v1/drain", |drain| drain["leases"] == 0);
    // Nothing is said about liveness or readiness.
    assert_eq!(drain(&daemon, false)["on"], false);
    lease(&governor, "light").await;
    let events = daemon.wait_for("/v1/events?last_seconds=600", |events| events.as_array().unwrap().len() == 2);
    assert_eq!(
        (&events[0]["action"], &events[0]["after"], &events[1]["after"]),
        (&json!("drain"), &json!("on"), &json!("off"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_last_lease_and_names_the_longest_meanwhile() {
    let daemon = Setup::new(&pool(1, 2, "")).start();
    let governor = client(&daemon.socket()).await;
    let running = lease(&governor, "batch").await;
    let waits = |arguments: &[&str]| {
        let mut command = ctl_command(&daemon.control_socket(), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = waits(&["drain", "--wait", "--reason", "new kernel"]);
    daemon.wait_for("/v1/drain", |drain| drain["on"] == true);
    drop(running);
    let output = first.wait_with_output().unwrap();
    let (said, progress) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && said.starts_with("drained: no lease is left after "), "{said}{progress}");
    assert!(
        progress.starts_with("1 lease is left; the longest: ") && progress.contains(" \"batch\" in pool chat, "),
        "{progress}"
    );
    assert_eq!(daemon.get("/v1/drain")["reason"], "new kernel");

    // Ended by another order, it is no success.
    assert!(daemon.ctl(&["drain", "--undo"]).status.success());
    let running = lease(&governor, "batch").await;
    let second = waits(&["drain", "--wait"]);
    daemon.wait_for("/v1/drain", |drain| drain["on"] == true);
    drain(&daemon, false);
    let output = second.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("the drain was ended by another order after "));
    drop(running);
}
