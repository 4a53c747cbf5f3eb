//! What a connection is upgraded to holds its lease for as long as it lasts.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Gateway, head, read_until};
use crate::peer::eventually;

/// Opens a WebSocket, as far as its handshake goes, and sees that it works.
async fn open(gateway: &Gateway, ending: &str) -> TcpStream {
    let mut stream = gateway.connect().await;
    let request = head(ending)
        .replace("POST /v1/messages", "GET /v1/realtime")
        .replace("content-length: 0", "connection: upgrade\r\nupgrade: websocket");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream.write_all(b"one").await.unwrap();
    read_until(&mut stream, "one").await;
    stream
}

#[tokio::test]
async fn the_lease_of_a_websocket_lives_until_its_connection_ends() {
    let gateway = Gateway::start().await;
    for ending in ["echo", "echo_and_keep"] {
        let mut stream = open(&gateway, ending).await;
        assert_eq!(gateway.ledger.in_flight(), 1, "{ending}: the handshake is over and the lease is not");
        assert_eq!(gateway.ledger.last_asked().endpoint.as_deref(), Some("realtime"));
        stream.write_all(b"bye").await.unwrap();
        stream.write_all(b"not echoed").await.unwrap();
        assert_eq!(gateway.ledger.in_flight(), 1, "{ending}: the connection is still there");
        drop(stream);
        gateway.settled(ending).await;
    }
    assert_eq!(gateway.ledger.granted(), 2);
}

#[tokio::test]
async fn whoever_takes_the_lease_of_a_websocket_ends_it() {
    let gateway = Gateway::start().await;
    let mut stream = open(&gateway, "echo_and_take").await;
    assert_eq!(gateway.ledger.in_flight(), 1);
    stream.write_all(b"bye").await.unwrap();
    gateway.settled("the conversation is over and the connection is not").await;
    stream.write_all(b"not echoed").await.unwrap();
}

#[tokio::test]
async fn a_client_that_vanishes_ends_its_websocket_and_the_lease_with_it() {
    let gateway = Gateway::start().await;
    let streams = [open(&gateway, "echo").await, open(&gateway, "echo").await];
    eventually("both are open", || gateway.ledger.in_flight() == 2).await;
    drop(streams);
    gateway.settled("both are gone").await;
}
