//! Bytes that are cut, split, too long, or of a later version.

use super::{KEY, only_frame, reply_bytes, request_bytes};
use crate::wire::codec::{HELD_PER_FRAME, RELEASES_PER_FRAME, RENEWALS_PER_FRAME};
use crate::wire::codec::{encode_request, parse_reply, parse_request};
use crate::wire::error::{FrameError, ParseError};
use crate::wire::frame::{Frame, decode_frame};
use crate::wire::reply::*;
use crate::wire::request::*;
use crate::wire::{MAX_FRAME, MAX_NAME};
use bytes::{Bytes, BytesMut};

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
        ("priority of two bytes", 0x02, vec![0, 3, 0, 1, 0, b'p', 20, 0, 2, 0, 1, 1]),
        ("priority 3", 0x02, vec![0, 3, 0, 1, 0, b'p', 20, 0, 1, 0, 3]),
        ("client socket cut", 0x02, [&[0, 3, 0, 1, 0, b'p', 24, 0, 43, 0], &[0; 43][..]].concat()),
        ("tier of nobody", 0x0c, vec![0, 0, 0, 0, 19, 0, 1, 0, 2]),
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
        org: Some(KEY),
        class: Some(name.clone()),
        priority: Priority::Critical,
        traffic: Some(name.clone()),
        site: Some(name.clone()),
        member: Some(name),
        kind: Kind::Ordinary,
        age_ms: u32::MAX,
        suspended: true,
        client: Some(ClientSocket { local: ([0; 16], 0).into(), peer: ([0; 16], 0).into(), cookie: None }),
        ends_with_client: true,
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
