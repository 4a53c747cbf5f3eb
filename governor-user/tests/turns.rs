//! Streams of sessions, by the driver alone and without a clock: that it does not matter in which pieces a stream comes, and
//! how many frames of a session that floods are handled between two of another.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use bytes::{Bytes, BytesMut};
use governor_common::wire::codec::{encode_request, parse_reply};
use governor_common::wire::error::FrameError;
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{Acquire, HeldLease, Hello, Request};
use governor_common::wire::socket::Socket;
use governor_common::wire::{KeyHash, VERSION};
use governor_engine::id::SessionId;
use governor_engine::time::{Duration, Instant};
use governor_user::config::Base;
use governor_user::driver::messages::{Greeting, Message};
use governor_user::driver::sessions::turns::FRAMES_PER_TURN;
use governor_user::driver::{Driver, Parts};
use governor_user::records::demand::{Fact, recorded};
use governor_user::state::StateDir;
use governor_user::transport::gate::{BOUND, Gate};
use governor_user::transport::outbox::{self, Drain, End};
use governor_user::transport::peer::Peer;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

const CONFIG: &str = "[node]\ncap = 0\n[pools.chat.members.a]\nslots = 5000\nreserve = 0\n";
const NOW: Instant = Instant(1_000_000_000);

fn driver(folder: &Path, record: u64) -> Driver {
    let mut config = Base::of_text("", CONFIG, std::iter::empty()).unwrap().resolve(&[]).unwrap().config;
    let state = StateDir::open(folder).unwrap();
    config.daemon.record_bytes = record;
    let parts = Parts::open(&config, &state, 1).unwrap();
    Driver::new(parts, mpsc::channel(1).0.downgrade(), NOW)
}

fn frames(requests: impl IntoIterator<Item = Request>) -> Bytes {
    let mut frames = BytesMut::new();
    for (id, request) in (1..).zip(requests) {
        encode_request(&request, id, &mut frames).unwrap();
    }
    frames.freeze()
}

/// A proxy that has greeted.
fn open(driver: &mut Driver, session: SessionId) -> UnixStream {
    connect(driver, session).0
}

/// The same with the session's ends of what is queued for it and of what is read of it.
fn connect(driver: &mut Driver, session: SessionId) -> (UnixStream, Drain, Gate) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (outbox, drain) = outbox::channel(Arc::new(Socket::new(ours).unwrap()), outbox::Unread::default());
    let gate = outbox.gate().clone();
    let peer = Peer { pid: None, uid: 0, gid: 0, started: None };
    let hello = Hello { version: VERSION, name: "proxy".to_owned(), resume: None };
    let greeting = Box::new(Greeting { peer, outbox, hello, request: 1 });
    driver.handle(Message::Opened { session, greeting }, NOW);
    driver.tick(NOW);
    replies(&theirs);
    (theirs, drain, gate)
}

/// What there is to read.
fn replies(mut proxy: &UnixStream) -> Vec<Reply> {
    let mut all = Vec::new();
    // The daemon may have closed it.
    if let Err(error) = proxy.read_to_end(&mut all) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    let mut bytes = BytesMut::from(&all[..]);
    std::iter::from_fn(|| Some(parse_reply(&decode_frame(&mut bytes).unwrap()?).unwrap())).collect()
}

fn pongs(proxy: &UnixStream) -> usize {
    replies(proxy).into_iter().filter(|reply| *reply == Reply::Pong).count()
}

fn pings(count: usize) -> Bytes {
    frames(std::iter::repeat_n(Request::Ping, count))
}

