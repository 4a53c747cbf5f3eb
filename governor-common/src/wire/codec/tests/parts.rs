//! Lists that no frame holds go in several, whatever their names, and come back complete.

use crate::wire::codec::{
    MAX_CANDIDATES, encode_reply, encode_request, parse_reply, parse_request, pool_limits_length,
};
use crate::wire::frame::decode_frame;
use crate::wire::reply::{Limits, PoolLimits, Reply};
use crate::wire::request::{Acquire, Request};
use crate::wire::{MAX_FRAME, MAX_NAME};
use bytes::BytesMut;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Distinct names of this length.
fn names(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:0length$}")).collect()
}

/// What each frame of a `Limits` says, in order.
fn sent(limits: &Limits) -> Vec<Reply> {
    let mut bytes = BytesMut::new();
    encode_reply(&Reply::Limits(limits.clone()), 0, &mut bytes).unwrap();
    let mut replies = Vec::new();
    while let Some(frame) = decode_frame(&mut bytes).unwrap() {
        replies.push(parse_reply(&frame).unwrap());
    }
    replies
}

/// What the frames before an `Acquire` and the `Acquire` itself name, in order.
fn named(acquire: &Acquire) -> Vec<String> {
    let mut bytes = BytesMut::new();
    encode_request(&Request::Acquire(acquire.clone()), 9, &mut bytes).unwrap();
    let mut all = Vec::new();
    while let Some(frame) = decode_frame(&mut bytes).unwrap() {
        assert_eq!(frame.request, 9);
        let request = parse_request(&frame).unwrap();
        if let Request::Candidates { candidates } = request {
            all.extend(candidates);
            continue;
        }
        let Request::Acquire(last) = request else { panic!("{request:?}") };
        assert!(bytes.is_empty() && !last.candidates.is_empty(), "the request is last and names a member itself");
        all.extend(last.candidates.iter().cloned());
        let rest = |acquire: &Acquire| Acquire { candidates: Vec::new(), ..acquire.clone() };
        assert_eq!(rest(&last), rest(acquire));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_capacity_comes_first_and_every_member_arrives_once(
        sizes in prop::collection::vec(0_usize..2500, 1..40),
        length in 6_usize..=MAX_NAME,
    ) {
        let pools = sizes.iter().enumerate().map(|(number, size)| PoolLimits {
            name: format!("pool-{number:04}"),
            capacity: u32::try_from(*size).unwrap(),
            members: names(*size, length).into_iter().zip(1..).collect(),
        });
        let limits = Limits { sessions: 3, node_cap: 1000, pools: pools.collect() };
        let mut known: BTreeMap<String, PoolLimits> = BTreeMap::new();
        for (index, reply) in sent(&limits).into_iter().enumerate() {
            let pools = if let Reply::Limits(first) = reply {
                prop_assert_eq!((index, first.sessions, first.node_cap), (0, 3, 1000));
                first.pools
            } else {
                let Reply::MoreLimits { pools } = reply else { panic!("{reply:?}") };
                pools
            };
            for mut pool in pools {
                let first_of_pool = !known.contains_key(&pool.name);
                let has_gate = !pool.members.is_empty();
                let entry = known.entry(pool.name.clone()).or_default();
                prop_assert!(!first_of_pool || has_gate == (pool.capacity > 0), "a pool with a gate is never seen without");
                (entry.name, entry.capacity) = (pool.name, pool.capacity);
                entry.members.append(&mut pool.members);
            }
            if index == 0 {
                prop_assert_eq!(known.len(), sizes.len(), "all capacities stand in the first frame");
            }
        }
        prop_assert_eq!(known.into_values().collect::<Vec<_>>(), limits.pools);
    }

    #[test]
    fn an_acquire_names_thousands_of_members(count in 1_usize..4000, length in 5_usize..=MAX_NAME) {
        let candidates = names(count, length);
        let acquire = Acquire { pool: "chat".into(), site: Some("s".repeat(MAX_NAME)), candidates, ..Acquire::default() };
        prop_assume!(count * (length + 4) <= MAX_CANDIDATES);
        prop_assert_eq!(named(&acquire), acquire.candidates);
    }
}

#[test]
fn a_list_of_candidates_has_a_bound() {
    let mut bytes = BytesMut::from(&b"before"[..]);
    let candidates = names(MAX_CANDIDATES / 132 + 1, MAX_NAME);
    let acquire = Acquire { pool: "chat".into(), candidates, ..Acquire::default() };
    let error = encode_request(&Request::Acquire(acquire), 1, &mut bytes).unwrap_err();
    assert!(error.length > MAX_CANDIDATES);
    assert_eq!(&bytes[..], b"before");
}

#[test]
fn the_length_of_limits_is_what_they_take() {
    let members = names(3, 10);
    let length = pool_limits_length("chat", members.iter().map(String::as_str));
    let pool = PoolLimits { name: "chat".into(), capacity: 3, members: members.into_iter().zip(1..).collect() };
    let mut bytes = BytesMut::new();
    encode_reply(&Reply::MoreLimits { pools: vec![pool] }, 0, &mut bytes).unwrap();
    assert_eq!(bytes.len(), 12 + length);
    assert!(bytes.len() < MAX_FRAME);
}
