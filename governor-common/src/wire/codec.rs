//! Turns messages into frames and back. Every byte of a body is described in `PROTOCOL.md`; nothing here panics on bytes
//! from a peer or allocates by a length that the frame does not hold.

mod field;
mod limits;
mod reply;
mod request;

use super::MAX_FRAME;

pub use limits::pool_limits_length;
pub use reply::{encode_grant, encode_reply, parse_reply, read_reply};
#[cfg(feature = "map")]
pub(crate) use reply::{level_code, level_of};
pub use request::{encode_acquire, encode_release, encode_request, parse_request, read_request};

/// Most leases one `Release` may name.
pub const RELEASES_PER_FRAME: usize = (MAX_FRAME - 12) / 8;

/// Most leases one `Renew` may name.
pub const RENEWALS_PER_FRAME: usize = (MAX_FRAME - 12) / 12;

/// Leases that fit one `Register` whatever their names, and whose `Registered` fits one frame too.
pub const HELD_PER_FRAME: usize = 70;

/// Longest list of candidates of one `Acquire`, in bytes: the length of each name and 4.
pub const MAX_CANDIDATES: usize = 512 * 1024;

/// Longest `Limits` with all its parts, in bytes, as [`pool_limits_length`] counts: half of what a session may leave unread.
pub const MAX_LIMITS: usize = 512 * 1024;

/// Bytes of one list in a frame at most, so that the other fields have room beside it.
const PART: usize = MAX_FRAME - 4096;

/// Longest free text (reason, detail, message) in bytes; encoders cut there.
pub const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests;
