//! What the end-to-end tests share: a daemon with one pool, clients of it, and bounded waiting.

use governor_client::{AcquireRequest, Config, Governor, Lease, NodeSecret, Refused};
use std::path::Path;
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

/// Longest wait for something that happens at once unless it hangs.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A configuration with the pool `chat` of `members` × `slots`, reserve 0, and more lines for the pool.
pub(crate) fn pool(members: u32, slots: u32, lines: &str) -> String {
    let members: String = (1..=members)
        .map(|n| format!("[[pools.chat.members]]\nname = \"m{n}\"\nslots = {slots}\nreserve = 0\n"))
        .collect();
    format!("[pools.chat]\n{lines}\n{members}")
}

/// A daemon with such a pool.
pub(crate) fn daemon(members: u32, slots: u32, lines: &str) -> Daemon {
    Setup::new(&pool(members, slots, lines)).start()
}

/// A client that has greeted the daemon.
pub(crate) async fn client(socket: &Path) -> Governor {
    let governor = Governor::start(config(socket));
    let mut connected = governor.connected();
    soon(connected.wait_for(|connected| *connected)).await.expect("the client's task lives");
    governor
}

/// Waits until a client is back at a daemon that was started again: what a checkpoint restored counts before the client
/// is, and until then its questions are answered by its fallback.
pub(crate) async fn back(governor: &Governor, daemon: &Daemon) {
    daemon.wait_for("/v1/status", |status| status["sessions"].as_array().is_some_and(|all| !all.is_empty()));
    soon(governor.connected().wait_for(|connected| *connected)).await.expect("the client's task lives");
}

/// How the tests' clients are set up.
pub(crate) fn config(socket: &Path) -> Config {
    Config { name: "test".to_owned(), secret: NodeSecret::new(b"e2e").unwrap(), ..Config::new(socket) }
}

/// One ordinary request of a key.
pub(crate) fn ask(governor: &Governor, key: &str) -> AcquireRequest {
    AcquireRequest::new("chat").key(governor.key(key.as_bytes())).label(key)
}

/// Asks and fails the test if the daemon refuses.
pub(crate) async fn lease(governor: &Governor, key: &str) -> Lease {
    soon(governor.acquire(ask(governor, key))).await.unwrap_or_else(|refused| panic!("{key} was refused: {refused}"))
}

/// Asks with this longest wait and returns the refusal.
pub(crate) async fn refusal(governor: &Governor, key: &str, max_wait: Duration) -> Refused {
    let asked = ask(governor, key).max_wait(max_wait);
    soon(governor.acquire(asked)).await.err().unwrap_or_else(|| panic!("{key} was granted"))
}

/// Fails the test instead of hanging.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens soon")
}

/// Looks on a thread of its own until `look` gives something: blocking questions must not stop the client's task.
pub(crate) async fn until<T: Send + 'static>(what: &str, look: impl Fn() -> Option<T> + Send + 'static) -> T {
    let found = tokio::task::spawn_blocking(move || {
        let end = std::time::Instant::now() + SOON;
        while std::time::Instant::now() < end {
            if let Some(found) = look() {
                return Some(found);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    });
    found.await.expect("looking does not panic").unwrap_or_else(|| panic!("it did not happen: {what}"))
}
