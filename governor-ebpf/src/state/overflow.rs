//! Packets refused because the accept queue was full, counted on the listener by the stage at which it happened. Every
//! hook of either stage, on every tier, counts here; which one is attached is the loader's choice, and it attaches one a
//! stage. Whether a packet is refused is for the hook to say.

use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::listener;

/// Whether a connection that wants to enter the queue now is refused: the kernel's own test.
#[inline(always)]
pub(crate) fn is_full(sk: Sock) -> bool {
    sk.depth() > sk.backlog()
}

/// Whether a SYN is refused for too many half-open connections, which the kernel looks at first and counts elsewhere. The
/// listener is one that the verifier knows as a `struct tcp_sock`.
#[inline(always)]
pub(crate) fn is_half_open_full(listener: Sock) -> bool {
    listener.half_open() > listener.backlog() && !listener.sends_cookies()
}

/// Counts a SYN refused.
#[inline(always)]
pub(crate) fn syn(sk: Sock, cookie: u64) -> Result<(), Error> {
    listener::find(sk, cookie).map(|listener| listener.overflow_syn.add(1))
}

/// Counts the last packet of a handshake refused.
#[inline(always)]
pub(crate) fn ack(sk: Sock, cookie: u64) -> Result<(), Error> {
    listener::find(sk, cookie).map(|listener| listener.overflow_ack.add(1))
}
