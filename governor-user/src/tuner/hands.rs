//! What the tuner does with its hands, on a blocking thread: one call or two in a row through the same duplicate. Knows no
//! policy and keeps no state.

use super::memory::RaisedCap;
use super::relisten::{Done, Held, RelistenError, Socket};

/// What [`act`] came to.
pub(super) struct Acted {
    /// The cap before and after, if it was to be raised.
    pub(super) cap: Option<Result<(u32, u32), RelistenError>>,
    /// Cookie of the namespace.
    pub(super) namespace: Option<u64>,
    pub(super) done: Result<Done, RelistenError>,
}

/// Gives a listener a backlog, after its namespace's cap if that is to be raised too.
pub(super) fn act(socket: &Socket, to: u32, raise_cap: bool) -> Acted {
    let held = match Held::of(socket) {
        Ok(held) => held,
        Err(error) => return Acted { cap: None, namespace: None, done: Err(error) },
    };
    let cap = raise_cap.then(|| held.set_somaxconn(to, None));
    let namespace = held.namespace_cookie();
    Acted { cap, namespace, done: held.listen(to) }
}

/// What [`put_back`] came to: the listener, if it was still as set, and the cap before and after, if it changed.
pub(super) type PutBack = (Result<Option<Done>, RelistenError>, Option<(u32, u32)>);

/// Gives a listener its first backlog back, and its namespace its cap, unless somebody has changed them since.
pub(super) fn put_back(socket: &Socket, set: Option<u32>, original: u32, cap: Option<RaisedCap>) -> PutBack {
    let listen = || {
        let held = Held::of(socket)?;
        if Some(held.backlog()?) == set { held.listen(original).map(Some) } else { Ok(None) }
    };
    let done = listen();
    let cap = cap.and_then(|cap| {
        let held = Held::of(socket).ok()?;
        if cap.cookie.is_some() && held.namespace_cookie() != cap.cookie {
            return None;
        }
        let (before, after) = held.set_somaxconn(cap.before, Some(cap.after)).ok()?;
        (before != after).then_some((before, after))
    });
    (done, cap)
}

/// Runs work that asks the kernel, which may take a while where a process has many descriptors.
pub(super) async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("the hands of the tuner do not panic, and the runtime lives")
}
