//! Golden bytes of every message, round trips of generated ones, and bytes that mean harm.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{HELD_PER_FRAME, RELEASES_PER_FRAME, RENEWALS_PER_FRAME, encode_reply, encode_request};
use super::{parse_reply, parse_request};
use crate::wire::error::{FrameError, ParseError};
use crate::wire::frame::{Frame, decode_frame};
use crate::wire::reply::*;
use crate::wire::request::*;
use crate::wire::{KeyHash, MAX_FRAME, MAX_NAME};

const KEY: KeyHash = KeyHash([0xab; 16]);

fn request_bytes(message: &Request, request: u32) -> BytesMut {
    let mut buffer = BytesMut::new();
    encode_request(message, request, &mut buffer).unwrap();
    buffer
}

fn reply_bytes(message: &Reply, request: u32) -> BytesMut {
    let mut buffer = BytesMut::new();
    encode_reply(message, request, &mut buffer).unwrap();
    buffer
}

fn only_frame(mut buffer: BytesMut) -> Frame {
    let frame = decode_frame(&mut buffer).unwrap().expect("one whole frame");
    assert!(buffer.is_empty(), "bytes are left over");
    frame
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
    };
    let minimal = Acquire { pool: "chat".into(), ..Acquire::default() };
    let held = HeldLease {
        lease: 7,
        pool: "chat".into(),
        key: Some(KEY),
        label: Some("team".into()),
        member: Some("m1".into()),
        kind: Kind::Ordinary,
        age_ms: 9,
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
        (Request::Ping, "08000000 09 00 0000 2a000000"),
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
    };
    let limits = Limits {
        sessions: 2,
        node_cap: 1000,
        pools: vec![PoolLimits { name: "chat".into(), capacity: 98, members: vec![("m1".into(), 7)] }],
    };
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
        (Reply::Drain, "08000000 8a 00 0000 2a000000"),
        (
            Reply::Error { code: ErrorCode::Handshake, message: "hi".into() },
            r#"10000000 8b 00 0000 2a000000 0300 1000 0200 "hi""#,
        ),
        (Reply::Pong, "08000000 8c 00 0000 2a000000"),
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
        let shed = Reply::Shed(Shed { status: 529, origin, reason, retry_after_ms: 0, decision: 0, detail });
        assert_eq!(parse_reply(&only_frame(reply_bytes(&shed, 1))), Ok(shed));
    }
    for reason in [RevokeReason::Expired, RevokeReason::Operator, RevokeReason::PoolGone, RevokeReason::Unknown] {
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

#[test]
fn an_unknown_tlv_is_skipped() {
    let mut bytes = request_bytes(&Request::Move { lease: 3 }, 1);
    bytes.extend_from_slice(&[0xff, 0x7f, 2, 0, 9, 9]);
    bytes[0] += 6;
    assert_eq!(parse_request(&only_frame(bytes)), Ok(Request::Move { lease: 3 }));
}

#[test]
fn an_unknown_type_names_itself_and_its_request() {
    let frame = Frame { kind: 0x7f, flags: 0, request: 12, body: Bytes::from_static(b"whatever") };
    assert_eq!(parse_request(&frame), Err(ParseError::Unknown { kind: 0x7f, request: 12 }));
    assert_eq!(parse_reply(&frame), Err(ParseError::Unknown { kind: 0x7f, request: 12 }));
    assert_eq!(parse_request(&frame).unwrap_err().code(), ErrorCode::Unsupported);
}

#[test]
fn a_body_that_is_wrong_is_malformed_and_says_where() {
    let long = "x".repeat(MAX_NAME + 1);
    let rows: Vec<(&str, u8, Vec<u8>)> = vec![
        ("no body", 0x02, vec![]),
        ("unknown kind of work", 0x02, vec![9, 3, 0, 1, 0, b'p']),
        ("no pool", 0x02, vec![0]),
        ("empty pool", 0x02, vec![0, 3, 0, 0, 0]),
        ("pool is not UTF-8", 0x02, vec![0, 3, 0, 1, 0, 0xff]),
        ("pool too long", 0x02, [&[0, 3, 0, 129, 0], long.as_bytes()].concat()),
        ("TLV header cut", 0x02, vec![0, 3, 0, 1]),
        ("TLV value cut", 0x02, vec![0, 3, 0, 9, 0, b'p']),
        ("key of 3 bytes", 0x02, vec![0, 3, 0, 1, 0, b'p', 4, 0, 3, 0, 1, 2, 3]),
        ("wait of 2 bytes", 0x02, vec![0, 3, 0, 1, 0, b'p', 10, 0, 2, 0, 1, 2]),
        ("list shorter than its count", 0x04, vec![2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ("list of four billion", 0x04, vec![0xff; 4]),
        ("member state 0", 0x07, vec![0, 3, 0, 1, 0, b'p', 12, 0, 1, 0, b'm']),
        ("held lease without pool", 0x08, [&[14, 0, 13, 0], &[0; 13][..]].concat()),
    ];
    for (what, kind, body) in rows {
        let frame = Frame { kind, flags: 0, request: 3, body: body.into() };
        let parsed = parse_request(&frame);
        assert!(matches!(parsed, Err(ParseError::Malformed { request: 3, .. })), "{what}: {parsed:?}");
    }
}

#[test]
fn a_length_out_of_bounds_ends_the_stream() {
    let mut short = BytesMut::from(&[7, 0, 0, 0, 9, 0, 0][..]);
    assert_eq!(decode_frame(&mut short), Err(FrameError::TooShort { length: 7 }));
    let length = u32::try_from(MAX_FRAME).unwrap() + 1;
    let mut long = BytesMut::from(&length.to_le_bytes()[..]);
    assert_eq!(decode_frame(&mut long), Err(FrameError::TooLong { length }));
    let mut longest = BytesMut::from(&(length - 1).to_le_bytes()[..]);
    assert_eq!(decode_frame(&mut longest), Ok(None));
}

#[test]
fn frames_come_out_of_split_and_joined_reads() {
    let messages = [Request::Ping, Request::Move { lease: 3 }, Request::Release { leases: vec![1, 2, 3] }];
    let mut joined = BytesMut::new();
    for (request, message) in (1..).zip(&messages) {
        encode_request(message, request, &mut joined).unwrap();
    }
    let mut buffer = BytesMut::new();
    let mut seen = Vec::new();
    for byte in &joined {
        buffer.extend_from_slice(&[*byte]);
        while let Some(frame) = decode_frame(&mut buffer).unwrap() {
            seen.push((frame.request, parse_request(&frame).unwrap()));
        }
    }
    assert_eq!(seen, (1..).zip(messages).collect::<Vec<_>>());
}

#[test]
fn the_fullest_lists_fit_a_frame_and_one_more_does_not() {
    let mut buffer = BytesMut::new();
    let release = |count| Request::Release { leases: vec![u64::MAX; count] };
    encode_request(&release(RELEASES_PER_FRAME), 1, &mut buffer).unwrap();
    let renewal = Renewal { lease: u64::MAX, idle_ms: None };
    encode_request(&Request::Renew { leases: vec![renewal; RENEWALS_PER_FRAME] }, 1, &mut buffer).unwrap();
    let name = "n".repeat(MAX_NAME);
    let held = HeldLease {
        lease: u64::MAX,
        pool: name.clone(),
        key: Some(KEY),
        label: Some(name.clone()),
        member: Some(name),
        kind: Kind::Ordinary,
        age_ms: u32::MAX,
    };
    encode_request(&Request::Register { leases: vec![held; HELD_PER_FRAME] }, 1, &mut buffer).unwrap();

    let before = buffer.len();
    let error = encode_request(&release(RELEASES_PER_FRAME + 1), 1, &mut buffer).unwrap_err();
    assert!(error.length > MAX_FRAME);
    assert_eq!(buffer.len(), before, "a frame that does not fit leaves nothing behind");
}

#[test]
fn names_and_texts_are_cut_between_characters() {
    let label = "ü".repeat(MAX_NAME);
    let acquire = Acquire { pool: "p".into(), label: Some(label), ..Acquire::default() };
    let Ok(Request::Acquire(parsed)) = parse_request(&only_frame(request_bytes(&Request::Acquire(acquire), 1))) else {
        panic!("a cut name is still a name");
    };
    assert_eq!(parsed.label.unwrap(), "ü".repeat(MAX_NAME / 2));
    let reject = Reply::Reject { reason: "€".repeat(1000) };
    let Ok(Reply::Reject { reason }) = parse_reply(&only_frame(reply_bytes(&reject, 1))) else {
        panic!("a cut text is still a text");
    };
    assert_eq!(reason, "€".repeat(341));
}

fn name() -> impl Strategy<Value = String> {
    "[a-zß-ü]{1,20}"
}

fn key() -> impl Strategy<Value = KeyHash> {
    any::<[u8; 16]>().prop_map(KeyHash)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Ordinary), Just(Kind::Reattach), Just(Kind::Exempt)]
}

fn acquire() -> impl Strategy<Value = Acquire> {
    let who = (name(), option::of(key()), option::of(name()), option::of(key()), option::of(name()));
    let how = (vec(name(), 0..6), option::of(name()), option::of(any::<u32>()), option::of(any::<u32>()), kind());
    (who, how).prop_map(|((pool, key, label, org, endpoint), (candidates, sticky, max_wait_ms, deadline_ms, kind))| {
        Acquire { pool, key, label, org, endpoint, candidates, sticky, max_wait_ms, deadline_ms, kind }
    })
}

fn held() -> impl Strategy<Value = HeldLease> {
    let who = (any::<u64>(), name(), option::of(key()), option::of(name()));
    (who, option::of(name()), kind(), any::<u32>()).prop_map(|((lease, pool, key, label), member, kind, age_ms)| {
        HeldLease { lease, pool, key, label, member, kind, age_ms }
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let idle = option::of(0..u32::MAX);
    let renewal = (any::<u64>(), idle).prop_map(|(lease, idle_ms)| Renewal { lease, idle_ms });
    let hello = (any::<u16>(), name(), option::of(any::<u64>()));
    let reset = option::of(any::<u32>());
    prop_oneof![
        hello.prop_map(|(version, name, resume)| Request::Hello(Hello { version, name, resume })),
        acquire().prop_map(Request::Acquire),
        any::<u32>().prop_map(|request| Request::Cancel { request }),
        vec(any::<u64>(), 0..50).prop_map(|leases| Request::Release { leases }),
        vec(renewal, 0..50).prop_map(|leases| Request::Renew { leases }),
        any::<u64>().prop_map(|lease| Request::Move { lease }),
        (name(), name(), reset).prop_map(|(pool, member, reset_ms)| {
            Request::MemberReport(MemberReport { pool, member, state: MemberNews::RateLimited { reset_ms } })
        }),
        vec(held(), 0..8).prop_map(|leases| Request::Register { leases }),
        Just(Request::Ping),
    ]
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let grant = (any::<u64>(), option::of(name()), any::<u32>());
    let shed = (any::<u16>(), "[a-z_]{0,20}", any::<u32>(), any::<u64>(), ".{0,40}");
    let pool = (name(), any::<u32>(), vec((name(), any::<u32>()), 0..5));
    let pool = pool.prop_map(|(name, capacity, members)| PoolLimits { name, capacity, members });
    prop_oneof![
        (any::<u16>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(version, session, epoch, lease_ttl_ms)| {
            Reply::Welcome(Welcome { version, session, epoch, lease_ttl_ms })
        }),
        grant.prop_map(|(lease, member, waited_ms)| Reply::Grant(Grant { lease, member, waited_ms })),
        shed.prop_map(|(status, reason, retry_after_ms, decision, detail)| {
            Reply::Shed(Shed { status, origin: Origin::Pool, reason, retry_after_ms, decision, detail })
        }),
        ".{0,40}".prop_map(|reason| Reply::Reject { reason }),
        vec((any::<u64>(), any::<u64>()), 0..50).prop_map(|leases| Reply::Registered { leases }),
        (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(pressure, causes, retry_after_ms)| {
            Reply::Overload(Overload { level: Level::Elevated, pressure, causes, retry_after_ms })
        }),
        (any::<u32>(), any::<u32>(), vec(pool, 0..5)).prop_map(|(sessions, node_cap, pools)| Reply::Limits(Limits {
            sessions,
            node_cap,
            pools
        })),
        Just(Reply::Drain),
    ]
}

proptest! {
    #[test]
    fn any_request_comes_back_as_it_went(message in any_request(), request: u32) {
        let frame = only_frame(request_bytes(&message, request));
        prop_assert_eq!(frame.request, request);
        prop_assert_eq!(parse_request(&frame), Ok(message));
    }

    #[test]
    fn any_reply_comes_back_as_it_went(message in any_reply(), request: u32) {
        let frame = only_frame(reply_bytes(&message, request));
        prop_assert_eq!(frame.request, request);
        prop_assert_eq!(parse_reply(&frame), Ok(message));
    }

    #[test]
    fn no_prefix_of_a_request_is_read_as_a_frame(message in any_request(), cut in 1_usize..40) {
        let mut bytes = request_bytes(&message, 1);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        prop_assert_eq!(decode_frame(&mut bytes), Ok(None));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(frame)) = decode_frame(&mut buffer) {
            drop((parse_request(&frame), parse_reply(&frame)));
        }
    }

    #[test]
    fn arbitrary_bodies_of_known_types_never_panic(kind in 0_u8..16, high: bool, body in vec(any::<u8>(), 0..300)) {
        let kind = if high { kind | 0x80 } else { kind };
        let frame = Frame { kind, flags: 0, request: 1, body: body.into() };
        drop((parse_request(&frame), parse_reply(&frame)));
    }

    #[test]
    fn one_changed_byte_never_panics(message in any_request(), at: prop::sample::Index, value: u8) {
        let mut bytes = request_bytes(&message, 1);
        let at = at.index(bytes.len());
        bytes[at] = value;
        while let Ok(Some(frame)) = decode_frame(&mut bytes) {
            drop(parse_request(&frame));
        }
    }
}
