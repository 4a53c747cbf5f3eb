//! Which versions of the protocol meet, and in which one they speak.

use crate::world::{SOON, daemon};
use bytes::BytesMut;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_common::wire::request::{Hello, Request};
use governor_common::wire::{VERSION, codec, frame};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What the daemon answers first to a proxy that speaks versions up to this one.
fn greeting(socket: &Path, version: u16) -> Reply {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut bytes = BytesMut::new();
    codec::encode_request(&Request::Hello(Hello { version, name: "v".to_owned(), resume: None }), 7, &mut bytes)
        .unwrap();
    stream.write_all(&bytes).unwrap();
    let mut buffer = BytesMut::new();
    loop {
        if let Some(frame) = frame::decode_frame(&mut buffer).unwrap() {
            assert_eq!(frame.request, 7, "it answers the greeting");
            return codec::parse_reply(&frame).unwrap();
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "the daemon said nothing");
        buffer.extend_from_slice(&chunk[..count]);
    }
}

#[test]
fn a_session_speaks_the_lower_of_both_highest_versions() {
    let daemon = daemon(1, 1, "");
    for (theirs, spoken) in
        [(VERSION - 1, VERSION - 1), (VERSION, VERSION), (VERSION + 1, VERSION), (u16::MAX, VERSION)]
    {
        let reply = greeting(&daemon.socket(), theirs);
        assert!(matches!(&reply, Reply::Welcome(welcome) if welcome.version == spoken), "{theirs}: {reply:?}");
    }
}

#[test]
fn a_proxy_older_than_the_version_before_is_told_so() {
    let daemon = daemon(1, 1, "");
    for theirs in 0..VERSION - 1 {
        let reply = greeting(&daemon.socket(), theirs);
        let Reply::Error { code: ErrorCode::Handshake, message } = &reply else { panic!("{theirs}: {reply:?}") };
        assert!(message.contains(&format!("version {theirs} is not served")), "{message}");
    }
}
