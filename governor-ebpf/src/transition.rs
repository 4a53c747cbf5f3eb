//! What a change of a TCP socket's state means for the counts.
//!
//! ```text
//! CLOSE ─listen()─▶ LISTEN ─close()─▶ CLOSE          a listener opened and closed
//! (clone of LISTEN) ─▶ SYN_RECV ─▶ ESTABLISHED       inbound opened
//! SYN_SENT ─▶ ESTABLISHED                            outbound opened
//! SYN_SENT ─▶ SYN_RECV ─▶ ESTABLISHED                outbound opened (both sides connected at once)
//! anything else ─▶ CLOSE                             closed, if it was counted
//! ```

use governor_common::abi::Direction;

/// Socket states of the kernel (`include/net/tcp_states.h`), as far as they matter here.
pub mod state {
    /// `TCP_ESTABLISHED`.
    pub const ESTABLISHED: i32 = 1;
    /// `TCP_SYN_SENT`.
    pub const SYN_SENT: i32 = 2;
    /// `TCP_SYN_RECV`.
    pub const SYN_RECV: i32 = 3;
    /// `TCP_TIME_WAIT`: not a full socket.
    pub const TIME_WAIT: i32 = 6;
    /// `TCP_CLOSE`.
    pub const CLOSE: i32 = 7;
    /// `TCP_CLOSE_WAIT`.
    pub const CLOSE_WAIT: i32 = 8;
    /// `TCP_LISTEN`.
    pub const LISTEN: i32 = 10;
    /// `TCP_NEW_SYN_RECV`: a request, not a full socket.
    pub const NEW_SYN_RECV: i32 = 12;
}

/// What a change of state means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The socket begins to listen.
    ListenerOpened,
    /// The socket stops listening.
    ListenerClosed,
    /// A connecting socket met the other side's SYN: it will be established from `SYN_RECV`, but is outbound.
    OutboundMet,
    /// A connection is established.
    Opened(Direction),
    /// The socket is closed; it counts only if it was counted when it opened.
    Closed,
}

/// Classifies a change of state. A child born from a listener also reports `LISTEN → SYN_RECV`, because it is a clone:
/// that is no listener closing.
#[inline(always)]
#[must_use]
pub const fn classify(old: i32, new: i32) -> Option<Change> {
    match (old, new) {
        (_, state::LISTEN) => Some(Change::ListenerOpened),
        (state::LISTEN, state::CLOSE) => Some(Change::ListenerClosed),
        (state::SYN_SENT, state::SYN_RECV) => Some(Change::OutboundMet),
        (state::SYN_SENT, state::ESTABLISHED) => Some(Change::Opened(Direction::Outbound)),
        (state::SYN_RECV, state::ESTABLISHED) => Some(Change::Opened(Direction::Inbound)),
        (_, state::CLOSE) => Some(Change::Closed),
        _ => None,
    }
}

/// Whether a full socket in this state is an open connection: one that was established and is not closed yet.
#[inline(always)]
#[must_use]
pub const fn is_open(socket_state: i32) -> bool {
    !matches!(
        socket_state,
        state::SYN_SENT | state::SYN_RECV | state::TIME_WAIT | state::CLOSE | state::LISTEN | state::NEW_SYN_RECV
    ) && socket_state >= state::ESTABLISHED
        && socket_state < state::NEW_SYN_RECV
}

/// 1 for a connection in an accept queue whose client has closed or reset it, else 0: a Fast Open one waits before it
/// is established. Without a branch, see `queue`.
#[inline(always)]
#[must_use]
pub const fn abandoned(socket_state: i32) -> u32 {
    const WAITING: u32 = 1 << state::ESTABLISHED | 1 << state::SYN_RECV;
    (!WAITING >> (socket_state.unsigned_abs() & 31)) & 1
}

/// Whether a connection in this state can be waiting in an accept queue: it is established, its client may have closed,
/// and no process on this side has.
#[inline(always)]
#[must_use]
pub const fn can_wait(socket_state: i32) -> bool {
    matches!(socket_state, state::SYN_RECV | state::ESTABLISHED | state::CLOSE_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_cloned_from_a_listener_closes_no_listener() {
        assert_eq!(classify(state::LISTEN, state::SYN_RECV), None);
        assert_eq!(classify(state::SYN_RECV, state::ESTABLISHED), Some(Change::Opened(Direction::Inbound)));
    }

    #[test]
    fn a_listener_opens_and_closes() {
        assert_eq!(classify(state::CLOSE, state::LISTEN), Some(Change::ListenerOpened));
        assert_eq!(classify(state::LISTEN, state::CLOSE), Some(Change::ListenerClosed));
    }

    #[test]
    fn every_way_to_close_is_a_close() {
        for old in [1, 2, 3, 4, 5, 7, 8, 9, 11] {
            assert_eq!(classify(old, state::CLOSE), Some(Change::Closed), "from state {old}");
        }
    }

    #[test]
    fn sockets_that_connect_to_each_other_are_outbound() {
        assert_eq!(classify(state::SYN_SENT, state::ESTABLISHED), Some(Change::Opened(Direction::Outbound)));
        assert_eq!(classify(state::SYN_SENT, state::SYN_RECV), Some(Change::OutboundMet));
    }

    #[test]
    fn a_queued_connection_waits_until_its_client_ends_it() {
        let waiting: Vec<i32> = (1..13).filter(|&number| abandoned(number) == 0).collect();
        assert_eq!(waiting, [state::ESTABLISHED, state::SYN_RECV]);
    }

    #[test]
    fn open_means_established_and_not_closed() {
        let open: Vec<i32> = (-1..20).filter(|&number| is_open(number)).collect();
        assert_eq!(open, [1, 4, 5, 8, 9, 11]);
    }
}
