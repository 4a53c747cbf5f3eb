//! A client that leaves behind bytes that the server does not read. The end of its sending side means the same whether
//! the server reads or not: the client has left.

use super::{Gateway, head, read_until};
use crate::peer::{PATIENCE, eventually};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::net::sockopt::set_socket_linger;
use std::net::Shutdown;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// More than a server reads ahead of a handler that does not read, and less than a socket's receive buffer holds.
static BODY: [u8; 32 * 1024] = [b'x'; 32 * 1024];

/// Sends the head of a request alone.
async fn send_head(gateway: &Gateway, ending: &str) -> TcpStream {
    let mut stream = gateway.connect().await;
    let head = head(ending).replace("content-length: 0", &format!("content-length: {}", BODY.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Sends the head of a request and, once its handler runs, the body that the handler does not read.
async fn ask_in_two_writes(gateway: &Gateway, ending: &str) -> TcpStream {
    let mut stream = send_head(gateway, ending).await;
    eventually("the handler runs", || gateway.ledger.in_flight() == 1).await;
    if ending == "hangs" {
        read_until(&mut stream, "data").await;
    }
    stream.write_all(&BODY).await.unwrap();
    stream
}

/// `hangs` drops the request's body and streams an answer, `never` keeps it and does not answer.
const ENDINGS: [&str; 2] = ["hangs", "never"];

#[tokio::test]
async fn a_client_that_closes_behind_unread_bytes_ends_its_lease() {
    let gateway = Gateway::start().await;
    for ending in ENDINGS {
        drop(ask_in_two_writes(&gateway, ending).await);
        gateway.settled(ending).await;
    }
}

#[tokio::test]
async fn a_client_that_resets_behind_unread_bytes_ends_its_lease() {
    let gateway = Gateway::start().await;
    for ending in ENDINGS {
        let stream = ask_in_two_writes(&gateway, ending).await;
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        gateway.settled(ending).await;
    }
}

/// Both ways of sending the same request: with one write the server reads up to the end, with two it does not.
#[tokio::test]
async fn the_end_of_the_sending_side_ends_the_request_read_or_not() {
    let gateway = Gateway::start().await;
    for ending in ENDINGS {
        let mut in_one_write = gateway.ask(ending).await;
        eventually("the handler runs", || gateway.ledger.in_flight() == 1).await;
        in_one_write.shutdown().await.unwrap();
        gateway.settled(ending).await;

        let mut in_two_writes = ask_in_two_writes(&gateway, ending).await;
        in_two_writes.shutdown().await.unwrap();
        gateway.settled(ending).await;
        for mut stream in [in_one_write, in_two_writes] {
            // The server has closed: with a reset where bytes are unread.
            timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("it is closed").ok();
        }
    }
}

#[tokio::test]
async fn a_parked_client_that_closes_behind_unread_bytes_withdraws() {
    let gateway = Gateway::start().await;
    gateway.ledger.park();
    let mut stream = send_head(&gateway, "complete").await;
    eventually("it waits", || gateway.governor.stats().waiting == 1).await;
    stream.write_all(&BODY).await.unwrap();
    drop(stream);
    eventually("it is withdrawn", || gateway.ledger.withdrawn() == 1).await;
    gateway.settled("nothing was granted").await;
}

#[tokio::test]
async fn over_http_2_unread_bytes_hide_no_end_either() {
    let gateway = Gateway::start().await;
    let stream = gateway.connect().await.into_std().unwrap();
    let socket = stream.try_clone().unwrap();
    let stream = TokioIo::new(TcpStream::from_std(stream).unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    // More than the stream's window: the rest waits until the handler reads, which it does not.
    let body = Full::new(Bytes::from(vec![b'x'; 4 << 20]));
    let uri = format!("http://{}/v1/messages", gateway.address);
    let response =
        client.send_request(Request::post(uri).header("x-ending", "hangs").body(body).unwrap()).await.unwrap();
    let mut answer = response.into_body();
    assert!(answer.frame().await.unwrap().unwrap().is_data());
    assert_eq!(gateway.ledger.in_flight(), 1);
    // The client's streams are still open: only the end of the connection ends them.
    socket.shutdown(Shutdown::Both).unwrap();
    gateway.settled("the connection is closed").await;
}

/// Bytes that the server has not read yet are no sign that the client waits for nothing.
#[tokio::test]
async fn a_client_that_stays_is_answered_although_its_body_is_unread() {
    let gateway = Gateway::start().await;
    let mut stream = send_head(&gateway, "complete").await;
    stream.write_all(&BODY[1..]).await.unwrap();
    read_until(&mut stream, "done").await;
    gateway.settled("complete").await;
}

#[tokio::test]
async fn an_upgraded_connection_may_end_one_side_first() {
    let gateway = Gateway::start().await;
    let mut stream = super::upgrades::open(&gateway, "echo").await;
    stream.write_all(b"twothr").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut seen = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut seen)).await.expect("it ends").unwrap();
    assert_eq!(seen, "twothr", "what was sent before the end is answered");
    gateway.settled("the connection ended").await;
}
