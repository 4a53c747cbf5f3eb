//! Connections and requests are two counts: one connection may carry many requests, and an idle one carries none.

use crate::site::{Program, accounts, gateway_in, upstream};
use crate::world::{soon, until};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use support::machine::cgroup::Cgroup;
use support::programs::daemon::{Daemon, Setup};
use tokio::net::TcpStream;

/// One HTTP/2 connection; it lives as long as this and its streams.
async fn connect(gateway: &Program) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let (requests, connection) = soon(handshake(TokioExecutor::new(), stream)).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// One chat request on a stream of its own, up to the first bytes of an answer that is granted.
async fn chat(mut connection: SendRequest<Full<Bytes>>, gateway: String) -> Response<Incoming> {
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let request = Request::post(format!("http://{gateway}/v1/chat/completions"))
        .header("authorization", "Bearer sk-one")
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap();
    let mut response = soon(connection.send_request(request)).await.unwrap();
    if response.status() == 200 {
        soon(response.frame()).await.unwrap().unwrap();
    }
    response
}

/// Waits until the daemon counts so many leases and the kernel so many connections of the gateway's.
async fn counted(daemon: &Arc<Daemon>, gateway: &Cgroup, leases: u64, connections: u64) {
    let (daemon, path) = (Arc::clone(daemon), gateway.path().to_owned());
    until(&format!("{leases} leases and {connections} connections"), move || {
        let cgroups = daemon.get("/v1/cgroups");
        let row = cgroups.as_array()?.iter().find(|row| row["path"] == *path);
        let open = row.map_or(0, |row| row["inbound"].as_u64().unwrap());
        let held = daemon.get("/v1/pools")[0]["in_flight"].as_u64().unwrap();
        (held == leases && open == connections).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_with_many_requests_holds_many_leases_and_idle_connections_hold_none() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("cgroups need root");
    }
    let of_gateway = Cgroup::create("requests").unwrap();
    let policy = accounts(1, 2, "[pools.chat.park]\nmax_wait = \"0s\"");
    let daemon = Arc::new(Setup::new(&policy).tier("auto").env("GOVERNOR_KERNEL_AUDIT", "200ms").start());
    let upstream = upstream(1, 2);
    let gateway = gateway_in(&of_gateway, &upstream, &daemon.socket());
    let address = gateway.address.to_string();

    // Five streams at once on one connection: two run, three are refused.
    let connection = connect(&gateway).await;
    let streams: Vec<_> = (0..5).map(|_| tokio::spawn(chat(connection.clone(), address.clone()))).collect();
    let (mut running, mut refused) = (vec![], 0);
    for stream in streams {
        let response = stream.await.unwrap();
        match response.status().as_u16() {
            200 => running.push(response),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((running.len(), refused), (2, 3));
    counted(&daemon, &of_gateway, 2, 1).await;

    // A stream that is reset gives its slot back, and the connection stays.
    running.pop();
    counted(&daemon, &of_gateway, 1, 1).await;

    // Fifty idle connections hold nothing.
    let mut idle = vec![];
    for _ in 0..50 {
        idle.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    counted(&daemon, &of_gateway, 1, 51).await;
    drop(idle);
    counted(&daemon, &of_gateway, 1, 1).await;

    // With the connection everything is over.
    drop((running, connection));
    counted(&daemon, &of_gateway, 0, 0).await;
}
