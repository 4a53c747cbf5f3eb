//! The accept loop of axum: its listener, with each connection attached. Knows nothing of admission.

use super::connection::{Attached, Connection};
use super::stream::ClientStream;
use axum::extract::connect_info::Connected;
use axum::serve::{self, IncomingStream};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, UnixListener};

/// For `axum::serve`, together with `into_make_service_with_connect_info::<Connection>()`. Sends small pieces as they
/// come (`TCP_NODELAY`), which event streams want. A connection that carried a request which takes a slot ends as soon as
/// its client has closed it or has shut down its sending side, whether or not the handler reads the request's body.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Accepts from `listener`.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        Self(listener)
    }
}

impl serve::Listener for Listener {
    type Io = Attached<ClientStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (stream, address) = serve::Listener::accept(&mut self.0).await;
        // Failing means the client is gone, which shows at the next read.
        stream.set_nodelay(true).ok();
        (Connection::of(&stream).watch(stream), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Listener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        stream.io().connection().clone()
    }
}

/// Without our listener the client's socket is known, and the end of an upgraded connection is not.
impl Connected<IncomingStream<'_, TcpListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self::of(stream.io())
    }
}

/// As above; a Unix socket has no addresses that the daemon could look for.
impl Connected<IncomingStream<'_, UnixListener>> for Connection {
    fn connect_info(_: IncomingStream<'_, UnixListener>) -> Self {
        Self::known(None)
    }
}
