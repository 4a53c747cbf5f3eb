//! One proxy's connection: whole frames for the driver, and the replies that it could not write itself. A stream that cannot be cut into frames ends it.
//! Knows no engine, and nothing of what frames say.

use super::descriptor;
use super::outbox::{Batch, Drain, End};
use super::peer::{ExitWatch, Peer};
use crate::daemon::messages::Message;
use bytes::BytesMut;
use governor_common::wire::error::FrameError;
use governor_common::wire::frame;
use governor_common::wire::socket::Socket;
use governor_engine::id::SessionId;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Bytes read at once at most.
const CHUNK: usize = 16 * 1024;

/// Bytes there is room for in what was read and is no whole frame yet: most reads are shorter.
const LEAST: usize = 4 * 1024;

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
/// connection.
pub async fn serve(stream: UnixStream, session: SessionId, peer: Peer, driver: Sender<Message>) {
    let exit = ExitWatch::of(&peer);
    let socket = match stream.into_std().and_then(Socket::new) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::warn!(pid = peer.pid, %error, "a proxy cannot be served");
            return;
        }
    };
    let (outbox, drain) = super::outbox::channel(Arc::clone(&socket));
    if driver.send(Message::Opened { session, peer, outbox }).await.is_err() {
        return;
    }
    // What is read wakes a task that looks at nothing else.
    let mut reader = JoinSet::new();
    reader.spawn(read(Arc::clone(&socket), session, driver.clone()));
    let ended = tokio::select! {
        Some(ended) = reader.join_next() => ended.unwrap_or(Ended::Panicked),
        ended = write(&socket, &drain) => ended,
        () = exit.exited() => Ended::ByPeer,
    };
    // Nothing that it read comes after the end.
    reader.shutdown().await;
    // The driver lets go of the socket when it hears of the end.
    drop((socket, drain));
    tracing::info!(session = session.0, pid = peer.pid, reason = %ended, "session ended");
    // The process may only have lost its connection: its leases stay for the grace, or until it is seen to exit.
    let (grace, told) = oneshot::channel();
    if driver.send(Message::Lost { session, grace }).await.is_err() {
        return;
    }
    let Ok(grace) = told.await else { return };
    if tokio::time::timeout(grace, exit.exited()).await.is_ok() {
        // A driver that is gone has no leases to free.
        drop(driver.send(Message::Gone { session }).await);
    }
}

async fn read(socket: Arc<Socket>, session: SessionId, driver: Sender<Message>) -> Ended {
    let mut chunk = vec![0; CHUNK];
    let mut buffer = BytesMut::with_capacity(CHUNK);
    loop {
        match socket.read(&mut chunk).await {
            Ok(0) => return Ended::ByPeer,
            Ok(count) => buffer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) => return error.into(),
        }
        let (whole, end) = frame::whole_frames(&buffer);
        let frames = buffer.split_to(whole).freeze();
        if whole > 0 && !tell(&driver, Message::Frames { session, frames }).await {
            return Ended::NoDriver;
        }
        if let Some(error) = end {
            return error.into();
        }
        // What the driver was given is free again when it has looked at it, and then used again.
        if buffer.capacity() - buffer.len() < LEAST {
            buffer.reserve(CHUNK);
        }
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
