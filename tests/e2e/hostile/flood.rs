//! One session that floods the daemon: the others wait for a bounded number of its frames.

use super::figure;
use super::latency;
use crate::raw::Raw;
use crate::world::pool;
use bytes::BytesMut;
use governor_common::wire::KeyHash;
use governor_common::wire::codec;
use governor_common::wire::request::{Acquire, Request};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::programs::daemon::Setup;

/// Acquires that the other session measures: 1.6 s.
const PAIRS: u32 = 800;

#[test]
fn a_flooding_session_leaves_the_others_their_turns() {
    let daemon = Setup::new(&format!("[node]\ncap = 0\nmax_parked = 100\n{}", pool(1, 100, ""))).start();
    let mut other = Raw::greeted(&daemon.socket());
    latency(&mut other, 100);
    let without = latency(&mut other, PAIRS);
    let flooder = Raw::greeted(&daemon.socket());
    let over = Arc::new(AtomicBool::new(false));
    let mut bytes = BytesMut::new();
    for id in 0..4096 {
        let key = Some(KeyHash([7; 16]));
        let ask = Acquire { pool: "none".to_owned(), key, max_wait_ms: Some(0), ..Acquire::default() };
        codec::encode_request(&Request::Acquire(ask), id, &mut bytes).unwrap();
    }
    let mut reading = flooder.stream.try_clone().unwrap();
    let (stop, mut writing) = (Arc::clone(&over), flooder.stream.try_clone().unwrap());
    let reader = std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while reading.read(&mut chunk).is_ok_and(|count| count > 0) {}
    });
    let writer = std::thread::spawn(move || {
        let mut frames = 0_u64;
        while !stop.load(Ordering::Relaxed) && writing.write_all(&bytes).is_ok() {
            frames += 4096;
        }
        frames
    });
    let with = latency(&mut other, PAIRS);
    over.store(true, Ordering::Relaxed);
    let frames = writer.join().unwrap();
    flooder.stream.shutdown(std::net::Shutdown::Both).unwrap();
    reader.join().unwrap();
    figure(&format!(
        "a session floods {frames} frames; another session: without {without}; with {with}; p99 ratio {:.1}",
        with.p99.as_secs_f64() / without.p99.as_secs_f64()
    ));
}
