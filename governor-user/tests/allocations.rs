//! What requests cost the driver in memory, those of a busy proxy and one that comes alone: the list of what is given back,
//! and nothing for any request.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[expect(dead_code, reason = "the tests of the engine count bytes too")]
#[path = "../engine/benches/counting.rs"]
mod counting;

use bytes::{Bytes, BytesMut};
use counting::{Counting, calls};
use governor_common::wire::codec::{encode_request, parse_reply};
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{Acquire, ClientSocket, Hello, Request};
use governor_common::wire::socket::Socket;
use governor_common::wire::{KeyHash, VERSION};
use governor_engine::id::SessionId;
use governor_engine::time::Instant;
use governor_user::config::Base;
use governor_user::driver::messages::{Greeting, Message};
use governor_user::driver::{Driver, Parts};
use governor_user::state::StateDir;
use governor_user::transport::outbox;
use governor_user::transport::peer::Peer;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONFIG: &str =
    "[pools.chat]\nfair_share = 80\nfair_share_mode = \"enforce\"\n[pools.chat.members.a]\nslots = 400\n";
const DEPTH: u32 = 16;
const NOW: Instant = Instant(1_000_000_000);
/// Batches until everything has the room it needs.
const WARM_UP: usize = 500;
const BATCHES: usize = 500;

fn driver(folder: &Path) -> Driver {
    let config = Base::of_text("", CONFIG, std::iter::empty()).unwrap().resolve(&[]).unwrap().config;
    let state = StateDir::open(folder).unwrap();
    let parts = Parts::open(&config, &state, 1).unwrap();
    Driver::new(parts, mpsc::channel(1).0.downgrade(), NOW)
}

/// A proxy that has said hello.
fn open(driver: &mut Driver, session: SessionId) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (outbox, _) = outbox::channel(Arc::new(Socket::new(ours).unwrap()), outbox::Unread::default());
    let peer = Peer { pid: None, uid: 0, gid: 0, started: None };
    let hello = Hello { version: VERSION, name: "proxy".to_owned(), resume: None };
    let greeting = Box::new(Greeting { peer, outbox, hello, request: 1 });
    driver.handle(Message::Opened { session, greeting }, NOW);
    driver.tick(NOW);
    granted(&theirs);
    theirs
}

/// A proxy that holds many leases: in a debug build the engine checks a small table in every step, and the check allocates.
fn crowd(driver: &mut Driver) -> UnixStream {
    let session = SessionId(1);
    let proxy = open(driver, session);
    for _ in 0..6 {
        driver.handle(Message::Bytes { session, bytes: batch(Vec::new()) }, NOW);
        driver.tick(NOW);
        granted(&proxy);
    }
    proxy
}

fn frames(requests: &[Request]) -> Bytes {
    let mut frames = BytesMut::new();
    for (id, request) in (1..).zip(requests) {
        encode_request(request, id, &mut frames).unwrap();
    }
    frames.freeze()
}

/// Gives these back and asks for a batch.
fn batch(leases: Vec<u64>) -> Bytes {
    let key = Some(KeyHash([7; 16]));
    let acquire = || Request::Acquire(Acquire { pool: "chat".to_owned(), key, ..Acquire::default() });
    let mut requests = vec![Request::Release { leases }];
    requests.extend((0..DEPTH).map(|_| acquire()));
    frames(&requests)
}

/// Takes all answers.
fn granted(mut proxy: &UnixStream) -> Vec<u64> {
    let (mut all, mut leases) = (Vec::new(), Vec::new());
    assert_eq!(proxy.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!all.is_empty(), "something was answered");
    let mut bytes = BytesMut::from(&all[..]);
    while let Some(frame) = decode_frame(&mut bytes).unwrap() {
        if let Reply::Grant(grant) = parse_reply(&frame).unwrap() {
            leases.push(grant.lease);
        }
    }
    leases
}

#[test]
fn a_batch_allocates_the_list_of_what_it_gives_back_and_nothing_for_a_request() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _within = runtime.enter();
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    let _others = crowd(&mut driver);
    let busy = SessionId(2);
    let proxy = open(&mut driver, busy);
    let mut leases = Vec::new();
    let turn = || {
        let frames = batch(std::mem::take(&mut leases));
        let before = calls();
        driver.handle(Message::Bytes { session: busy, bytes: frames }, NOW);
        driver.tick(NOW);
        let calls = calls() - before;
        leases = granted(&proxy);
        assert_eq!(leases.len(), DEPTH as usize);
        calls
    };
    assert_few_allocate(turn);
}

#[test]
fn a_request_that_comes_alone_allocates_the_list_of_what_it_gives_back() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _within = runtime.enter();
    let mut driver = driver(folder.path());
    let _others = crowd(&mut driver);
    let alone = SessionId(2);
    let proxy = open(&mut driver, alone);
    let client = ClientSocket { local: ([10, 0, 0, 1], 80).into(), peer: ([10, 0, 0, 2], 9).into(), cookie: Some(9) };
    let acquire = Acquire {
        pool: "chat".to_owned(),
        key: Some(KeyHash([7; 16])),
        site: Some("chat.rs:7".to_owned()),
        endpoint: Some("/v1/chat".to_owned()),
        client: Some(client),
        ..Acquire::default()
    };
    let mut lease = 0;
    assert_few_allocate(|| {
        let frames = frames(&[Request::Acquire(acquire.clone()), Request::Release { leases: vec![lease] }]);
        let before = calls();
        driver.handle(Message::Bytes { session: alone, bytes: frames }, NOW);
        driver.tick(NOW);
        let calls = calls() - before;
        lease = granted(&proxy)[0];
        calls
    });
}

/// Nearly all turns make one allocation at most.
fn assert_few_allocate(mut turn: impl FnMut() -> u64) {
    for _ in 0..WARM_UP {
        turn();
    }
    let turns: Vec<u64> = (0..BATCHES).map(|_| turn()).collect();
    // Some fill a chunk of recorded demand, and in a debug build the engine checks itself in one step of a thousand.
    let more = turns.iter().filter(|calls| **calls > 1).count();
    assert!(more <= BATCHES / 10, "allocations by turn: {turns:?}");
}
