//! Generated messages come back as they went, and no bytes panic.

use super::{only_frame, reply_bytes, request_bytes};
use crate::wire::KeyHash;
use crate::wire::codec::{parse_reply, parse_request};
use crate::wire::frame::{Frame, decode_frame};
use crate::wire::reply::*;
use crate::wire::request::*;
use bytes::BytesMut;
use core::net::{Ipv6Addr, SocketAddr};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

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
    fn a_stream_is_the_same_frames_however_it_is_cut(
        messages in vec(any_request(), 1..6),
        pieces in vec(1_usize..200, 1..40),
    ) {
        let mut stream = BytesMut::new();
        for (request, message) in (1..).zip(&messages) {
            stream.extend_from_slice(&request_bytes(message, request));
        }
        let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
        for piece in pieces.iter().cycle() {
            let piece = stream.split_to((*piece).min(stream.len()));
            buffer.extend_from_slice(&piece);
            while let Some(frame) = decode_frame(&mut buffer).unwrap() {
                seen.push((frame.request, parse_request(&frame).unwrap()));
            }
            if stream.is_empty() {
                break;
            }
        }
        prop_assert_eq!(seen, (1..).zip(messages).collect::<Vec<_>>());
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
    let rank = (option::of(name()), priority(), option::of(name()), option::of(parent()));
    let tie = (option::of(client()), any::<bool>(), option::of(name()));
    (who, how, rank, tie).prop_map(|(who, how, (class, priority, traffic, parent), tie)| {
        let (client, ends_with_client, site) = tie;
        let (pool, key, label, org, endpoint) = who;
        let (candidates, sticky, max_wait_ms, deadline_ms, kind) = how;
        Acquire {
            pool,
            key,
            label,
            org,
            endpoint,
            candidates,
            sticky,
            max_wait_ms,
            deadline_ms,
            kind,
            class,
            priority,
            traffic,
            parent,
            client,
            ends_with_client,
            site,
        }
    })
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Critical), Just(Priority::Normal), Just(Priority::Sheddable)]
}

fn parent() -> impl Strategy<Value = Parent> {
    prop_oneof![
        any::<u64>().prop_map(|lease| Parent::Child { lease }),
        any::<u64>().prop_map(|lease| Parent::Hop { lease }),
    ]
}

/// IPv4 and IPv6 addresses; one mapped into the other comes back as what it stands for.
fn client() -> impl Strategy<Value = ClientSocket> {
    let address = prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<[u8; 16]>(), any::<u16>())
            .prop_filter("mapped", |(bytes, _)| Ipv6Addr::from(*bytes).to_ipv4_mapped().is_none())
            .prop_map(SocketAddr::from),
    ];
    (address.clone(), address, option::of(1..u64::MAX)).prop_map(|(local, peer, cookie)| ClientSocket {
        local,
        peer,
        cookie,
    })
}

