//! Frames of a stream, requests and replies alike: cut at any places and looked at where they lie they are the same, and a
//! message that was accepted is the same after it was said again.

use super::outcome;
use bytes::BytesMut;
use governor_common::wire::codec::{encode_reply, encode_request, parse_reply, parse_request, read_request};
use governor_common::wire::error::{FrameError, ParseError};
use governor_common::wire::frame::{Frame, decode_frame, next_frame};
use governor_common::wire::reply::{Grant, Limits, Overload, PoolLimits, Reply, Welcome};
use governor_common::wire::request::{
    Acquire, ClientSocket, HeldLease, Hello, MemberNews, MemberReport, Parent, Priority, Renewal, Request, TierIs,
};
use governor_common::wire::{KeyHash, MAX_FRAME};

pub(crate) fn hold(bytes: &[u8]) -> u64 {
    let whole = cut(bytes, bytes.len());
    let piece = 1 + usize::from(bytes.first().copied().unwrap_or(0)) % 41;
    assert_eq!(cut(bytes, piece), whole, "cut into pieces of {piece}");
    lie(bytes, &whole.0, whole.1.as_ref());
    let mut seen = Vec::new();
    for frame in &whole.0 {
        let request = parse_request(frame).map(|message| again(frame, &message));
        let reply = parse_reply(frame).map(|message| answered_again(frame, &message));
        seen.push((frame.kind, what(request), what(reply)));
    }
    seen.truncate(3);
    outcome(&(seen, whole.1.is_some()))
}

fn cut(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(chunk);
        loop {
            match decode_frame(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(buffer.len() < MAX_FRAME + 4, "more is kept than a frame can be long");
    }
    (frames, None)
}

/// What the daemon reads: frames that lie in a buffer, and requests that borrow from them.
fn lie(bytes: &[u8], frames: &[Frame], error: Option<&FrameError>) {
    let mut rest = bytes;
    for frame in frames {
        let lies = next_frame(&mut rest).unwrap().unwrap();
        assert_eq!(lies, frame.borrowed());
        let (borrowed, owned) = (read_request::<&str>(lies), parse_request(frame));
        assert_eq!(format!("{borrowed:?}"), format!("{owned:?}"));
    }
    assert_eq!(next_frame(&mut rest), error.map_or(Ok(None), |error| Err(*error)));
}

fn what(parsed: Result<(), ParseError>) -> String {
    match parsed {
        Ok(()) => String::new(),
        Err(ParseError::Unknown { .. }) => "unknown".to_owned(),
        Err(ParseError::Malformed { what, .. }) => what.to_owned(),
    }
}

fn again(frame: &Frame, message: &Request) {
    let mut buffer = BytesMut::new();
    encode_request(message, frame.request, &mut buffer).unwrap();
    let said = decode_frame(&mut buffer).unwrap().unwrap();
    assert_eq!((said.request, parse_request(&said).as_ref()), (frame.request, Ok(message)));
}

fn answered_again(frame: &Frame, message: &Reply) {
    let mut buffer = BytesMut::new();
    encode_reply(message, frame.request, &mut buffer).unwrap();
    let said = decode_frame(&mut buffer).unwrap().unwrap();
    assert_eq!((said.request, parse_reply(&said).as_ref()), (frame.request, Ok(message)));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let client = ClientSocket {
        local: ([10, 0, 0, 1], 80).into(),
        peer: ("fd00::2".parse::<std::net::Ipv6Addr>().unwrap(), 9).into(),
        cookie: Some(7),
    };
    let acquire = Acquire {
        pool: "chat".to_owned(),
        key: Some(KeyHash([1; 16])),
        label: Some("team".to_owned()),
        candidates: vec!["m1".to_owned(), "m2".to_owned()],
        max_wait_ms: Some(5),
        priority: Priority::Sheddable,
        parent: Some(Parent::Child { lease: 3 }),
        client: Some(client),
        ends_with_client: true,
        ..Acquire::default()
    };
    let held = HeldLease { lease: 5, pool: "chat".to_owned(), suspended: true, ..HeldLease::default() };
    let report = MemberReport {
        pool: "chat".to_owned(),
        member: "m1".to_owned(),
        state: MemberNews::RateLimited { reset_ms: Some(9) },
    };
    let requests = [
        Request::Hello(Hello { version: 2, name: "gw".to_owned(), resume: Some(1) }),
        Request::Acquire(acquire),
        Request::Cancel { request: 2 },
        Request::Release { leases: vec![1, 2, 3] },
        Request::Renew { leases: vec![Renewal { lease: 1, idle_ms: None }, Renewal { lease: 2, idle_ms: Some(4) }] },
        Request::Move { lease: 1 },
        Request::MemberReport(report),
        Request::Register { leases: vec![held.clone(), held] },
        Request::Suspend { lease: 1 },
        Request::Resume { lease: 1, max_wait_ms: Some(0) },
        Request::TierIs(TierIs { org: KeyHash([2; 16]), class: Some("tier3".to_owned()), ttl_ms: 1000 }),
        Request::Ping,
    ];
    let pool = PoolLimits { name: "chat".to_owned(), capacity: 8, members: vec![("m1".to_owned(), 8)] };
    let replies = [
        Reply::Welcome(Welcome { version: 2, session: 1, epoch: 1, lease_ttl_ms: 30_000 }),
        Reply::Grant(Grant { lease: 1, member: Some("m1".to_owned()), waited_ms: 2 }),
        Reply::Limits(Limits { sessions: 1, node_cap: 100, pools: vec![pool] }),
        Reply::Overload(Overload::default()),
        Reply::Registered { leases: vec![(1, 2)] },
        Reply::Reject { reason: "no".to_owned() },
        Reply::TierAsk { org: KeyHash([2; 16]) },
        Reply::ClientGone { lease: 1 },
    ];
    let mut all = BytesMut::new();
    let mut seeds = Vec::new();
    let mut seed = |encode: &dyn Fn(&mut BytesMut)| {
        let mut alone = BytesMut::new();
        encode(&mut alone);
        all.extend_from_slice(&alone);
        seeds.push(alone.to_vec());
    };
    for request in &requests {
        seed(&|buffer| encode_request(request, 1, buffer).unwrap());
    }
    for reply in &replies {
        seed(&|buffer| encode_reply(reply, 1, buffer).unwrap());
    }
    seeds.push(all.to_vec());
    seeds
}
