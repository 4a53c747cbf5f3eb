//! A proxy that speaks the protocol by hand: for what no client of ours would say.

use bytes::BytesMut;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{Acquire, Hello, Request};
use governor_common::wire::{VERSION, codec, frame};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A proxy that speaks the protocol by hand.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    buffer: BytesMut,
    /// Its number, by which it is named when its connection breaks; 0 before it has greeted.
    pub(crate) session: u64,
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(crate::world::SOON)).unwrap();
        Self { stream, buffer: BytesMut::new(), session: 0 }
    }

    pub(crate) fn greeted(socket: &Path) -> Self {
        Self::greeted_as(socket, VERSION)
    }

    pub(crate) fn greeted_as(socket: &Path, version: u16) -> Self {
        Self::hello(socket, version, None)
    }

    /// Goes on from a session whose connection is gone.
    pub(crate) fn resuming(socket: &Path, session: u64) -> Self {
        Self::hello(socket, VERSION, Some(session))
    }

    fn hello(socket: &Path, version: u16, resume: Option<u64>) -> Self {
        let mut raw = Self::connect(socket);
        raw.send(1, &Request::Hello(Hello { version, name: "raw".to_owned(), resume }));
        let reply = raw.reply_to(1);
        let Reply::Welcome(welcome) = reply else { panic!("no welcome: {reply:?}") };
        assert_eq!(welcome.version, version);
        raw.session = welcome.session;
        raw
    }

    /// One request of the pool, changed by `with`, and its answer.
    pub(crate) fn acquire(&mut self, id: u32, with: impl FnOnce(&mut Acquire)) -> Reply {
        let mut acquire = Acquire { pool: "chat".to_owned(), ..Acquire::default() };
        with(&mut acquire);
        self.send(id, &Request::Acquire(acquire));
        self.reply_to(id)
    }

    pub(crate) fn send(&mut self, id: u32, request: &Request) {
        let mut bytes = BytesMut::new();
        codec::encode_request(request, id, &mut bytes).unwrap();
        self.write(&bytes);
    }

    /// Bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn reply_to(&mut self, id: u32) -> Reply {
        loop {
            let (request, reply) = self.next().expect("the session lives");
            if request == id && reply != Reply::Parked {
                return reply;
            }
        }
    }

    /// The next reply; `None` when the daemon closed the connection.
    pub(crate) fn next(&mut self) -> Option<(u32, Reply)> {
        loop {
            if let Some(frame) = frame::decode_frame(&mut self.buffer).unwrap() {
                return Some((frame.request, codec::parse_reply(&frame).unwrap()));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
