//! The bytes of every message: a change here is a change of the protocol.

use super::{KEY, only_frame, reply_bytes, request_bytes};
use crate::wire::KeyHash;
use crate::wire::codec::{parse_reply, parse_request};
use crate::wire::reply::*;
use crate::wire::request::*;

#[test]
fn every_request_has_its_golden_bytes() {
    let acquire = Acquire {
        pool: "chat".into(),
        key: Some(KEY),
        label: Some("team".into()),
        org: Some(KeyHash([1; 16])),
        endpoint: Some("messages".into()),
        candidates: vec!["m1".into(), "m2".into()],
        sticky: Some("m2".into()),
        max_wait_ms: Some(30_000),
        deadline_ms: Some(5_000),
        kind: Kind::Reattach,
        ..Acquire::default()
    };
    let nested = Acquire {
        pool: "p".into(),
        class: Some("enterprise".into()),
        priority: Priority::Sheddable,
        traffic: Some("media".into()),
        parent: Some(Parent::Child { lease: 7 }),
        ..Acquire::default()
    };
    let hop = Acquire { pool: "p".into(), parent: Some(Parent::Hop { lease: 7 }), ..Acquire::default() };
    let minimal = Acquire { pool: "chat".into(), ..Acquire::default() };
    let held = HeldLease {
        lease: 7,
        pool: "chat".into(),
        key: Some(KEY),
        label: Some("team".into()),
        member: Some("m1".into()),
        age_ms: 9,
        ..HeldLease::default()
    };
    let client = ClientSocket {
        local: "[fd00::1]:443".parse().unwrap(),
        peer: "[fd00::2]:50000".parse().unwrap(),
        cookie: None,
    };
    let idle = HeldLease {
        lease: 7,
        pool: "p".into(),
        org: Some(KEY),
        class: Some("chat".into()),
        suspended: true,
        client: Some(client),
        ends_with_client: true,
        site: Some("chat".into()),
        ..HeldLease::default()
    };
    let tied = Acquire {
        pool: "p".into(),
        client: Some(ClientSocket {
            local: "10.0.0.1:8080".parse().unwrap(),
            peer: "10.0.0.2:50000".parse().unwrap(),
            cookie: Some(9),
        }),
        ends_with_client: true,
        site: Some("a.rs:7".into()),
        ..Acquire::default()
    };
    let report = |state| Request::MemberReport(MemberReport { pool: "p".into(), member: "m".into(), state });
    let renewals = vec![Renewal { lease: 1, idle_ms: Some(4) }, Renewal { lease: 2, idle_ms: None }];
    let rows: Vec<(Request, &str)> = vec![
        (
            Request::Hello(Hello { version: 1, name: "gw".into(), resume: Some(5) }),
            r#"1e000000 01 00 0000 2a000000 0100 0000 0100 0200 "gw" 0200 0800 0500000000000000"#,
        ),
        (
            Request::Acquire(acquire),
            r#"6f000000 02 00 0000 2a000000 01
               0300 0400 "chat" 0400 1000 abababababababababababababababab 0500 0400 "team"
               0600 1000 01010101010101010101010101010101 0700 0800 "messages"
               0800 0200 "m1" 0800 0200 "m2" 0900 0200 "m2" 0a00 0400 30750000 0b00 0400 88130000"#,
        ),
        (Request::Acquire(minimal), r#"11000000 02 00 0000 2a000000 00 0300 0400 "chat""#),
        (
            Request::Acquire(nested),
            r#"36000000 02 00 0000 2a000000 00 0300 0100 "p" 1300 0a00 "enterprise" 1400 0100 02
               1700 0500 "media"
               1500 0800 0700000000000000"#,
        ),
        (
            Request::Acquire(tied),
            r#"4d000000 02 00 0000 2a000000 00 0300 0100 "p" 1800 2c00 0900000000000000
               00000000000000000000ffff0a000001 901f 00000000000000000000ffff0a000002 50c3 1900 0100 01 1a00 0600 "a.rs:7""#,
        ),
        (Request::Acquire(hop), r#"1a000000 02 00 0000 2a000000 00 0300 0100 "p" 1600 0800 0700000000000000"#),
        (Request::Cancel { request: 41 }, "0c000000 03 00 0000 2a000000 29000000"),
        (
            Request::Release { leases: vec![1, 2] },
            "1c000000 04 00 0000 2a000000 02000000 0100000000000000 0200000000000000",
        ),
        (
            Request::Renew { leases: renewals },
            "24000000 05 00 0000 2a000000 02000000 0100000000000000 04000000 0200000000000000 ffffffff",
        ),
        (Request::Move { lease: 3 }, "10000000 06 00 0000 2a000000 0300000000000000"),
        (
            report(MemberNews::RateLimited { reset_ms: Some(1000) }),
            r#"1b000000 07 00 0000 2a000000 01 0300 0100 "p" 0c00 0100 "m" 0d00 0400 e8030000"#,
        ),
        (report(MemberNews::Overloaded), r#"13000000 07 00 0000 2a000000 02 0300 0100 "p" 0c00 0100 "m""#),
        (report(MemberNews::Up), r#"13000000 07 00 0000 2a000000 03 0300 0100 "p" 0c00 0100 "m""#),
        (
            Request::Register { leases: vec![held] },
            r#"43000000 08 00 0000 2a000000 0e00 3700 0700000000000000 09000000 00
               0300 0400 "chat" 0400 1000 abababababababababababababababab 0500 0400 "team" 0c00 0200 "m1""#,
        ),
        (
            Request::Register { leases: vec![idle] },
            r#"77000000 08 00 0000 2a000000 0e00 6b00 0700000000000000 00000000 00 0300 0100 "p"
               0600 1000 abababababababababababababababab 1300 0400 "chat" 1800 2c00 0000000000000000
               fd000000000000000000000000000001 bb01 fd000000000000000000000000000002 50c3 1900 0100 03 1a00 0400 "chat""#,
        ),
        (Request::Ping, "08000000 09 00 0000 2a000000"),
        (
            Request::Candidates { candidates: vec!["m1".into(), "m2".into()] },
            r#"14000000 0d 00 0000 2a000000 0800 0200 "m1" 0800 0200 "m2""#,
        ),
        (Request::Suspend { lease: 3 }, "10000000 0a 00 0000 2a000000 0300000000000000"),
        (Request::Resume { lease: 3, max_wait_ms: None }, "10000000 0b 00 0000 2a000000 0300000000000000"),
        (
            Request::Resume { lease: 3, max_wait_ms: Some(0) },
            "18000000 0b 00 0000 2a000000 0300000000000000 0a00 0400 00000000",
        ),
        (
            Request::TierIs(TierIs { org: KEY, class: None, ttl_ms: 1000 }),
            "20000000 0c 00 0000 2a000000 e8030000 0600 1000 abababababababababababababababab",
        ),
        (
            Request::TierIs(TierIs { org: KEY, class: Some("tier4".into()), ttl_ms: 1000 }),
            r#"29000000 0c 00 0000 2a000000 e8030000 0600 1000 abababababababababababababababab
               1300 0500 "tier4""#,
        ),
    ];
    for (message, golden) in rows {
        let bytes = request_bytes(&message, 42);
        assert_eq!(hex(&bytes), written(golden), "{message:?}");
        assert_eq!(parse_request(&only_frame(bytes)), Ok(message));
    }
}

#[test]
fn every_reply_has_its_golden_bytes() {
    let shed = Shed {
        status: 429,
        origin: Origin::Key,
        reason: "fair_share".into(),
        retry_after_ms: 1500,
        decision: 9,
        detail: "no".into(),
        quota: None,
    };
    let with_quota = Shed { quota: Some(98), ..shed.clone() };
    let pools = vec![PoolLimits { name: "chat".into(), capacity: 98, members: vec![("m1".into(), 7)] }];
    let limits = Limits { sessions: 2, node_cap: 1000, pools: pools.clone() };
    let overload = Overload { level: Level::High, pressure: 800, causes: 3, retry_after_ms: 2000 };
    let rows: Vec<(Reply, &str)> = vec![
        (
            Reply::Welcome(Welcome { version: 1, session: 5, epoch: 3, lease_ttl_ms: 30_000 }),
            "1c000000 81 00 0000 2a000000 0100 0000 03000000 0500000000000000 30750000",
        ),
        (
            Reply::Grant(Grant { lease: 7, member: Some("m1".into()), waited_ms: 12 }),
            r#"1a000000 82 00 0000 2a000000 0700000000000000 0c000000 0c00 0200 "m1""#,
        ),
        (
            Reply::Grant(Grant { lease: 0, member: None, waited_ms: 0 }),
            "14000000 82 00 0000 2a000000 0000000000000000 00000000",
        ),
        (Reply::Parked, "08000000 83 00 0000 2a000000"),
        (
            Reply::Shed(shed),
            r#"2c000000 84 00 0000 2a000000 ad01 00 00 dc050000 0900000000000000 0f00 0a00 "fair_share" 1000 0200 "no""#,
        ),
        (
            Reply::Shed(with_quota),
            r#"34000000 84 00 0000 2a000000 ad01 00 00 dc050000 0900000000000000 0f00 0a00 "fair_share" 1000 0200 "no"
               1b00 0400 62000000"#,
        ),
        (Reply::Reject { reason: "bad".into() }, r#"0f000000 85 00 0000 2a000000 1000 0300 "bad""#),
        (
            Reply::Registered { leases: vec![(1, 2)] },
            "1c000000 86 00 0000 2a000000 01000000 0100000000000000 0200000000000000",
        ),
        (
            Reply::Revoke { lease: 7, reason: RevokeReason::Operator },
            "11000000 87 00 0000 2a000000 0700000000000000 02",
        ),
        (Reply::Overload(overload), "14000000 88 00 0000 2a000000 02 00 2003 03000000 d0070000"),
        (
            Reply::Limits(limits),
            r#"2e000000 89 00 0000 2a000000 02000000 e8030000
               1100 1a00 62000000 0300 0400 "chat" 1200 0a00 07000000 0c00 0200 "m1""#,
        ),
        (
            Reply::MoreLimits { pools },
            r#"26000000 8f 00 0000 2a000000
               1100 1a00 62000000 0300 0400 "chat" 1200 0a00 07000000 0c00 0200 "m1""#,
        ),
        (Reply::Drain, "08000000 8a 00 0000 2a000000"),
        (
            Reply::Error { code: ErrorCode::Handshake, message: "hi".into() },
            r#"10000000 8b 00 0000 2a000000 0300 1000 0200 "hi""#,
        ),
        (Reply::Pong, "08000000 8c 00 0000 2a000000"),
        (Reply::ClientGone { lease: 7 }, "10000000 8e 00 0000 2a000000 0700000000000000"),
        (Reply::TierAsk { org: KEY }, "1c000000 8d 00 0000 2a000000 0600 1000 abababababababababababababababab"),
    ];
    for (message, golden) in rows {
        let bytes = reply_bytes(&message, 42);
        assert_eq!(hex(&bytes), written(golden), "{message:?}");
        assert_eq!(parse_reply(&only_frame(bytes)), Ok(message));
    }
}

#[test]
fn every_code_of_an_enumeration_survives_the_way() {
    for origin in [Origin::Key, Origin::Org, Origin::Pool, Origin::Node, Origin::Fleet, Origin::Upstream] {
        let (reason, detail) = (String::new(), String::new());
        let shed =
            Reply::Shed(Shed { status: 529, origin, reason, retry_after_ms: 0, decision: 0, detail, quota: None });
        assert_eq!(parse_reply(&only_frame(reply_bytes(&shed, 1))), Ok(shed));
    }
    let reasons = [
        RevokeReason::Expired,
        RevokeReason::Operator,
        RevokeReason::PoolGone,
        RevokeReason::Unknown,
        RevokeReason::Reclaimed,
    ];
    for reason in reasons {
        let revoke = Reply::Revoke { lease: 1, reason };
        assert_eq!(parse_reply(&only_frame(reply_bytes(&revoke, 0))), Ok(revoke));
    }
    for level in [Level::Normal, Level::Elevated, Level::High, Level::Overloaded] {
        let overload = Reply::Overload(Overload { level, ..Overload::default() });
        assert_eq!(parse_reply(&only_frame(reply_bytes(&overload, 0))), Ok(overload));
    }
    for code in [ErrorCode::Unsupported, ErrorCode::Malformed, ErrorCode::Handshake, ErrorCode::Denied] {
        let error = Reply::Error { code, message: String::new() };
        assert_eq!(parse_reply(&only_frame(reply_bytes(&error, 1))), Ok(error));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as written in the tables below: hexadecimal, spaced by field, text in quotes.
fn written(text: &str) -> String {
    text.split('"').enumerate().fold(String::new(), |all, (index, part)| match index % 2 {
        0 => all + &part.split_whitespace().collect::<String>(),
        _ => all + &hex(part.as_bytes()),
    })
}
