//! Frames between a proxy and the daemon over a Unix stream socket. `PROTOCOL.md` beside this file describes the
//! bytes; [`request`] and [`reply`] are the messages, [`codec`] turns them into frames and back. Wire types are
//! never engine types.

pub mod codec;
pub mod error;
pub mod frame;
pub mod reply;
pub mod request;
#[cfg(feature = "socket")]
#[expect(unsafe_code, reason = "registering a descriptor with the event loop; see its safety comment")]
pub mod socket;

/// Version of the protocol spoken by this build. The daemon serves this version and the one before.
pub const VERSION: u16 = 2;

/// Longest frame body in bytes; a longer length ends the session that sent it.
pub const MAX_FRAME: usize = 64 * 1024;

/// Longest name (pool, member, label) in bytes.
pub const MAX_NAME: usize = 128;

/// A keyed hash that stands for an API key, an organisation or a user; the raw value never leaves the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// Lower-case hexadecimal digits, in ASCII.
    #[must_use]
    pub fn digits(self) -> [u8; 32] {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
        let mut digits = [b'0'; 32];
        for (two, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *two = [digit(byte >> 4), digit(byte & 15)];
        }
        digits
    }
}

impl core::fmt::Display for KeyHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl core::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "KeyHash({self})")
    }
}
