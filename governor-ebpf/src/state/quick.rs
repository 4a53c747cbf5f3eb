//! Quick marks: marks of connections that count from their establishment to their close. Only events of their own
//! socket change them, under its lock, so that one can lie anywhere and not only on the socket: it lies in a table,
//! where the socket's cookie leads. Cookies are given out in a row, so two sockets share a place when one stays open
//! for as long as it takes to open as many others as there are places. The later one gets its mark in socket storage,
//! at ten times the price.

use crate::kernel::sock::Sock;
use crate::state::cells::QuickCell;
use crate::state::maps;

/// What became of a wish for a quick mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is made now.
    Made,
    /// The socket had one.
    There,
    /// Its place is another socket's.
    Taken,
}

/// The quick mark of a socket.
#[inline(always)]
pub(crate) fn find(sk: Sock) -> Option<&'static QuickCell> {
    let cookie = sk.known_cookie();
    // Free places have no cookie either.
    maps::quick_mark(cookie).filter(|mark| cookie != 0 && mark.cookie.load() == cookie)
}

/// Makes the quick mark of a socket.
#[inline(always)]
pub(crate) fn claim(sk: Sock, cgroup: u64, direction: u32, entered_ns: u64) -> Claim {
    let cookie = sk.cookie();
    let Some(mark) = maps::quick_mark(cookie) else { return Claim::Taken };
    match mark.cookie.replace(0, cookie) {
        Ok(()) => {
            mark.cgroup.store(cgroup);
            mark.direction.store(direction);
            mark.enqueued_ns.store(entered_ns);
            Claim::Made
        }
        Err(other) if other == cookie => Claim::There,
        Err(_other) => Claim::Taken,
    }
}

/// Frees the place of a socket's quick mark; gives back the cgroup and the direction that it was counted under.
#[inline(always)]
pub(crate) fn release(sk: Sock) -> Option<(u64, u32)> {
    let mark = find(sk)?;
    let was = (mark.cgroup.load(), mark.direction.load());
    // Before the next socket has the place: who looks at that one's stamp too early finds none.
    mark.enqueued_ns.store(0);
    mark.cookie.replace(mark.cookie.load(), 0).ok().map(|()| was)
}

/// When a connection entered its accept queue, by its quick mark; 0 when it has none. Free places have no stamp, so no
/// caller need ask whether the cookie is one.
#[inline(always)]
pub(crate) fn stamp(sk: Sock) -> u64 {
    let cookie = sk.known_cookie();
    maps::quick_mark(cookie).map_or(0, |mark| if mark.cookie.load() == cookie { mark.enqueued_ns.load() } else { 0 })
}
