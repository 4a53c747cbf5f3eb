//! A daemon with something to show: the pool `chat` of two members, full, with one key waiting.

use governor_client::{AcquireRequest, Config, Governor, Lease, NodeSecret};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};
use tokio::task::JoinHandle;

/// Longest wait for something that happens at once unless it hangs.
const SOON: Duration = Duration::from_secs(20);

/// Two members with one ordinary slot each.
pub(crate) const POOL: &str = "\
[pools.chat]
fair_share = 80
fair_share_mode = \"enforce\"

[[pools.chat.members]]
name = \"account-1\"
slots = 2

[[pools.chat.members]]
name = \"account-2\"
slots = 2
";

/// A daemon with the pool and nobody connected.
pub(crate) fn quiet() -> Daemon {
    Setup::new(POOL).start()
}

/// A daemon whose pool is full.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) daemon: Daemon,
    /// Id of a refusal that happened, as `explain` takes it.
    pub(crate) decision: String,
    /// Holds both slots.
    _held: Vec<Lease>,
    /// Waits for one.
    _waiting: JoinHandle<()>,
}

/// `batch` holds both slots and waits for a third, `user` was refused.
pub(crate) async fn busy() -> Busy {
    let daemon = quiet();
    let governor = client(&daemon).await;
    let ask = |key: &str| AcquireRequest::new("chat").key(governor.key(key.as_bytes())).label(key).site("chat.rs:7");
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(soon(governor.acquire(ask("batch"))).await.unwrap());
    }
    let refused = soon(governor.acquire(ask("user").max_wait(Duration::ZERO))).await.unwrap_err();
    let decision = format!("{:016x}", refused.decision().unwrap());
    let third = ask("batch").max_wait(Duration::from_secs(600));
    let waiting = tokio::spawn({
        let governor = governor.clone();
        async move { drop(governor.acquire(third).await) }
    });
    let daemon = tokio::task::spawn_blocking(move || {
        daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
        daemon
    });
    Busy { daemon: daemon.await.unwrap(), decision, _held: held, _waiting: waiting }
}

/// A client that has greeted the daemon.
pub(crate) async fn client(daemon: &Daemon) -> Governor {
    let config =
        Config { name: "gateway".to_owned(), secret: NodeSecret::new(b"cli").unwrap(), ..Config::new(daemon.socket()) };
    let governor = Governor::start(config);
    let mut connected = governor.connected();
    soon(connected.wait_for(|connected| *connected)).await.unwrap();
    governor
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens soon")
}