fn held() -> impl Strategy<Value = HeldLease> {
    let who = (any::<u64>(), name(), option::of(key()), option::of(name()));
    let what = (option::of(name()), kind(), any::<u32>());
    let more = (
        option::of(key()),
        option::of(name()),
        priority(),
        option::of(name()),
        any::<bool>(),
        option::of(client()),
        any::<bool>(),
        option::of(name()),
    );
    (who, what, more).prop_map(|((lease, pool, key, label), (member, kind, age_ms), more)| {
        let (org, class, priority, traffic, suspended, client, ends_with_client, site) = more;
        HeldLease {
            lease,
            pool,
            key,
            label,
            org,
            class,
            priority,
            traffic,
            member,
            kind,
            age_ms,
            suspended,
            client,
            ends_with_client,
            site,
        }
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
        vec(name(), 0..6).prop_map(|candidates| Request::Candidates { candidates }),
        any::<u32>().prop_map(|request| Request::Cancel { request }),
        vec(any::<u64>(), 0..50).prop_map(|leases| Request::Release { leases }),
        vec(renewal, 0..50).prop_map(|leases| Request::Renew { leases }),
        any::<u64>().prop_map(|lease| Request::Move { lease }),
        any::<u64>().prop_map(|lease| Request::Suspend { lease }),
        (any::<u64>(), option::of(any::<u32>()))
            .prop_map(|(lease, max_wait_ms)| Request::Resume { lease, max_wait_ms }),
        (key(), option::of(name()), any::<u32>()).prop_map(|(org, class, ttl_ms)| Request::TierIs(TierIs {
            org,
            class,
            ttl_ms
        })),
        (name(), name(), news(reset))
            .prop_map(|(pool, member, state)| { Request::MemberReport(MemberReport { pool, member, state }) }),
        vec(held(), 0..8).prop_map(|leases| Request::Register { leases }),
        Just(Request::Ping),
    ]
}

fn news(reset: impl Strategy<Value = Option<u32>>) -> impl Strategy<Value = MemberNews> {
    let limited = reset.prop_map(|reset_ms| MemberNews::RateLimited { reset_ms });
    prop_oneof![limited, Just(MemberNews::Overloaded), Just(MemberNews::Up)]
}

/// Stands beside the generators: a message that they do not make does not compile here without a line.
#[test]
fn every_message_is_generated() {
    let request = |message: &Request| match message {
        Request::Hello(_) => 0,
        Request::Acquire(_) => 1,
        Request::Cancel { .. } => 2,
        Request::Release { .. } => 3,
        Request::Renew { .. } => 4,
        Request::Move { .. } => 5,
        Request::MemberReport(_) => 6,
        Request::Register { .. } => 7,
        Request::Suspend { .. } => 8,
        Request::Resume { .. } => 9,
        Request::TierIs(_) => 10,
        Request::Ping => 11,
        Request::Candidates { .. } => 12,
    };
    let reply = |message: &Reply| match message {
        Reply::Welcome(_) => 0,
        Reply::Grant(_) => 1,
        Reply::Parked => 2,
        Reply::Shed(_) => 3,
        Reply::Reject { .. } => 4,
        Reply::Registered { .. } => 5,
        Reply::Revoke { .. } => 6,
        Reply::Overload(_) => 7,
        Reply::Limits(_) => 8,
        Reply::Drain => 9,
        Reply::Error { .. } => 10,
        Reply::TierAsk { .. } => 11,
        Reply::ClientGone { .. } => 12,
        Reply::Pong => 13,
        Reply::MoreLimits { .. } => 14,
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut requests, mut replies) = ([false; 13], [false; 15]);
    for _ in 0..1000 {
        requests[request(&any_request().new_tree(&mut runner).unwrap().current())] = true;
        replies[reply(&any_reply().new_tree(&mut runner).unwrap().current())] = true;
    }
    assert_eq!((requests, replies), ([true; 13], [true; 15]));
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let grant = (any::<u64>(), option::of(name()), any::<u32>());
    let shed = (any::<u16>(), "[a-z_]{0,20}", any::<u32>(), any::<u64>(), ".{0,40}", option::of(any::<u32>()));
    let pool = || {
        let pool = (name(), any::<u32>(), vec((name(), any::<u32>()), 0..5));
        pool.prop_map(|(name, capacity, members)| PoolLimits { name, capacity, members })
    };
    prop_oneof![
        (any::<u16>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(version, session, epoch, lease_ttl_ms)| {
            Reply::Welcome(Welcome { version, session, epoch, lease_ttl_ms })
        }),
        grant.prop_map(|(lease, member, waited_ms)| Reply::Grant(Grant { lease, member, waited_ms })),
        shed.prop_map(|(status, reason, retry_after_ms, decision, detail, quota)| {
            Reply::Shed(Shed { status, origin: Origin::Pool, reason, retry_after_ms, decision, detail, quota })
        }),
        ".{0,40}".prop_map(|reason| Reply::Reject { reason }),
        vec((any::<u64>(), any::<u64>()), 0..50).prop_map(|leases| Reply::Registered { leases }),
        (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(pressure, causes, retry_after_ms)| {
            Reply::Overload(Overload { level: Level::Elevated, pressure, causes, retry_after_ms })
        }),
        vec(pool(), 0..5).prop_map(|pools| Reply::MoreLimits { pools }),
        (any::<u32>(), any::<u32>(), vec(pool(), 0..5)).prop_map(|(sessions, node_cap, pools)| Reply::Limits(Limits {
            sessions,
            node_cap,
            pools
        })),
        key().prop_map(|org| Reply::TierAsk { org }),
        any::<u64>().prop_map(|lease| Reply::ClientGone { lease }),
        (any::<u64>(), revoke_reason()).prop_map(|(lease, reason)| Reply::Revoke { lease, reason }),
        (error_code(), ".{0,40}").prop_map(|(code, message)| Reply::Error { code, message }),
        Just(Reply::Parked),
        Just(Reply::Pong),
        Just(Reply::Drain),
    ]
}

fn revoke_reason() -> impl Strategy<Value = RevokeReason> {
    prop_oneof![
        Just(RevokeReason::Expired),
        Just(RevokeReason::Operator),
        Just(RevokeReason::PoolGone),
        Just(RevokeReason::Unknown),
        Just(RevokeReason::Reclaimed),
    ]
}

fn error_code() -> impl Strategy<Value = ErrorCode> {
    prop_oneof![
        Just(ErrorCode::Unsupported),
        Just(ErrorCode::Malformed),
        Just(ErrorCode::Handshake),
        Just(ErrorCode::Denied),
    ]
}
