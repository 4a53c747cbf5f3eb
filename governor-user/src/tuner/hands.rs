//! Executes the tuner's actions on a blocking thread: one call or two in a row through the same duplicate. Knows no policy and
//! keeps no state.

use super::relisten::{self, Held, RelistenError};
use governor_health::backlog::tuner::{Action, Called, Done, Failure, RaisedCap, Socket};

/// Does it.
pub(super) async fn execute(action: Action) -> Done {
    // It asks the kernel, which may take a while where a process has many descriptors.
    let done = tokio::task::spawn_blocking(move || match &action {
        Action::Listen { socket, to, raise_cap } => listen(socket, *to, *raise_cap),
        Action::Read { socket } => Done::Read(Held::of(socket).and_then(|held| held.backlog()).map_err(failure)),
        Action::PutBack { socket, set, original, cap } => put_back(socket, *set, *original, cap.as_ref()),
    });
    done.await.expect("the actions do not panic, and the runtime lives")
}

/// Gives a listener a backlog, after its namespace's somaxconn if that is to be raised too.
fn listen(socket: &Socket, to: u32, raise_cap: bool) -> Done {
    let held = match Held::of(socket) {
        Ok(held) => held,
        Err(error) => return Done::Listened { cap: None, namespace: None, done: Err(failure(error)) },
    };
    let cap = raise_cap.then(|| held.set_somaxconn(to, None).map_err(failure));
    let namespace = held.namespace_cookie();
    Done::Listened { cap, namespace, done: held.listen(to).map_err(failure) }
}

/// Gives a listener its first backlog back, and its namespace its somaxconn, unless another hand has changed them since.
fn put_back(socket: &Socket, set: Option<u32>, original: u32, cap: Option<&RaisedCap>) -> Done {
    let listen = || -> Result<Option<Called>, RelistenError> {
        let held = Held::of(socket)?;
        if Some(held.backlog()?) == set { held.listen(original).map(Some) } else { Ok(None) }
    };
    let done = listen();
    if matches!(done, Ok(None)) {
        tracing::info!(?socket, "not restored: another hand has set its backlog since");
    }
    let cap = cap.and_then(|cap| {
        let held = Held::of(socket).ok()?;
        if cap.cookie.is_some() && held.namespace_cookie() != cap.cookie {
            return None;
        }
        let (before, after) = held.set_somaxconn(cap.before, Some(cap.after)).ok()?;
        (before != after).then_some((before, after))
    });
    Done::PutBack { done: done.map_err(failure), cap }
}

fn failure(error: RelistenError) -> Failure {
    let is_holder_unknown = matches!(error, RelistenError::NoHolder | RelistenError::HolderUnseen(_));
    Failure { reason: relisten::chain(&error), is_holder_unknown }
}
