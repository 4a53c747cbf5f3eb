//! What the daemon's log says of a pool's traffic: one line a minute, whatever the number of requests, and what the fields
//! of every line are. The driver runs in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use bytes::{Bytes, BytesMut};
use governor_api::KeyOverrideRequest;
use governor_common::wire::codec::encode_request;
use governor_common::wire::request::{Acquire, Hello, Request};
use governor_common::wire::socket::Socket;
use governor_common::wire::{KeyHash, VERSION};
use governor_engine::id::SessionId;
use governor_engine::time::{Duration, Instant};
use governor_user::config::Base;
use governor_user::driver::messages::{Ask, Greeting, Message};
use governor_user::driver::{Driver, Parts};
use governor_user::state::StateDir;
use governor_user::transport::outbox;
use governor_user::transport::peer::Peer;
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

const CONFIG: &str = "[pools.chat.members.a]\nslots = 1\n[pools.quiet.members.b]\nslots = 1\n";

const SESSION: SessionId = SessionId(1);

/// Where the log goes.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Runs this and returns the lines it logged at INFO and above, as `--log-format json` has them.
    fn of(work: impl FnOnce()) -> Vec<Value> {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap();
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn driver(folder: &Path) -> Driver {
    let config = Base::of_text("", CONFIG, std::iter::empty()).unwrap().resolve(&[]).unwrap().config;
    let state = StateDir::open(folder).unwrap();
    let parts = Parts::open(&config, &state, 1).unwrap();
    Driver::new(parts, mpsc::channel(1).0.downgrade(), at(1))
}

fn frames(requests: &[Request]) -> Bytes {
    let mut frames = BytesMut::new();
    for (id, request) in (1..).zip(requests) {
        encode_request(request, id, &mut frames).unwrap();
    }
    frames.freeze()
}

/// A proxy that says hello and asks for so many slots of the pool, without waiting for any.
fn ask(driver: &mut Driver, slots: usize, now: Instant) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (outbox, _) = outbox::channel(Arc::new(Socket::new(ours).unwrap()), outbox::Unread::default());
    let peer = Peer { pid: None, uid: 0, gid: 0, started: None };
    let hello = Hello { version: VERSION, name: "proxy".to_owned(), resume: None };
    let greeting = Box::new(Greeting { peer, outbox, hello, request: 1 });
    driver.handle(Message::Opened { session: SESSION, greeting }, now);
    let acquire =
        Acquire { pool: "chat".to_owned(), key: Some(KeyHash([7; 16])), max_wait_ms: Some(0), ..Acquire::default() };
    let requests: Vec<Request> = std::iter::repeat_with(|| Request::Acquire(acquire.clone())).take(slots).collect();
    driver.handle(Message::Bytes { session: SESSION, bytes: frames(&requests) }, now);
    // A session has a bounded number of frames handled in an iteration.
    for _ in 0..=slots / 64 {
        driver.tick(now);
    }
    theirs
}

fn within_runtime(work: impl FnOnce(&mut Driver)) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _within = runtime.enter();
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    Log::of(|| work(&mut driver))
}

fn about(lines: &[Value], message: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["fields"]["message"] == message).cloned().collect()
}

#[test]
fn many_refusals_are_one_line_a_minute_that_counts_them() {
    let lines = within_runtime(|driver| {
        let _proxy = ask(driver, 501, at(10));
        for second in 11..300 {
            driver.tick(at(second));
        }
    });
    let minutes = about(&lines, "last minute");
    assert_eq!(minutes.len(), 1, "{minutes:#?}");
    let fields = &minutes[0]["fields"];
    assert_eq!(minutes[0]["level"], "INFO");
    for (field, expected) in [("granted", 1), ("waited", 0), ("refused", 500), ("parked", 0)] {
        assert_eq!(fields[field], expected, "{field}: {fields}");
    }
    assert_eq!((&fields["pool"], &fields["reasons"]), (&"chat".into(), &"pool_exhausted 500".into()));
    assert!(fields["in_flight"].is_u64() && fields["wait_p99_ms"].is_u64(), "{fields}");
    assert!(lines.len() < 5, "{lines:#?}");
}

#[test]
fn an_order_is_a_line_with_fields_and_without_json() {
    let key = "9f".repeat(16);
    let lines = within_runtime(|driver| {
        let order =
            KeyOverrideRequest { cap: Some(5), reason: Some("runaway".into()), ..KeyOverrideRequest::default() };
        for order in [Some(order), None] {
            let (answer, _) = oneshot::channel();
            let ask = Ask::Key { name: key.clone(), order, by: "uid 0".to_owned(), answer };
            driver.handle(Message::Ask(ask), at(10));
        }
        for on in [true, false] {
            let (answer, _) = oneshot::channel();
            let ask = Ask::Bypass { on, for_seconds: on.then_some(1800), by: "uid 0".to_owned(), answer };
            driver.handle(Message::Ask(ask), at(11));
        }
    });
    let changes = about(&lines, "changed");
    let seen: Vec<_> = changes.iter().map(|line| (line["level"].as_str().unwrap(), &line["fields"])).collect();
    let levels: Vec<&str> = seen.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, ["INFO", "INFO", "WARN", "INFO"], "{changes:#?}");
    let values = |of: usize| (seen[of].1["before"].as_str().unwrap(), seen[of].1["after"].as_str().unwrap());
    assert_eq!(values(0).0, "-");
    assert!(values(0).1.contains("cap=5") && values(1).1 == "-", "{changes:#?}");
    assert!(values(2).0 == "off" && values(2).1.starts_with("on for 1") && values(3).1 == "off", "{changes:#?}");
    assert_eq!(seen[0].1["reason"], "runaway");
    for line in &lines {
        let nested = line["fields"].as_object().unwrap().values().filter_map(Value::as_str);
        assert!(nested.into_iter().all(|text| !text.contains(['{', '['])), "{line}");
    }
}
