//! What a connection is upgraded to holds its lease for as long as it lasts.

use super::{Gateway, head, read_until};
use crate::peer::eventually;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Opens a WebSocket, as far as its handshake goes, and sees that it works.
pub(super) async fn open(gateway: &Gateway, ending: &str) -> TcpStream {
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
async fn it_is_known_when_the_bytes_of_a_websocket_last_moved() {
    let gateway = Gateway::start().await;
    let mut stream = open(&gateway, "echo").await;
    eventually("a renewal tells", || gateway.ledger.moved() == 1).await;
    stream.write_all(b"bye").await.unwrap();
    drop(stream);
    gateway.settled("echo").await;
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

/// Opens a WebSocket as one stream of an HTTP/2 connection (RFC 8441), and sees that it works.
async fn open_stream(client: &mut SendRequest<Empty<Bytes>>, gateway: &Gateway, ending: &str) -> TokioIo<Upgraded> {
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://{}/v1/realtime", gateway.address))
        .header("x-ending", ending)
        .extension(Protocol::from_static("websocket"))
        .body(Empty::new())
        .unwrap();
    client.ready().await.unwrap();
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"one").await.unwrap();
    read_until(&mut stream, "one").await;
    stream
}

#[tokio::test]
async fn over_http_2_a_websocket_is_a_stream_whose_lease_is_taken_or_lasts_as_long_as_the_connection() {
    let gateway = Gateway::start().await;
    let io = TokioIo::new(gateway.connect().await);
    let (mut client, connection) = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    // The server has said by its settings that it knows extended CONNECT once it has answered anything.
    let plain = Request::get(format!("http://{}/healthz", gateway.address)).body(Empty::new()).unwrap();
    client.send_request(plain).await.unwrap();

    let mut taken = open_stream(&mut client, &gateway, "echo_and_take").await;
    assert_eq!(gateway.ledger.in_flight(), 1);
    taken.write_all(b"bye").await.unwrap();
    eventually("who took it ended it", || gateway.ledger.in_flight() == 0).await;

    let left = open_stream(&mut client, &gateway, "echo").await;
    drop((left, taken));
    let other = open_stream(&mut client, &gateway, "echo_and_take").await;
    assert_eq!(gateway.ledger.in_flight(), 2, "one stream has ended and its connection has not");
    connection.abort();
    drop((client, other));
    gateway.settled("the connection ended").await;
}
