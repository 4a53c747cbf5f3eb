//! Rare events, through the ring buffer.

use super::ListenerState;
use bytemuck::{Pod, Zeroable};

/// Places for connections whose end is waited for.
pub const MAX_LEASED: u32 = 131_072;

/// The places that a cookie leads to, of which it takes one. Cookies are given out in a row, so that they seldom meet.
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a place is the cookie modulo their number")]
pub const fn leased_places(cookie: u64) -> [u32; 2] {
    let pair = (cookie as u32 & (MAX_LEASED / 2 - 1)) * 2;
    [pair, pair + 1]
}

/// One event about a listener.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Event {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// The listener's socket cookie.
    pub cookie: u64,
    /// Backlog before, for [`EventKind::Relistened`]; else 0.
    pub previous_backlog: u64,
    /// The listener as it was then.
    pub listener: ListenerState,
    /// An [`EventKind`].
    pub kind: u32,
    /// Always 0.
    pub _pad: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A socket began to listen.
    Opened,
    /// It stopped listening.
    Closed,
    /// Its backlog was found changed at an enqueue or a scan: a process called `listen()` again.
    Relistened,
}

impl EventKind {
    /// The number it crosses as.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Opened => 1,
            Self::Closed => 2,
            Self::Relistened => 3,
        }
    }

    /// Reads the number back; `None` for one that this reader does not know.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Opened),
            2 => Some(Self::Closed),
            3 => Some(Self::Relistened),
            _ => None,
        }
    }
}

super::plain!(Event, 176);
