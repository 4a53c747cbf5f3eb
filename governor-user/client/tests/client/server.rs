//! The layer in a real server, over real sockets: HTTP/1.1 and HTTP/2, every ending a response can have.

mod endings;
mod handler;
mod leaving;
mod order;
mod upgrades;

use super::ledger::Ledger;
use super::peer::{PATIENCE, Peer};
use axum::Router;
use governor_client::Governor;
use governor_client::tower::{Connection, GovernorLayer, axum::Listener};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A gateway on a port of its own, whose daemon keeps books.
struct Gateway {
    _peer: Peer,
    governor: Governor,
    ledger: Ledger,
    address: SocketAddr,
}

impl Gateway {
    async fn start() -> Self {
        Self::with(|layer| layer).await
    }

    async fn with(settings: impl FnOnce(GovernorLayer) -> GovernorLayer) -> Self {
        let peer = Peer::listening();
        let (governor, ledger) = Ledger::open(&peer).await;
        let layer = settings(GovernorLayer::new(governor.clone(), "chat"));
        let routes = Router::new().fallback(handler::answer).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = routes.into_make_service_with_connect_info::<Connection>();
        tokio::spawn(async move { axum::serve(Listener::new(listener), service).await });
        Self { _peer: peer, governor, ledger, address }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request whose handler ends as `ending` says, and reads no answer.
    async fn ask(&self, ending: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(head(ending).as_bytes()).await.unwrap();
        stream
    }

    async fn settled(&self, what: &str) {
        self.ledger.settled(&self.governor, what).await;
    }
}

fn head(ending: &str) -> String {
    format!("POST /v1/messages HTTP/1.1\r\nhost: gateway\r\nx-ending: {ending}\r\ncontent-length: 0\r\n\r\n")
}

/// Reads until the text has come, or panics.
async fn read_until(stream: &mut (impl AsyncReadExt + Unpin), text: &str) -> String {
    let mut seen = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&seen).contains(text) {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "ended after {}", String::from_utf8_lossy(&seen));
        }
    };
    timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{text:?} never came"));
    String::from_utf8(seen).unwrap()
}
