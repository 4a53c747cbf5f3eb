//! One proxy's connection: its `Hello`, then its stream as it comes, for the driver, and the replies that the driver
//! could not write itself. Knows no engine, and nothing of what later frames say: the driver cuts and parses them.

use super::census::Place;
use crate::driver::messages::{Greeting, Message};
use crate::transport::descriptor;
use crate::transport::gate::Gate;
use crate::transport::outbox::{Batch, Drain, End, Unread};
use crate::transport::peer::{ExitWatch, Peer};
use bytes::{Bytes, BytesMut};
use governor_common::wire::VERSION;
use governor_common::wire::codec;
use governor_common::wire::error::FrameError;
use governor_common::wire::frame;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_common::wire::request::{Hello, Request};
use governor_common::wire::socket::Socket;
use governor_engine::id::SessionId;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Bytes read at once at most.
const CHUNK: usize = 16 * 1024;

/// A connection says `Hello` within this, or is closed.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of the first frame at most; `Hello` needs fewer than 300.
const LONGEST_HELLO: usize = 4 * 1024;

/// Bytes read at once before `Hello`.
const FIRST: usize = 512;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the proxy closed its connection")]
    ByPeer,
    #[error("the daemon closed it")]
    ByDaemon,
    #[error("the proxy left its replies unread")]
    SlowReader,
    #[error("its stream cannot be followed: {0}")]
    BadStream(#[from] FrameError),
    #[error("its socket failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the driver is gone")]
    NoDriver,
    #[error("its reader panicked")]
    Panicked,
}

/// Serves one connection to its end, then watches the peer's process for as long as its leases may outlive the
/// connection. Before `Hello` nothing of it is kept but its descriptor.
pub async fn serve(
    stream: UnixStream,
    session: SessionId,
    peer: Peer,
    place: Place,
    unread: Unread,
    driver: Sender<Message>,
) {
    let socket = match stream.into_std().and_then(Socket::new) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::warn!(pid = peer.pid, %error, "a proxy cannot be served");
            return;
        }
    };
    let First { hello, request, rest } = match tokio::time::timeout(HELLO_WITHIN, hello(&socket)).await {
        Ok(Ok(first)) => first,
        Ok(Err(refusal)) => {
            // The connection ends anyway: a peer without room for the reason does not get it.
            drop(socket.try_write(&refusal));
            return;
        }
        Err(_late) => {
            drop(socket.try_write(&handshake_error(0, "no Hello came in time")));
            return;
        }
    };
    let exit = ExitWatch::of(&peer);
    let (outbox, drain) = crate::transport::outbox::channel(Arc::clone(&socket), unread);
    let gate = outbox.gate().clone();
    let greeting = Box::new(Greeting { peer, outbox, hello, request });
    if driver.send(Message::Opened { session, greeting }).await.is_err() {
        return;
    }
    // What is read wakes a task that looks at nothing else.
    let mut reader = JoinSet::new();
    reader.spawn(read(Arc::clone(&socket), session, rest, gate, driver.clone()));
    let ended = tokio::select! {
        Some(ended) = reader.join_next() => ended.unwrap_or(Ended::Panicked),
        ended = write(&socket, &drain) => ended,
        () = exit.exited() => Ended::ByPeer,
    };
    // Nothing that it read comes after the end.
    reader.shutdown().await;
    // The driver drops its end of the socket when it receives the end of the session.
    drop((socket, drain));
    tracing::debug!(session = session.0, pid = peer.pid, reason = %ended, "connection ended");
    // The process may only have lost its connection: its leases stay for the grace, or until it is seen to exit.
    let (grace, told) = oneshot::channel();
    if driver.send(Message::Lost { session, why: ended.to_string(), grace }).await.is_err() {
        return;
    }
    let Ok(grace) = told.await else { return };
    if tokio::time::timeout(grace, exit.exited()).await.is_ok() {
        // A driver that is gone has no leases to free.
        drop(driver.send(Message::Gone { session }).await);
    }
    // Counted until here: what is watched costs a descriptor.
    drop(place);
}

/// The first frame of a connection.
struct First {
    hello: Hello,
    /// Its request id.
    request: u32,
    /// What was read beyond it.
    rest: Bytes,
}

