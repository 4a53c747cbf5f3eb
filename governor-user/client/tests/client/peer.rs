//! A daemon that says exactly what a test tells it to.

use bytes::BytesMut;
use governor_client::{Config, Governor};
use governor_common::signal::PageWriter;
use governor_common::wire::VERSION;
use governor_common::wire::codec::{encode_reply, parse_request};
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::{ErrorCode, Grant, Reply, Welcome};
use governor_common::wire::request::Request;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// Bound on every wait; reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What every connection is greeted with, unless a test says otherwise.
pub(crate) const WELCOME: Welcome = Welcome { version: VERSION, session: 5, epoch: 1, lease_ttl_ms: 30_000 };

/// The daemon's end of the socket.
pub(crate) struct Peer {
    folder: TempDir,
    listener: Option<UnixListener>,
}

impl Peer {
    pub(crate) fn listening() -> Self {
        let mut peer = Self::absent();
        peer.listen();
        peer
    }

    pub(crate) fn absent() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), listener: None }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("proxy.sock")
    }

    pub(crate) fn listen(&mut self) {
        self.listener = Some(UnixListener::bind(self.path()).unwrap());
    }

    /// Nobody listens any more, as after a kill.
    pub(crate) fn vanish(&mut self) {
        self.listener = None;
        std::fs::remove_file(self.path()).unwrap();
    }

    /// A configuration for this socket that never loses patience within a test.
    pub(crate) fn config(&self) -> Config {
        Config { patience: Duration::from_secs(60), ..Config::new(self.path()) }
    }

    /// The next connection, greeted.
    pub(crate) async fn greet(&self) -> Talk {
        Self::greet_on(self.listener.as_ref().expect("the peer listens")).await
    }

    pub(crate) async fn greet_on(listener: &UnixListener) -> Talk {
        Talk::accept(listener, WELCOME).await
    }

    /// Greets like a daemon that has a signal page, and hands its descriptor over.
    pub(crate) async fn greet_with_page(&self, page: &PageWriter) -> Talk {
        let listener = self.listener.as_ref().expect("the peer listens");
        let (talk, request) = Talk::hello(listener).await;
        let mut bytes = BytesMut::new();
        encode_reply(&Reply::Welcome(WELCOME), request, &mut bytes).unwrap();
        let descriptor = [page.descriptor()];
        let descriptors = descriptor.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let sent = sendmsg(&talk.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(sent, bytes.len());
        talk
    }

    /// Turns the next connection away.
    pub(crate) async fn deny(&self) {
        let listener = self.listener.as_ref().expect("the peer listens");
        let (mut talk, request) = Talk::hello(listener).await;
        let message = "this user may not use the socket".to_owned();
        talk.say(&Reply::Error { code: ErrorCode::Denied, message }, request).await;
    }

    pub(crate) async fn greet_with(&self, welcome: Welcome) -> Talk {
        Talk::accept(self.listener.as_ref().expect("the peer listens"), welcome).await
    }

    /// A governor and the session it opened.
    pub(crate) async fn meet(&self) -> (Governor, Talk) {
        let governor = Governor::start(self.config());
        let talk = self.greet().await;
        (governor, talk)
    }
}

/// One connection.
pub(crate) struct Talk {
    stream: UnixStream,
    buffer: BytesMut,
    /// Every byte that came.
    pub(crate) heard: Vec<u8>,
    /// What `Hello` wanted to resume.
    pub(crate) resume: Option<u64>,
}

impl Talk {
    pub(crate) async fn accept(listener: &UnixListener, welcome: Welcome) -> Self {
        let (mut talk, request) = Self::hello(listener).await;
        talk.say(&Reply::Welcome(welcome), request).await;
        talk
    }

    /// The next connection and the request id of its hello.
    async fn hello(listener: &UnixListener) -> (Self, u32) {
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("a connection comes").unwrap();
        let mut talk = Self { stream, buffer: BytesMut::new(), heard: Vec::new(), resume: None };
        let (Request::Hello(hello), request) = talk.next().await else { panic!("the first frame is a hello") };
        talk.resume = hello.resume;
        (talk, request)
    }

    /// The next frame that is not a probe.
    pub(crate) async fn next(&mut self) -> (Request, u32) {
        timeout(PATIENCE, self.next_or_end()).await.expect("a frame comes").expect("the session is open")
    }

    /// `None` at the end of the stream.
    pub(crate) async fn next_or_end(&mut self) -> Option<(Request, u32)> {
        loop {
            while let Some(frame) = decode_frame(&mut self.buffer).unwrap() {
                let request = parse_request(&frame).unwrap();
                if request != Request::Ping {
                    return Some((request, frame.request));
                }
                self.say(&Reply::Pong, frame.request).await;
            }
            let before = self.buffer.len();
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
            self.heard.extend_from_slice(&self.buffer[before..]);
        }
    }

    pub(crate) async fn say(&mut self, reply: &Reply, request: u32) {
        let mut bytes = BytesMut::new();
        encode_reply(reply, request, &mut bytes).unwrap();
        self.send(&bytes).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Expects an acquire and returns its request id.
    pub(crate) async fn acquire(&mut self) -> u32 {
        let (Request::Acquire(_), request) = self.next().await else { panic!("an acquire comes") };
        request
    }

    /// Expects a release and returns its leases.
    pub(crate) async fn release(&mut self) -> Vec<u64> {
        let (Request::Release { leases }, _) = self.next().await else { panic!("a release comes") };
        leases
    }

    pub(crate) async fn grant(&mut self, request: u32, lease: u64, member: &str) {
        let grant = Grant { lease, member: Some(member.to_owned()), waited_ms: 0 };
        self.say(&Reply::Grant(grant), request).await;
    }
}

/// Waits for what another task does soon.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
