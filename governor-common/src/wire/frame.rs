//! Cuts a byte stream into frames. Knows the header and nothing of what frames say.

use super::MAX_FRAME;
use super::error::{EncodeError, FrameError};
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length field.
const LENGTH: usize = 4;

/// Bytes of the header after the length field: type, flags, reserved, request id.
const REST: usize = 8;

/// One frame, its content not yet parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of message.
    pub kind: u8,
    /// No flag is defined: senders write 0, receivers ignore it.
    pub flags: u8,
    /// Request id; 0 for what answers nothing.
    pub request: u32,
    /// Fixed fields and TLVs of the type.
    pub body: Bytes,
}

/// A frame in a buffer that is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// Type of message.
    pub kind: u8,
    /// As in [`Frame::flags`].
    pub flags: u8,
    /// Request id; 0 for what answers nothing.
    pub request: u32,
    /// Fixed fields and TLVs of the type.
    pub body: &'a [u8],
}

impl Frame {
    /// The same frame, its content borrowed.
    #[must_use]
    pub fn borrowed(&self) -> FrameRef<'_> {
        FrameRef { kind: self.kind, flags: self.flags, request: self.request, body: &self.body }
    }
}

/// Takes the next whole frame off the front of `buffer`. `None` means more bytes are needed. A reader that stops
/// reading while `buffer` holds [`MAX_FRAME`] + 4 bytes never needs more.
///
/// # Errors
///
/// [`FrameError`] when the length is out of bounds. The stream is lost: the session must end.
pub fn decode_frame(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(FrameRef { kind, flags, request, body }) = next_frame(&mut &buffer[..])? else { return Ok(None) };
    let size = body.len();
    buffer.advance(LENGTH + REST);
    Ok(Some(Frame { kind, flags, request, body: buffer.split_to(size).freeze() }))
}

/// Takes the next whole frame off the front of `bytes`, as [`decode_frame`] does, and leaves its content where it is.
///
/// # Errors
///
/// As [`decode_frame`].
pub fn next_frame<'a>(bytes: &mut &'a [u8]) -> Result<Option<FrameRef<'a>>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let length = u32::from_le_bytes(*header);
    let body = match usize::try_from(length) {
        Ok(size) if size > MAX_FRAME => return Err(FrameError::TooLong { length }),
        Err(_) => return Err(FrameError::TooLong { length }),
        Ok(size) => size.checked_sub(REST).ok_or(FrameError::TooShort { length })?,
    };
    let Some(([kind, flags, _, _, request @ ..], rest)) = rest.split_first_chunk::<REST>() else { return Ok(None) };
    let Some((body, rest)) = rest.split_at_checked(body) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(FrameRef { kind: *kind, flags: *flags, request: u32::from_le_bytes(*request), body }))
}

/// Appends one frame whose content `write` appends.
///
/// # Errors
///
/// [`EncodeError`] when the content does not fit; `buffer` is then as it was.
pub(super) fn encode_frame(
    kind: u8,
    request: u32,
    buffer: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut),
) -> Result<(), EncodeError> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; LENGTH]);
    buffer.extend_from_slice(&[kind, 0, 0, 0]);
    buffer.extend_from_slice(&request.to_le_bytes());
    write(buffer);
    let size = buffer.len() - start - LENGTH;
    match u32::try_from(size) {
        Ok(length) if size <= MAX_FRAME => {
            buffer[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
            Ok(())
        }
        Ok(_) | Err(_) => {
            buffer.truncate(start);
            Err(EncodeError { length: size })
        }
    }
}
