//! Every ending of a response gives the lease back, once.

use super::{Gateway, head, read_until};
use crate::peer::eventually;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn over_http_1_every_ending_gives_the_lease_back_once() {
    let gateway = Gateway::start().await;
    let rows = [
        ("complete", "done"),
        ("empty", "204 No Content"),
        ("stream", "0\r\n\r\n"),
        ("trailers", "0\r\n\r\n"),
        ("times_out", "504 Gateway Timeout"),
    ];
    for (count, (ending, seen)) in rows.into_iter().enumerate() {
        let mut stream = gateway.ask(ending).await;
        read_until(&mut stream, seen).await;
        gateway.settled(ending).await;
        assert_eq!(gateway.ledger.granted(), count + 1, "{ending}");
    }
    for ending in ["fails", "panics", "panics_in_body"] {
        let mut stream = gateway.ask(ending).await;
        let mut seen = Vec::new();
        stream.read_to_end(&mut seen).await.ok();
        assert!(!String::from_utf8_lossy(&seen).ends_with("0\r\n\r\n"), "{ending} looks complete");
        gateway.settled(ending).await;
    }
    assert_eq!(gateway.ledger.granted(), rows.len() + 3);
}

#[tokio::test]
async fn one_connection_may_carry_many_leases_in_turn() {
    let gateway = Gateway::start().await;
    let mut stream = gateway.connect().await;
    for ending in ["complete", "stream", "empty", "complete"] {
        stream.write_all(head(ending).as_bytes()).await.unwrap();
        read_until(
            &mut stream,
            if ending == "empty" {
                "\r\n\r\n"
            } else if ending == "stream" {
                "0\r\n\r\n"
            } else {
                "done"
            },
        )
        .await;
        gateway.settled(ending).await;
    }
    assert_eq!(gateway.ledger.granted(), 4);
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_stream_or_before_the_answer_gives_the_lease_back() {
    let gateway = Gateway::start().await;
    let mut streaming = gateway.ask("hangs").await;
    read_until(&mut streaming, "data").await;
    assert_eq!(gateway.ledger.in_flight(), 1);
    drop(streaming);
    gateway.settled("a client that leaves in mid-stream").await;

    let waiting = gateway.ask("never").await;
    eventually("the handler runs", || gateway.ledger.in_flight() == 1).await;
    drop(waiting);
    gateway.settled("a client that leaves before the answer").await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_is_parked_withdraws_its_request() {
    let gateway = Gateway::start().await;
    gateway.ledger.park();
    let parked = gateway.ask("complete").await;
    eventually("it waits", || gateway.governor.stats().waiting == 1).await;
    drop(parked);
    eventually("the daemon hears of it", || gateway.ledger.withdrawn() == 1).await;
    gateway.settled("nothing was granted").await;
}

#[tokio::test]
async fn a_head_request_ends_with_its_head() {
    let gateway = Gateway::with(|layer| layer.routes(|_| governor_client::http::routes::Route::Counted("all"))).await;
    for ending in ["complete", "stream", "hangs"] {
        let mut stream = gateway.connect().await;
        stream.write_all(head(ending).replace("POST", Method::HEAD.as_str()).as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
        gateway.settled(ending).await;
    }
}

#[tokio::test]
async fn a_request_whose_body_never_ends_is_admitted_before_it_is_read() {
    let gateway = Gateway::start().await;
    let mut stream = gateway.connect().await;
    let endless = head("complete").replace("content-length: 0", "content-length: 1000000000");
    stream.write_all(endless.as_bytes()).await.unwrap();
    stream.write_all(b"the first of very many bytes").await.unwrap();
    let answer = read_until(&mut stream, "done").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    gateway.settled("granted before the body was read").await;
}

#[tokio::test]
async fn a_refusal_comes_before_the_client_is_told_to_send_its_body() {
    let gateway = Gateway::start().await;
    gateway.ledger.refuse();
    let mut stream = gateway.connect().await;
    let large = head("complete").replace("content-length: 0", "content-length: 1000000000\r\nexpect: 100-continue");
    stream.write_all(large.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "fair_share\"").await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}

#[tokio::test]
async fn a_client_that_was_gone_before_the_grant_costs_no_upstream_call() {
    let gateway = Gateway::with(governor_client::tower::GovernorLayer::ends_with_client).await;
    gateway.ledger.next_is_gone();
    // Bytes that nobody reads hide the end of the stream from the server; the kernel tells.
    let mut stream = gateway.connect().await;
    let unread = head("never").replace("content-length: 0", "content-length: 1000");
    stream.write_all(unread.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 499"), "{answer}");
    gateway.settled("the handler was dropped").await;
    assert!(gateway.ledger.last_asked().ends_with_client);
}

#[tokio::test]
async fn the_daemon_is_told_the_clients_socket_as_the_kernel_knows_it() {
    let gateway = Gateway::start().await;
    let mut stream = gateway.ask("complete").await;
    read_until(&mut stream, "done").await;
    let told = gateway.ledger.last_asked().client.expect("the accept loop knows the socket");
    assert_eq!((told.local, told.peer), (gateway.address, stream.local_addr().unwrap()));
    assert!(told.cookie.is_some_and(|cookie| cookie != 0));
    gateway.settled("complete").await;
}

/// S31: one connection, many requests; each has a lease of its own and ends by itself.
#[tokio::test]
async fn over_http_2_a_reset_stream_ends_alone_and_the_connections_end_ends_the_rest() {
    let gateway = Gateway::start().await;
    let stream = TokioIo::new(gateway.connect().await);
    let (mut client, connection) = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let post = |ending: &str| {
        let uri = format!("http://{}/v1/messages", gateway.address);
        Request::post(uri).header("x-ending", ending).body(Empty::new()).unwrap()
    };
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let response = client.send_request(post("hangs")).await.unwrap();
        let mut body = response.into_body();
        assert!(body.frame().await.unwrap().unwrap().is_data());
        bodies.push(body);
    }
    assert_eq!(gateway.ledger.in_flight(), 5);
    bodies.pop();
    eventually("one stream was reset", || gateway.ledger.in_flight() == 4).await;
    for ending in ["complete", "stream", "trailers", "empty"] {
        let response = client.send_request(post(ending)).await.unwrap();
        assert!(response.status() == StatusCode::OK || response.status() == StatusCode::NO_CONTENT);
        response.into_body().collect().await.unwrap();
        eventually(ending, || gateway.ledger.in_flight() == 4).await;
    }
    // The reset may overtake the head.
    if let Ok(failed) = client.send_request(post("fails")).await {
        assert!(failed.into_body().collect().await.is_err());
    }
    eventually("an upstream error resets the stream", || gateway.ledger.in_flight() == 4).await;
    let waiting = tokio::spawn(client.send_request(post("never")));
    eventually("the handler runs", || gateway.ledger.in_flight() == 5).await;
    waiting.abort();
    eventually("a request given up before its answer", || gateway.ledger.in_flight() == 4).await;
    connection.abort();
    drop((client, bodies));
    gateway.settled("the connection ended").await;
}