/// Runs what needs the runtime's event loop.
fn within(run: impl FnOnce(&Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _within = runtime.enter();
    run(tempfile::tempdir().unwrap().path());
}

/// Hands a stream over in pieces of this many bytes, and gives back all that is answered.
fn answers_to_pieces(stream: &Bytes, piece: usize) -> Vec<Reply> {
    let mut answers = Vec::new();
    within(|folder| {
        let mut driver = driver(folder, 0);
        let session = SessionId(1);
        let proxy = open(&mut driver, session);
        for at in (0..stream.len()).step_by(piece) {
            let bytes = stream.slice(at..stream.len().min(at + piece));
            driver.handle(Message::Bytes { session, bytes }, NOW);
            driver.tick(NOW);
            answers.extend(replies(&proxy));
        }
        while driver.has_waiting() {
            driver.tick(NOW);
        }
        answers.extend(replies(&proxy));
    });
    answers
}

#[test]
fn a_stream_is_answered_the_same_in_whatever_pieces_it_comes() {
    let acquire =
        Request::Acquire(Acquire { pool: "chat".to_owned(), key: Some(KeyHash([1; 16])), ..Acquire::default() });
    // Among them a frame of nearly 64 KiB, and one that is not understood.
    let long = Request::Release { leases: vec![u64::MAX; 8000] };
    let mut stream = BytesMut::from(&frames([acquire.clone(), long, acquire.clone(), Request::Ping])[..]);
    stream.extend_from_slice(&[8, 0, 0, 0, 250, 0, 0, 0, 9, 0, 0, 0]);
    stream.extend_from_slice(&frames(std::iter::repeat_n(acquire, 150)));
    let stream = stream.freeze();
    let whole = answers_to_pieces(&stream, stream.len());
    assert_eq!(whole.iter().filter(|reply| matches!(reply, Reply::Grant(_))).count(), 152);
    assert_eq!(whole.iter().filter(|reply| matches!(reply, Reply::Error { .. })).count(), 1);
    for piece in [1, 3, 13, 1000, 16 * 1024] {
        assert_eq!(answers_to_pieces(&stream, piece), whole, "in pieces of {piece} bytes");
    }
}

#[tokio::test]
async fn a_stream_that_can_be_cut_no_further_ends_its_session_after_what_came_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path(), 0);
    let session = SessionId(1);
    let (proxy, drain, gate) = connect(&mut driver, session);
    let bad = [&frames([Request::Ping])[..], &[7, 0, 0, 0, 1, 2, 3]].concat();
    for bytes in [Bytes::from(bad), frames([Request::Ping])] {
        assert!(!gate.enter(bytes.len()));
        driver.handle(Message::Bytes { session, bytes }, NOW);
        driver.tick(NOW);
    }
    assert_eq!(pongs(&proxy), 1, "what comes after it is not looked at");
    assert_eq!(drain.next().await.unwrap_err(), End::BadStream(FrameError::TooShort { length: 7 }));
    assert!(!gate.enter(BOUND), "and holds no room");
}

#[test]
fn a_flood_is_handled_in_turns_with_the_others() {
    within(|folder| {
        let mut driver = driver(folder, 0);
        let (flooder, other) = (SessionId(1), SessionId(2));
        let (flooding, calm) = (open(&mut driver, flooder), open(&mut driver, other));
        const FLOOD: usize = 1000;
        driver.handle(Message::Bytes { session: flooder, bytes: pings(FLOOD) }, NOW);
        let mut answered = 0;
        let mut most = 0;
        while answered < FLOOD {
            driver.handle(Message::Bytes { session: other, bytes: pings(1) }, NOW);
            driver.tick(NOW);
            assert_eq!(pongs(&calm), 1, "the other session is answered in every iteration");
            let between = pongs(&flooding);
            assert!(between > 0, "the flooding session is served as well");
            (most, answered) = (most.max(between), answered + between);
        }
        assert_eq!(answered, FLOOD);
        // Its turn when the flood came, and the first turn of the next iteration.
        let bound = usize::try_from(2 * FRAMES_PER_TURN).unwrap();
        assert!(most <= bound, "{most} frames between two of another session");
    });
}

#[test]
fn what_was_sent_before_a_close_is_handled_first() {
    within(|folder| {
        let mut driver = driver(folder, 0);
        let session = SessionId(1);
        let proxy = open(&mut driver, session);
        let asked = 300;
        let acquire = || Request::Acquire(Acquire { pool: "chat".to_owned(), ..Acquire::default() });
        driver.handle(Message::Bytes { session, bytes: frames((0..asked).map(|_| acquire())) }, NOW);
        let (grace, mut told) = oneshot::channel();
        driver.handle(Message::Lost { session, why: "test".to_owned(), grace }, NOW);
        assert!(told.try_recv().is_err(), "frames wait for their turn");
        let granted = (0..10).fold(0, |granted, _| {
            driver.tick(NOW);
            granted + replies(&proxy).into_iter().filter(|reply| matches!(reply, Reply::Grant(_))).count()
        });
        assert!(granted >= 256, "{granted} of {asked} were answered before the connection was let go");
        assert!(told.try_recv().unwrap() > Duration::ZERO, "it holds leases");
    });
}

