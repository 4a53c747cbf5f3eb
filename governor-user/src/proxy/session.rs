//! One proxy's connection: bytes to requests for the driver, replies to bytes. Bad content is answered and the session
//! lives on; a stream that cannot be cut into frames ends it. Knows no engine.

use super::descriptor;
use super::outbox::{Batch, Drain, End, Outbox};
use super::peer::{ExitWatch, Peer};
use crate::daemon::messages::Message;
use bytes::BytesMut;
use governor_common::wire::error::FrameError;
use governor_common::wire::reply::Reply;
use governor_common::wire::request::Request;
use governor_common::wire::{codec, frame};
use governor_engine::id::SessionId;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// Bytes read at once.
const CHUNK: usize = 16 * 1024;

/// How long a session that was told to end may take to read its last bytes.
const LAST_WRITE: Duration = Duration::from_secs(1);

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
}

/// Serves one connection to its end, then watches the peer's process for as long as its leases may outlive the
/// connection.
pub async fn serve(stream: UnixStream, session: SessionId, peer: Peer, driver: Sender<Message>) {
    let exit = ExitWatch::of(&peer);
    let (outbox, drain) = super::outbox::channel();
    let opened = Message::Opened { session, peer, outbox: outbox.clone() };
    if driver.send(opened).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let ended = tokio::select! {
        ended = read(reader, session, &outbox, &driver) => ended,
        ended = write(writer, &drain) => ended,
        () = exit.exited() => Ended::ByPeer,
    };
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

async fn read(mut reader: OwnedReadHalf, session: SessionId, outbox: &Outbox, driver: &Sender<Message>) -> Ended {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    loop {
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return Ended::ByPeer,
            Ok(_) => {}
            Err(error) => return error.into(),
        }
        let (requests, end) = cut(&mut buffer, outbox);
        if !requests.is_empty() && driver.send(Message::Requests { session, requests }).await.is_err() {
            return Ended::NoDriver;
        }
        if let Some(error) = end {
            return error.into();
        }
        buffer.reserve(CHUNK);
    }
}

/// Takes every whole frame; what is not understood is answered here.
fn cut(buffer: &mut BytesMut, outbox: &Outbox) -> (Vec<(u32, Request)>, Option<FrameError>) {
    let mut requests = Vec::new();
    loop {
        match frame::decode_frame(buffer) {
            Ok(Some(frame)) => match codec::parse_request(&frame) {
                Ok(request) => requests.push((frame.request, request)),
                Err(error) => {
                    let reply = Reply::Error { code: error.code(), message: error.to_string() };
                    outbox.push(&reply, error.request());
                }
            },
            Ok(None) => return (requests, None),
            Err(error) => return (requests, Some(error)),
        }
    }
}

async fn write(mut writer: OwnedWriteHalf, drain: &Drain) -> Ended {
    loop {
        match drain.next().await {
            Ok(batch) => tokio::select! {
                written = write_batch(&mut writer, &batch) => {
                    if let Err(error) = written {
                        return error.into();
                    }
                }
                () = drain.cut() => return Ended::SlowReader,
            },
            Err(End::SlowReader) => return Ended::SlowReader,
            Err(End::Closed) => {
                drop(tokio::time::timeout(LAST_WRITE, writer.shutdown()).await);
                return Ended::ByDaemon;
            }
        }
    }
}

async fn write_batch(writer: &mut OwnedWriteHalf, batch: &Batch) -> std::io::Result<()> {
    let written = match &batch.descriptor {
        Some(descriptor) => descriptor::send(writer.as_ref(), &batch.bytes, descriptor).await?,
        None => 0,
    };
    writer.write_all(batch.bytes.get(written..).unwrap_or_default()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::wire::reply::ErrorCode;

    #[tokio::test]
    async fn joined_and_split_frames_come_out_whole_and_unknown_ones_are_answered() {
        let mut stream = BytesMut::new();
        codec::encode_request(&Request::Ping, 1, &mut stream).unwrap();
        stream.extend_from_slice(&[8, 0, 0, 0, 0x7e, 0, 0, 0, 9, 0, 0, 0]);
        codec::encode_request(&Request::Cancel { request: 1 }, 2, &mut stream).unwrap();
        let (outbox, drain) = super::super::outbox::channel();
        let mut buffer = BytesMut::new();
        let mut all = Vec::new();
        for byte in stream {
            buffer.extend_from_slice(&[byte]);
            let (requests, end) = cut(&mut buffer, &outbox);
            assert!(end.is_none());
            all.extend(requests);
        }
        assert_eq!(all, [(1, Request::Ping), (2, Request::Cancel { request: 1 })]);
        let mut answer = BytesMut::from(&drain.next().await.unwrap().bytes[..]);
        let frame = frame::decode_frame(&mut answer).unwrap().unwrap();
        assert_eq!(frame.request, 9);
        let reply = codec::parse_reply(&frame).unwrap();
        assert!(matches!(reply, Reply::Error { code: ErrorCode::Unsupported, .. }), "{reply:?}");
    }
}
