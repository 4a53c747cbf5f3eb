//! A client's TCP stream that fails as soon as the client has left, whether or not the server reads. Knows nothing of
//! leases: the server drops the request, and the lease ends with it.

use super::connection::Connection;
use rustix::net::{Shutdown, shutdown};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A TCP stream whose read side is watched from the first request on its connection that takes a slot until the
/// connection is upgraded. When the client closes the connection, resets it or shuts down its sending side, the next
/// write or flush fails with `ConnectionAborted`, and the task that polled the stream is woken for it.
///
/// A server that does not read cannot see that end: HTTP/1 servers stop reading while a handler leaves the request's
/// body unread, and the end then stays behind those bytes. The one case that stays hidden is a client that left more
/// bytes unread than the socket's receive buffer holds: its end has not arrived yet.
///
/// Not for servers that serve clients which shut down their sending side before they read the answer (`half_close` of
/// hyper).
pub struct ClientStream {
    /// Both directions use this half: it gives access to the whole stream.
    socket: OwnedReadHalf,
    /// For the watch, which needs a reference of its own to the stream.
    other_half: Option<Arc<OwnedWriteHalf>>,
    connection: Connection,
    read_side: ReadSide,
}

/// What is known of the client's sending side.
enum ReadSide {
    Unwatched,
    Watched(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
    /// It has ended, and the server has not read up to its end.
    Ended,
    /// The server has read its end and does what it wants about it.
    EndIsRead,
}

impl ClientStream {
    pub(super) fn new(stream: TcpStream, connection: Connection) -> Self {
        let (socket, other_half) = stream.into_split();
        Self { socket, other_half: Some(Arc::new(other_half)), connection, read_side: ReadSide::Unwatched }
    }

    /// The stream itself.
    #[must_use]
    pub fn get_ref(&self) -> &TcpStream {
        self.socket.as_ref()
    }

    /// Ready with an error when the client has left; else the task is woken when it leaves.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !self.connection.is_watched() {
            return Poll::Pending;
        }
        if let (ReadSide::Unwatched, Some(socket)) = (&self.read_side, &self.other_half) {
            self.read_side = ReadSide::Watched(Box::pin(read_side_ended(socket.clone())));
        }
        if let ReadSide::Watched(ended) = &mut self.read_side
            && ended.as_mut().poll(cx).is_ready()
        {
            self.read_side = ReadSide::Ended;
        }
        if !matches!(self.read_side, ReadSide::Ended) {
            return Poll::Pending;
        }
        Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "the client has ended its side of the connection"))
    }

    fn poll_write_by(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.get_ref().poll_write_ready(cx)?.is_pending() {
                return self.poll_left(cx).map(Err);
            }
            match write(self.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// Ends when the client's sending side has.
async fn read_side_ended(socket: Arc<OwnedWriteHalf>) {
    // Every registered TCP socket reports EPOLLRDHUP. Interest in readable data would be met by bytes that the server
    // does not read; interest in urgent data, which is not asked for here, is met by the end of the read side alone. No
    // system call is made.
    while socket.ready(Interest::PRIORITY).await.is_ok_and(|ready| !ready.is_read_closed()) {
        tokio::task::yield_now().await;
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        let polled = Pin::new(&mut this.socket).poll_read(cx, buffer);
        if room > 0 && buffer.filled().len() == before && matches!(polled, Poll::Ready(Ok(()))) {
            this.read_side = ReadSide::EndIsRead;
        }
        polled
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_by(cx, |stream| stream.try_write(bytes))
    }

    /// Servers flush each time they have done what they could, which is when the client's end matters.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().poll_left(cx) {
            Poll::Ready(left) => Poll::Ready(Err(left)),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self.get_ref(), Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_by(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").field("stream", self.get_ref()).finish_non_exhaustive()
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        // The watch has a reference to the other half.
        self.read_side = ReadSide::Unwatched;
        // Dropping that half would shut the connection down before it is closed: a system call more, and a client that
        // is cut off would see an ordinary end.
        if let Some(half) = self.other_half.take().and_then(Arc::into_inner) {
            half.forget();
        }
    }
}
