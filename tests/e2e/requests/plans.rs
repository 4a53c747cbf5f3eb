//! Classes, tiers, kinds of traffic, orgs with guarantees, and who goes first when the node is overloaded.

use crate::world::{ask, client, daemon, lease, pool, soon};
use governor_client::{AcquireRequest, Governor, Lease, Origin, Priority, Refused};
use serde_json::json;
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup, free_port};

const ENFORCED: &str = "[node]\ncaps_mode = \"enforce\"\n[classes.tier0]\ncap = 2\n[classes.chat]\ncap = 0\n";

fn of_org(governor: &Governor, key: &str, org: &str, class: &str) -> AcquireRequest {
    ask(governor, key).org(governor.key(org.as_bytes())).class(class)
}

async fn asked(governor: &Governor, request: AcquireRequest) -> Result<Lease, Refused> {
    soon(governor.acquire(request)).await
}

/// Asks until the answer is as expected, because it takes effect a moment after it was given.
async fn eventually(governor: &Governor, request: AcquireRequest, granted: bool) -> Option<Lease> {
    let end = std::time::Instant::now() + crate::world::SOON;
    loop {
        let answer = asked(governor, request.clone()).await;
        if answer.is_ok() == granted {
            return answer.ok();
        }
        assert!(std::time::Instant::now() < end, "{answer:?}");
        drop(answer);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn org_row(daemon: &Daemon) -> serde_json::Value {
    daemon.get("/v1/orgs")[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_is_asked_for_at_the_base_ceiling_only_and_raises_it_for_as_long_as_it_holds() {
    let address = free_port();
    let daemon = Setup::new(&format!("{ENFORCED}{}", pool(1, 20, ""))).metrics(address).start();
    let governor = client(&daemon.socket()).await;
    let mut asks = governor.tier_asks();
    let org = governor.key(b"acme");
    let request = || of_org(&governor, "a", "acme", "tier0");
    let asks_total = || crate::signals::metrics::scrape(address)["governor_tier_asks_total"];

    let mut held = vec![asked(&governor, request()).await.unwrap()];
    assert_eq!(asks_total(), 0.0, "it is below its ceiling");
    held.push(asked(&governor, request()).await.unwrap());
    assert_eq!(soon(asks.next()).await, Some(org));
    let refused = asked(&governor, request()).await.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (429, Some(Origin::Org), "class_cap"));
    assert!(refused.retry_after().is_some_and(|after| after >= Duration::from_secs(1)));
    assert_eq!(asks_total(), 1.0, "and it is asked for once");
    let explained = daemon.get(&format!("/v1/explain/{:x}", refused.decision().unwrap()));
    assert_eq!((&explained["class"], &explained["numbers"]["limit"]), (&json!("tier0"), &json!(2)), "{explained}");

    // Another proxy of the node was not asked.
    let other = client(&daemon.socket()).await;
    other.tier_is(org, Some("tier1"), Duration::from_secs(2));
    soon(async {
        while crate::signals::metrics::scrape(address)["governor_tier_answers_ignored_total"] < 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(asked(&governor, request()).await.unwrap_err().reason(), "class_cap");

    governor.tier_is(org, Some("tier1"), Duration::from_secs(2));
    held.extend(eventually(&governor, request(), true).await);
    let row = org_row(&daemon);
    assert_eq!((&row["tier"], &row["cap"], &row["counted"]), (&json!("tier1"), &json!(200), &json!(3)), "{row}");
    // Its time is over: the base holds again, and what runs goes on.
    eventually(&governor, request(), false).await;
    assert_eq!(org_row(&daemon)["counted"], 3);
    governor.tier_is(org, None, Duration::from_secs(60));
    eventually(&governor, request(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_without_a_ceiling_and_an_unknown_one_limit_nobody() {
    let daemon = Setup::new(&format!("{ENFORCED}{}", pool(1, 8, ""))).start();
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for class in ["chat", "chat", "chat", "no-such-class", "no-such-class", "no-such-class"] {
        held.push(asked(&governor, of_org(&governor, "a", class, class)).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_only_recorded_until_told_to_act() {
    let daemon = Setup::new(&format!("[classes.tier0]\ncap = 1\n{}", pool(1, 8, ""))).start();
    let governor = client(&daemon.socket()).await;
    let first = asked(&governor, of_org(&governor, "a", "acme", "tier0")).await.unwrap();
    let second = asked(&governor, of_org(&governor, "a", "acme", "tier0")).await.unwrap();
    assert_eq!(daemon.get("/v1/pools")[0]["would_have"]["class_cap"]["refuse"], 1);
    assert_eq!(daemon.request("PUT", "/v1/settings/node.caps_mode", Some(&json!({ "value": "enforce" }))).0, 200);
    let refused = asked(&governor, of_org(&governor, "a", "acme", "tier0")).await.unwrap_err();
    assert_eq!(refused.reason(), "class_cap");
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_traffic_cannot_fill_the_slots_of_the_others() {
    let daemon = daemon(1, 3, "traffic.media.slots = 1");
    let governor = client(&daemon.socket()).await;
    let media = || ask(&governor, "a").traffic("media").max_wait(Duration::ZERO);
    let first = asked(&governor, media()).await.unwrap();
    let refused = asked(&governor, media()).await.unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (429, "sub_capacity"));
    let _text = (lease(&governor, "a").await, lease(&governor, "a").await);
    let traffic = daemon.get("/v1/pools")[0]["traffic"].clone();
    assert_eq!(traffic, json!([{ "name": "media", "slots": 1, "in_flight": 1 }]));
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_org_gets_its_floor_while_another_fills_the_pool_with_many_keys() {
    let base = Governor::start(crate::world::config(std::path::Path::new("/nonexistent")));
    let id = base.key(b"small");
    let orgs = format!("[orgs.small]\nid = \"{id}\"\nfloor = 3\n");
    let lines = "fair_share = \"max-min\"\nfair_share_mode = \"enforce\"\nheadroom = 0";
    let daemon = Setup::new(&format!("{orgs}{}", pool(1, 10, lines))).start();
    let governor = client(&daemon.socket()).await;
    let mut big = Vec::new();
    for n in 0..10 {
        big.push(asked(&governor, of_org(&governor, &format!("key-{n}"), "big", "")).await.unwrap());
    }
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (governor, request) = (governor.clone(), of_org(&governor, "s", "small", ""));
            tokio::spawn(async move { governor.acquire(request).await })
        })
        .collect();
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 3);
    let more = {
        let (governor, request) = (governor.clone(), of_org(&governor, "key-0", "big", ""));
        tokio::spawn(async move { governor.acquire(request).await })
    };
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 4);
    big.truncate(7);
    for one in waiting {
        soon(one).await.unwrap().expect("it is below its floor");
    }
    drop(more);
    let orgs = daemon.get("/v1/orgs");
    let small = orgs.as_array().unwrap().iter().find(|org| org["name"] == "small");
    assert!(small.is_none_or(|org| org["pools"][0]["floor"] == 3), "{orgs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sheddable_requests_go_first_and_critical_ones_never() {
    let node = "[node]\ncap = 40\n[overload]\nmode = \"enforce\"\nhold = \"0s\"\n";
    let daemon = Setup::new(&format!("{node}{}", pool(1, 100, ""))).start();
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for _ in 0..38 {
        held.push(lease(&governor, "a").await);
    }
    // 95 % of the node's cap.
    daemon.wait_for("/v1/status", |status| status["shed_level"] == "high");
    let with = |priority| ask(&governor, "b").priority(priority);
    let refused = asked(&governor, with(Priority::Sheddable)).await.unwrap_err();
    assert_eq!((refused.status(), refused.origin(), refused.reason()), (529, Some(Origin::Node), "overload"));
    held.push(asked(&governor, with(Priority::Normal)).await.unwrap());
    held.push(asked(&governor, with(Priority::Critical)).await.unwrap());
    held.truncate(10);
    daemon.wait_for("/v1/status", |status| status["shed_level"] == "normal");
    asked(&governor, with(Priority::Sheddable)).await.unwrap();
}
