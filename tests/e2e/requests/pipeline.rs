//! Sessions under load and in pieces: thousands of requests in flight, frames cut anywhere, leases that nobody renews.

use crate::raw::Raw;
use crate::world::{client, daemon, lease, pool, soon};
use bytes::BytesMut;
use governor_common::wire::KeyHash;
use governor_common::wire::codec;
use governor_common::wire::reply::{Reply, RevokeReason};
use governor_common::wire::request::{Acquire, Request};
use serde_json::json;
use std::time::Duration;
use support::programs::daemon::Setup;

/// Requests in flight on one session.
const DEEP: u32 = 5_000;

fn frames(requests: impl IntoIterator<Item = (u32, Request)>) -> BytesMut {
    let mut bytes = BytesMut::new();
    for (id, request) in requests {
        codec::encode_request(&request, id, &mut bytes).unwrap();
    }
    bytes
}

/// A request of a key of its own: one key may have few requests that wait.
fn acquire(id: u32) -> (u32, Request) {
    let key = Some(KeyHash(u128::from(id).to_be_bytes()));
    (id, Request::Acquire(Acquire { pool: "chat".to_owned(), key, ..Acquire::default() }))
}

#[test]
fn thousands_of_requests_in_flight_on_one_session_get_one_answer_each() {
    let node = format!("[node]\ncap = 0\nmax_parked = {DEEP}\n");
    let daemon = Setup::new(&format!("{node}{}", pool(1, DEEP / 2, ""))).start();
    let mut raw = Raw::greeted(&daemon.socket());
    raw.write(&frames((2..DEEP + 2).map(acquire)));
    // Half of them run; the others wait for the first half's ends, which all come in one write.
    let mut answered = std::collections::BTreeMap::new();
    let mut parked = 0;
    while answered.len() < (DEEP / 2) as usize || parked < DEEP / 2 {
        match raw.next().expect("the session lives") {
            (id, Reply::Grant(grant)) => assert_eq!(answered.insert(id, grant.lease), None, "{id} is answered twice"),
            (_, Reply::Parked) => parked += 1,
            (0, _) => {}
            (id, other) => panic!("{id}: {other:?}"),
        }
    }
    assert_eq!(daemon.get("/v1/pools")[0]["parked"], DEEP / 2);
    let leases: Vec<u64> = answered.values().copied().collect();
    raw.write(&frames([(1, Request::Release { leases })]));
    while answered.len() < DEEP as usize {
        match raw.next().expect("the session lives") {
            (id, Reply::Grant(grant)) => assert_eq!(answered.insert(id, grant.lease), None, "{id} is answered twice"),
            (0, _) => {}
            (id, other) => panic!("{id}: {other:?}"),
        }
    }
    assert!(answered.keys().copied().eq(2..DEEP + 2));
    drop(raw);
}

#[test]
fn frames_may_be_cut_anywhere_and_joined_at_will() {
    let daemon = daemon(1, 8, "");
    let mut raw = Raw::greeted(&daemon.socket());
    let bytes = frames((2..6).map(acquire));
    for byte in &bytes[..bytes.len() / 2] {
        raw.write(&[*byte]);
    }
    raw.write(&bytes[bytes.len() / 2..]);
    for id in 2..6 {
        assert!(matches!(raw.reply_to(id), Reply::Grant(_)));
    }
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lives_as_long_as_its_guard_and_one_that_nobody_renews_expires() {
    let daemon = Setup::new(&format!("[node]\nlease_ttl = \"1s\"\n{}", pool(1, 3, ""))).start();
    let governor = client(&daemon.socket()).await;
    let held = [lease(&governor, "a").await, lease(&governor, "b").await];
    let socket = daemon.socket();
    let expired = tokio::task::spawn_blocking(move || {
        let mut raw = Raw::greeted(&socket);
        let Reply::Grant(grant) = raw.acquire(2, |acquire| acquire.site = Some("leaky.rs:7".into())) else {
            panic!("there is a slot")
        };
        while let Some((_, reply)) = raw.next() {
            if let Reply::Revoke { lease, reason } = reply {
                return (lease == grant.lease, reason);
            }
        }
        panic!("the session lives");
    });
    assert_eq!(soon(expired).await.unwrap(), (true, RevokeReason::Expired));
    let status = daemon.get("/v1/status");
    assert_eq!(status["lost"], json!([{ "site": "leaky.rs:7", "expired": 1, "reclaimed": 0 }]));
    // Theirs were renewed all the while: the raw one lived for a whole ttl.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(held.iter().all(|lease| lease.revoked().is_none()));
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 2);
}

#[test]
fn an_org_at_its_ceiling_is_asked_for_of_a_proxy_that_can_answer() {
    let classes = "[node]\ncaps_mode = \"enforce\"\ndefault_class = \"tier0\"\n[classes.tier0]\ncap = 1\n";
    let daemon = Setup::new(&format!("{classes}{}", pool(1, 4, ""))).start();
    let mut old = Raw::greeted_as(&daemon.socket(), 1);
    let mut new = Raw::greeted(&daemon.socket());
    let org = KeyHash([7; 16]);
    assert!(matches!(old.acquire(2, |acquire| acquire.org = Some(org)), Reply::Grant(_)));
    let asked = std::iter::from_fn(|| new.next())
        .find_map(|(_, reply)| if let Reply::TierAsk { org } = reply { Some(org) } else { None });
    assert_eq!(asked, Some(org), "the old proxy reached it and knows nothing of tiers");
}
