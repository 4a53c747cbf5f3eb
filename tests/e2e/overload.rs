//! Overload signals from the kernel's own figures to a connected proxy.

use crate::world::{client, pool, soon};
use governor_client::{Level, cause};
use std::net::TcpStream;
use support::daemon::Setup;

/// A listener nobody accepts from, with this backlog.
fn stalled(backlog: i32) -> (std::os::fd::OwnedFd, std::net::SocketAddr) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
    // Not inherited by the daemon, which would keep it open.
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&fd, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&fd, backlog).unwrap();
    let address = std::net::SocketAddr::try_from(getsockname(&fd).unwrap()).unwrap();
    (fd, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_accept_queue_raises_the_level_at_once_and_an_empty_one_lowers_it() {
    let (listener, address) = stalled(2);
    let daemon = Setup::new(&pool(1, 1, "")).env("GOVERNOR_OVERLOAD_PORTS", &address.port().to_string()).start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();
    assert_eq!(overload.borrow_and_update().level, Level::Normal);
    // It holds backlog + 1.
    let queued: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let told = *soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    assert_eq!((told.pressure, told.causes), (1000, cause::ACCEPT_FILL));
    assert!(told.retry_after_ms > 0);
    let status = daemon.get("/v1/status");
    assert_eq!((&status["level"], &status["causes"]), (&"overloaded".into(), &serde_json::json!(["accept_fill"])));
    drop((queued, listener));
    soon(overload.wait_for(|signal| signal.level == Level::Normal)).await.unwrap();
}