#[test]
fn a_session_without_leases_is_not_watched_after_its_end() {
    within(|folder| {
        let mut driver = driver(folder, 0);
        let session = SessionId(1);
        let _proxy = open(&mut driver, session);
        let (grace, mut told) = oneshot::channel();
        driver.handle(Message::Lost { session, why: "test".to_owned(), grace }, NOW);
        assert_eq!(told.try_recv().unwrap(), Duration::ZERO);
    });
}

#[test]
fn recording_many_leases_takes_bounded_work_and_room() {
    within(|folder| {
        const LEASES: u64 = 4000;
        // A segment is 128 KiB; all that runs would fill two.
        let mut driver = driver(folder, 1 << 20);
        let session = SessionId(1);
        let proxy = open(&mut driver, session);
        for first in (1..=LEASES).step_by(500) {
            let lease = |n: u64| HeldLease {
                lease: n,
                pool: "chat".to_owned(),
                key: Some(KeyHash(u128::from(n).to_be_bytes())),
                ..HeldLease::default()
            };
            let leases = (first..first + 500).map(lease).collect();
            driver.handle(Message::Bytes { session, bytes: frames([Request::Register { leases }]) }, NOW);
            driver.tick(NOW);
        }
        let later = |n: u64| NOW.after(Duration::from_millis(250 * n));
        let mut ids = 0;
        for n in 1..400 {
            let acquire = Request::Acquire(Acquire { pool: "chat".to_owned(), ..Acquire::default() });
            driver.handle(Message::Bytes { session, bytes: frames([acquire]) }, later(n));
            driver.tick(later(n));
            ids += replies(&proxy).len();
        }
        assert!(ids > 0);
        drop(driver);
        let segments = recorded(folder).unwrap();
        let running = |facts: &Vec<Fact>| facts.iter().filter(|fact| matches!(fact, Fact::Running { .. })).count();
        let facts: usize = segments.iter().map(Vec::len).sum();
        // As many as there were: the old opening was written once more for each.
        assert!(segments.len() <= 8, "{} segments", segments.len());
        assert!(facts < 3 * usize::try_from(LEASES).unwrap(), "{facts} facts");
        for segment in &segments {
            let bytes = running(segment) * 60;
            assert!(bytes <= (1 << 20) / 8 / 2, "{} running leases take more than half a segment", running(segment));
        }
    });
}

/// Recorded demand is replayed by `advise`, which shares by org.
#[test]
fn a_resumed_lease_is_recorded_with_its_org() {
    within(|folder| {
        let mut driver = driver(folder, 1 << 24);
        let session = SessionId(1);
        let proxy = open(&mut driver, session);
        let (key, org) = (Some(KeyHash([1; 16])), Some(KeyHash([2; 16])));
        let acquire = Request::Acquire(Acquire { pool: "chat".to_owned(), key, org, ..Acquire::default() });
        driver.handle(Message::Bytes { session, bytes: frames([acquire]) }, NOW);
        driver.tick(NOW);
        let Some(Reply::Grant(grant)) = replies(&proxy).into_iter().find(|reply| matches!(reply, Reply::Grant(_)))
        else {
            panic!("a free slot is granted")
        };
        let lease = grant.lease;
        let idle = [Request::Suspend { lease }, Request::Resume { lease, max_wait_ms: None }];
        driver.handle(Message::Bytes { session, bytes: frames(idle) }, NOW);
        driver.tick(NOW);
        drop(driver);
        let facts: Vec<Fact> = recorded(folder).unwrap().into_iter().flatten().collect();
        let asked: Vec<_> = facts
            .iter()
            .filter_map(|fact| {
                let Fact::Asked { k, g, .. } = fact else { return None };
                Some((k.clone(), g.clone()))
            })
            .collect();
        let (key, org) = (key.map(|key| key.to_string()), org.map(|org| org.to_string()));
        assert_eq!(asked, [(key.clone(), org.clone()), (key, org)], "{facts:?}");
    });
}
