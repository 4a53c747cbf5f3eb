//! One client's connection as the accept loop holds it: its socket as the kernel knows it, and the leases of what it
//! was upgraded to. Opens and accepts nothing.

use super::hold::Hold;
use super::stream::ClientStream;
use governor_common::wire::request::ClientSocket;
use pin_project_lite::pin_project;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{getpeername, getsockname};
use std::fmt;
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A client's connection. The accept loop makes one, puts a clone into the extensions of each request that comes by it,
/// and attaches it to the stream by [`watch`](Self::watch) or [`attach`](Self::attach). With that the daemon hears from
/// the kernel when the client is gone, and the lease of a connection that was upgraded (to a WebSocket, say) lives
/// until that connection is dropped.
#[derive(Clone)]
pub struct Connection {
    client: Option<ClientSocket>,
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<Kept>,
    /// A request came by it that takes a slot.
    serves: AtomicBool,
    /// Something was upgraded: bytes that move are its.
    upgraded: AtomicBool,
}

/// What upgraded requests hold.
enum Kept {
    /// No stream is attached that could notice the end of the connection.
    Detached,
    Open(Vec<Hold>),
    Ended,
}

impl Connection {
    /// Reads both addresses and the cookie of a TCP socket. A socket of another kind has none of them, and its leases
    /// end without help of the kernel.
    #[must_use]
    pub fn of(socket: &impl AsFd) -> Self {
        Self::known(client_socket(socket).ok())
    }

    /// A connection whose socket is known from elsewhere, or not at all.
    #[must_use]
    pub fn known(client: Option<ClientSocket>) -> Self {
        let kept = Mutex::new(Kept::Detached);
        let shared = Shared { kept, serves: AtomicBool::new(false), upgraded: AtomicBool::new(false) };
        Self { client, shared: Arc::new(shared) }
    }

    /// The client's socket.
    #[must_use]
    pub fn client(&self) -> Option<ClientSocket> {
        self.client
    }

    /// Ties the connection's end to that of `stream`.
    #[must_use]
    pub fn attach<S>(&self, stream: S) -> Attached<S> {
        *self.lock() = Kept::Open(Vec::new());
        Attached { stream, end: End(self.clone()) }
    }

    /// Ties the connection's end to that of `stream`, and ends the stream as soon as the client has closed the
    /// connection or its sending side, also while the server does not read. For servers to which an end of the read
    /// side means that the client has left; others use [`attach`](Self::attach).
    #[must_use]
    pub fn watch(&self, stream: TcpStream) -> Attached<ClientStream> {
        self.attach(ClientStream::new(stream, self.clone()))
    }

    /// A request that takes a slot came by it: nothing is served any more to a client that has left.
    pub(super) fn serves(&self) {
        self.shared.serves.store(true, Ordering::Relaxed);
    }

    /// What a connection was upgraded to may go on after either side has ended.
    pub(super) fn is_watched(&self) -> bool {
        self.shared.serves.load(Ordering::Relaxed) && !self.shared.upgraded.load(Ordering::Relaxed)
    }

    /// Keeps what an upgraded request holds until the stream is dropped; gives it back when no stream is attached.
    pub(super) fn keep(&self, hold: Hold) -> Result<(), Hold> {
        let late = match &mut *self.lock() {
            Kept::Detached => return Err(hold),
            Kept::Open(kept) => {
                // Over HTTP/2 many are upgraded on one connection; those taken over need no place.
                kept.retain(|other| !other.is_empty());
                kept.push(hold);
                self.shared.upgraded.store(true, Ordering::Relaxed);
                None
            }
            Kept::Ended => Some(hold),
        };
        drop(late);
        Ok(())
    }

    /// Bytes moved. Of many upgraded streams over HTTP/2 it is not known whose.
    fn moved(&self) {
        if self.shared.upgraded.load(Ordering::Relaxed)
            && let Kept::Open(kept) = &*self.lock()
        {
            kept.iter().for_each(Hold::touch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The lock only ever guards a store or a push, so a poisoned value is whole.
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Addresses and cookie of a connected TCP socket, as the kernel knows them.
///
/// # Errors
///
/// The kernel's, e.g. when the client is gone already; `Unsupported` for a socket without IP addresses.
pub fn client_socket(socket: &impl AsFd) -> io::Result<ClientSocket> {
    let ip = |address: rustix::net::SocketAddrAny| {
        SocketAddr::try_from(address).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
    };
    let local = ip(getsockname(socket)?)?;
    let peer = ip(getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?)?;
    // Kernels before 4.12 have none; addresses alone do then.
    Ok(ClientSocket { local, peer, cookie: socket_cookie(socket).ok() })
}

pin_project! {
    /// A stream that notifies its [`Connection`] when it ends, and when bytes of an upgraded request move. Passes
    /// everything through.
    #[derive(Debug)]
    pub struct Attached<S> {
        #[pin]
        stream: S,
        end: End,
    }
}

impl<S> Attached<S> {
    /// The connection this stream belongs to.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.end.0
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

#[derive(Debug)]
struct End(Connection);

impl Drop for End {
    fn drop(&mut self) {
        let kept = mem::replace(&mut *self.0.lock(), Kept::Ended);
        // The lock is free again: a lease that ends may run code of others.
        drop(kept);
    }
}

impl<S: AsyncRead> AsyncRead for Attached<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buffer.filled().len();
        let polled = this.stream.poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.end.0.moved();
        }
        polled
    }
}

impl<S: AsyncWrite> AsyncWrite for Attached<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.stream.poll_write(cx, bytes).map_ok(|count| {
            this.end.0.moved();
            count
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.stream.poll_write_vectored(cx, slices).map_ok(|count| {
            this.end.0.moved();
            count
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
