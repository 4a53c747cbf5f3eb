//! A request that leads to others: its child takes a slot of its own, its hop shares the one there is.

use crate::site::{accounts, gateway, post, stats, upstream};
use support::programs::daemon::Setup;

const GUARDED: &str = "/v1/guarded/chat/completions";

#[test]
fn a_guarded_request_costs_one_slot_for_itself_and_one_for_its_screening() {
    let daemon = Setup::new(&accounts(1, 2, "")).start();
    let upstream = upstream(1, 2);
    let gateway = gateway(&upstream, &daemon.socket());
    let mut answer = post(gateway.address, GUARDED, "sk-one", r#"{"stream":true}"#);
    assert!(answer.status == 200 && answer.first_bytes() > 0, "{}", answer.head);
    let pool = daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 1)[0].clone();
    assert_eq!(pool["granted_total"], 2, "the hop was not counted again: {pool}");
    let seen = stats(upstream.address);
    assert_eq!((&seen["streams_total"], &seen["in_flight"]), (&2.into(), &1.into()));
    drop(answer);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_child_without_a_slot_is_refused_at_once_and_never_waits_behind_its_own_parent() {
    let daemon = Setup::new(&accounts(1, 1, "")).start();
    let upstream = upstream(1, 1);
    let gateway = gateway(&upstream, &daemon.socket());
    let refused = post(gateway.address, GUARDED, "sk-one", "{}");
    assert_eq!((refused.status, refused.header("x-governor-origin")), (429, Some("pool")), "{}", refused.head);
    let pool = daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0)[0].clone();
    assert_eq!((&pool["granted_total"], &pool["parked"]), (&1.into(), &0.into()));
    assert_eq!(stats(upstream.address)["streams_total"], 0);
}
