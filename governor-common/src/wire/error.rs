//! What can be wrong with bytes from a peer. [`FrameError`] ends the session that sent them; [`ParseError`] is answered
//! and the session lives on.

use super::MAX_FRAME;
use super::reply::ErrorCode;
use thiserror::Error;

/// The stream cannot be split into frames any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length exceeds [`MAX_FRAME`].
    #[error("frame of {length} bytes is longer than {MAX_FRAME}")]
    TooLong {
        /// The length the header claims, in bytes.
        length: u32,
    },
    /// The length leaves no room for the rest of the header.
    #[error("frame of {length} bytes is shorter than its own header")]
    TooShort {
        /// The length the header claims, in bytes.
        length: u32,
    },
}

/// A whole frame whose content is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// A type this build does not know; the answer is `Error(unsupported)`.
    #[error("frame type {kind:#04x} is unknown")]
    Unknown {
        /// The type.
        kind: u8,
        /// Request id to answer.
        request: u32,
    },
    /// A known type with bad content; the answer is `Error(malformed)`.
    #[error("frame type {kind:#04x} is malformed: {what}")]
    Malformed {
        /// The type.
        kind: u8,
        /// Request id to answer.
        request: u32,
        /// What is wrong.
        what: &'static str,
    },
}

impl ParseError {
    /// Request id the `Error` reply carries.
    #[must_use]
    pub fn request(&self) -> u32 {
        match *self {
            Self::Unknown { request, .. } | Self::Malformed { request, .. } => request,
        }
    }

    /// Code the `Error` reply carries.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown { .. } => ErrorCode::Unsupported,
            Self::Malformed { .. } => ErrorCode::Malformed,
        }
    }
}

/// A message too large for one frame; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("message of {length} bytes does not fit a frame of {MAX_FRAME}")]
pub struct EncodeError {
    /// Length the frame would have had, in bytes.
    pub length: usize,
}