/// Reads until the first frame is there and is a `Hello` that is served.
///
/// # Errors
/// It is another frame, or none: the bytes to end the connection with, which may be none.
async fn hello(socket: &Socket) -> Result<First, BytesMut> {
    let mut read = BytesMut::new();
    let mut chunk = [0; FIRST];
    loop {
        match socket.read(&mut chunk).await {
            Ok(0) | Err(_) => return Err(BytesMut::new()),
            Ok(count) => read.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
        let mut rest = &read[..];
        match frame::next_frame(&mut rest) {
            Ok(None) if read.len() < LONGEST_HELLO => {}
            Ok(None) => return Err(handshake_error(0, "the first frame is too long for Hello")),
            Err(error) => return Err(handshake_error(0, &error.to_string())),
            Ok(Some(first)) => {
                return match codec::read_request::<&str>(first) {
                    Ok(Request::Hello(hello)) if is_served(hello.version) => {
                        Ok(First { hello, request: first.request, rest: Bytes::copy_from_slice(rest) })
                    }
                    Ok(Request::Hello(Hello { version, .. })) => {
                        let message = format!("protocol version {version} is not served, {VERSION} is");
                        Err(handshake_error(first.request, &message))
                    }
                    Ok(_) => Err(handshake_error(first.request, "the first frame must be Hello")),
                    Err(error) => Err(error_frame(first.request, error.code(), &error.to_string())),
                };
            }
        }
    }
}

/// A client may be one version behind, and newer by any number: it then speaks this one.
fn is_served(version: u16) -> bool {
    version > 0 && version.saturating_add(1) >= VERSION
}

fn handshake_error(request: u32, message: &str) -> BytesMut {
    error_frame(request, ErrorCode::Handshake, message)
}

fn error_frame(request: u32, code: ErrorCode, message: &str) -> BytesMut {
    let mut bytes = BytesMut::new();
    let reply = Reply::Error { code, message: message.to_owned() };
    let encoded = codec::encode_reply(&reply, request, &mut bytes);
    debug_assert!(encoded.is_ok(), "a short text fits a frame");
    bytes
}

async fn read(socket: Arc<Socket>, session: SessionId, first: Bytes, gate: Gate, driver: Sender<Message>) -> Ended {
    let mut chunk = vec![0; CHUNK];
    let mut buffer = BytesMut::new();
    let mut bytes = first;
    loop {
        if !bytes.is_empty() {
            let must_wait = gate.enter(bytes.len());
            if !tell(&driver, Message::Bytes { session, bytes }).await {
                return Ended::NoDriver;
            }
            if must_wait {
                gate.room().await;
            }
        }
        bytes = match socket.read(&mut chunk).await {
            Ok(0) => return Ended::ByPeer,
            Ok(count) => {
                // What the driver was given is free again when it has looked at it, and then used again.
                if buffer.capacity() < count {
                    buffer.reserve(CHUNK);
                }
                buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
                buffer.split().freeze()
            }
            Err(error) => return error.into(),
        };
    }
}

/// Says whether it has arrived. There is nearly always room: to be ready to wait for some costs more than to look.
async fn tell(driver: &Sender<Message>, message: Message) -> bool {
    match driver.try_send(message) {
        Ok(()) => true,
        Err(TrySendError::Full(message)) => driver.send(message).await.is_ok(),
        Err(TrySendError::Closed(_)) => false,
    }
}

async fn write(socket: &Socket, drain: &Drain) -> Ended {
    loop {
        match drain.next().await {
            Ok(batch) => tokio::select! {
                written = write_batch(socket, &batch) => {
                    if let Err(error) = written {
                        return error.into();
                    }
                }
                () = drain.cut() => return Ended::SlowReader,
            },
            Err(End::SlowReader) => return Ended::SlowReader,
            Err(End::Closed) => return Ended::ByDaemon,
            Err(End::BadStream(error)) => return error.into(),
        }
    }
}

async fn write_batch(socket: &Socket, batch: &Batch) -> std::io::Result<()> {
    let written = match &batch.descriptor {
        Some(descriptor) => descriptor::send(socket, &batch.bytes, descriptor).await?,
        None => 0,
    };
    socket.write_all(batch.bytes.get(written..).unwrap_or_default()).await
}
