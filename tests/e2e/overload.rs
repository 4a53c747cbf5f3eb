//! Overload signals from the kernel's own figures to a connected proxy.

use crate::world::{client, pool, soon};
use governor_client::{Level, cause};
use std::net::TcpStream;
use support::cgroup::Cgroup;
use support::daemon::Setup;
use support::netns::Netns;
use support::peer::Peer;

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
    // Nobody accepts, which presses too after a second.
    let daemon = Setup::new(&pool(1, 1, ""))
        .env("GOVERNOR_OVERLOAD_PORTS", &address.port().to_string())
        .env("GOVERNOR_OVERLOAD_IGNORE", "acceptor_stalled,accept_sojourn,cpu_pressure,memory_pressure")
        .start();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_at_its_ceiling_of_connections_raises_the_level() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("private network namespaces and cgroups need root");
    }
    let namespace = Netns::create().unwrap();
    let (of_server, of_client) = (Cgroup::create("ceiling").unwrap(), Cgroup::create("clients").unwrap());
    let ceiling = format!("[cgroups.\"{}\"]\nmax_connections = 10\n", of_server.path());
    let daemon = Setup::new(&format!("{ceiling}{}", pool(1, 1, "")))
        .tier("auto")
        .env("GOVERNOR_OVERLOAD_HOLD", "0s")
        .env("GOVERNOR_KERNEL_AUDIT", "200ms")
        .start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();

    let mut server = Peer::start_in(&namespace, &of_server);
    let mut clients = Peer::start_in(&namespace, &of_client);
    let port = server.listen("127.0.0.1", 64);
    clients.connect("127.0.0.1", port, 10);
    server.accept(port, 10);
    let told = *soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    assert_eq!((told.pressure, told.causes), (1000, cause::CGROUP_CONNECTIONS));

    clients.close_connections();
    server.close_connections();
    soon(overload.wait_for(|signal| signal.level == Level::Normal)).await.unwrap();
}

#[test]
fn messages_of_the_kernel_programs_reach_the_log_at_debug_level_only() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("kernel programs need root");
    }
    for (level, expected) in [("info", false), ("debug", true)] {
        let daemon = Setup::new("").tier("auto").env("GOVERNOR_LOG", level).start();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().any(|row| row["port"] == port));
        drop(listener);
        daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().all(|row| row["port"] != port));
        if daemon.get("/v1/status")["tier"] != "tracepoint" {
            return support::skip("the tracepoint tier does not work here");
        }
        let log = daemon.log();
        assert_eq!(log.matches(&format!("port {port} listens")).count(), usize::from(expected), "{log}");
    }
}
