//! Pools with more members than one frame has room for.

use crate::raw::Raw;
use crate::world::{client, soon};
use governor_client::{AcquireRequest, Governor, Refused};
use governor_common::wire::codec::MAX_CANDIDATES;
use governor_common::wire::reply::{Limits, Reply};
use governor_common::wire::request::{Acquire, Request};
use support::programs::daemon::{Daemon, Setup};

/// As long as the ids of accounts at providers.
fn account(number: usize) -> String {
    format!("{number:08}-0000-4000-8000-000000000000")
}

/// A daemon with a pool of that many members with one slot each, and a pool `small` of two slots.
fn daemon(members: usize) -> Daemon {
    let member = |number| format!("[[pools.large.members]]\nname = \"{}\"\nslots = 1\nreserve = 0\n", account(number));
    let members: String = (0..members).map(member).collect();
    Setup::new(&format!("{members}[pools.small.members.a]\nslots = 2\nreserve = 0\n")).start()
}

async fn asked(governor: &Governor, request: AcquireRequest) -> Result<governor_client::Lease, Refused> {
    soon(governor.acquire(request)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pool_keeps_its_limit_without_a_daemon_beside_a_pool_of_1500_members() {
    let mut daemon = daemon(1500);
    let governor = client(&daemon.socket()).await;
    let key = governor.key(b"one");
    let first = asked(&governor, AcquireRequest::new("large").key(key)).await.unwrap();
    daemon.kill();
    let mut held = Vec::new();
    for _ in 0..40 {
        match asked(&governor, AcquireRequest::new("small").key(key)).await {
            Ok(lease) => held.push(lease),
            Err(refused) => assert_eq!(refused.reason(), "fallback_share"),
        }
    }
    assert_eq!(held.len(), 2, "a pool of 2 lets 2 pass");
    // The last of the members is known: a request that may use only this one is served.
    let last = AcquireRequest::new("large").key(key).candidates([account(1499)]);
    let lease = asked(&governor, last).await.unwrap();
    assert_eq!((lease.member().as_deref(), lease.is_fallback()), (Some(account(1499).as_str()), true));
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_scoped_to_2500_accounts_is_served_by_one_of_them() {
    let daemon = daemon(2501);
    let governor = client(&daemon.socket()).await;
    // All but the first.
    let scope: Vec<String> = (1..2501).map(account).collect();
    let mut members = Vec::new();
    let mut held = Vec::new();
    for _ in 0..50 {
        let lease = asked(&governor, AcquireRequest::new("large").candidates(scope.clone())).await.unwrap();
        members.push(lease.member().unwrap().to_string());
        held.push(lease);
    }
    assert!(members.iter().all(|member| scope.contains(member)), "{members:?}");
    drop(held);

    // Names that are not in the pool are named, wherever in the list they stand.
    for place in [0, 2499] {
        let mut wrong = scope.clone();
        wrong[place] = format!("{}-x", account(place));
        let refused = asked(&governor, AcquireRequest::new("large").candidates(wrong)).await.unwrap_err();
        assert_eq!(refused.status(), 400);
        assert!(refused.to_string().contains("-x"), "{refused}");
    }
    let many: Vec<String> = (0..MAX_CANDIDATES / 40 + 1).map(account).collect();
    let refused = asked(&governor, AcquireRequest::new("large").candidates(many)).await.unwrap_err();
    assert_eq!(refused.status(), 400);
    assert!(refused.to_string().contains("at most 524288"), "{refused}");
}

#[test]
fn a_list_that_no_request_follows_is_dropped_and_one_that_is_too_long_is_rejected() {
    let daemon = daemon(3);
    let mut raw = Raw::greeted(&daemon.socket());
    let list = |names: Vec<String>| Request::Candidates { candidates: names };
    let only_the_last = |acquire: &mut Acquire| {
        acquire.pool = "large".into();
        acquire.candidates = vec![account(2)];
        acquire.max_wait_ms = Some(0);
    };
    assert!(matches!(raw.acquire(2, only_the_last), Reply::Grant(_)));
    raw.send(7, &list(vec![account(0)]));
    raw.send(8, &Request::Ping);
    let full = raw.acquire(7, only_the_last);
    assert!(matches!(full, Reply::Shed(_)), "the ping dropped the list, and its member with it: {full:?}");
    raw.send(9, &list(vec![account(0)]));
    let granted = raw.acquire(9, only_the_last);
    assert!(matches!(&granted, Reply::Grant(grant) if grant.member == Some(account(0))), "{granted:?}");
    for _ in 0..10 {
        raw.send(10, &list(vec!["n".repeat(128); 400]));
    }
    let refused = raw.acquire(10, |acquire| {
        acquire.pool = "large".into();
        acquire.candidates = vec![account(1)];
    });
    assert!(matches!(&refused, Reply::Reject { reason } if reason.contains("at most 524288")), "{refused:?}");
}

#[test]
fn limits_come_with_every_capacity_first() {
    let daemon = daemon(1500);
    let mut raw = Raw::greeted(&daemon.socket());
    let mut members = 0;
    let limits = loop {
        if let Some((0, Reply::Limits(Limits { pools, .. }))) = raw.next() {
            break pools;
        }
    };
    let capacities: Vec<(&str, u32)> = limits.iter().map(|pool| (pool.name.as_str(), pool.capacity)).collect();
    assert_eq!(capacities, [("large", 1500), ("small", 2)]);
    members += limits.iter().map(|pool| pool.members.len()).sum::<usize>();
    while members < 1501 {
        if let Some((0, Reply::MoreLimits { pools })) = raw.next() {
            members += pools.iter().map(|pool| pool.members.len()).sum::<usize>();
        }
    }
    assert_eq!(members, 1501);
}
