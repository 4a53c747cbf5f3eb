//! The fields messages are made of: little-endian integers, counted lists, and TLVs (u16 type, u16 length, value).

use super::MAX_TEXT;
use crate::wire::error::ParseError;
use crate::wire::frame::FrameRef;
use crate::wire::{KeyHash, MAX_NAME};
use bytes::{BufMut, BytesMut};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// TLV types. One numbering for all messages; a number never changes its meaning.
pub(super) mod tag {
    pub(in super::super) const NAME: u16 = 1;
    pub(in super::super) const RESUME: u16 = 2;
    pub(in super::super) const POOL: u16 = 3;
    pub(in super::super) const KEY: u16 = 4;
    pub(in super::super) const LABEL: u16 = 5;
    pub(in super::super) const ORG: u16 = 6;
    pub(in super::super) const ENDPOINT: u16 = 7;
    pub(in super::super) const CANDIDATE: u16 = 8;
    pub(in super::super) const STICKY: u16 = 9;
    pub(in super::super) const MAX_WAIT_MS: u16 = 10;
    pub(in super::super) const DEADLINE_MS: u16 = 11;
    pub(in super::super) const MEMBER: u16 = 12;
    pub(in super::super) const RESET_MS: u16 = 13;
    pub(in super::super) const HELD: u16 = 14;
    pub(in super::super) const REASON: u16 = 15;
    pub(in super::super) const TEXT: u16 = 16;
    pub(in super::super) const POOL_LIMITS: u16 = 17;
    pub(in super::super) const MEMBER_LIMITS: u16 = 18;
    pub(in super::super) const CLASS: u16 = 19;
    pub(in super::super) const PRIORITY: u16 = 20;
    pub(in super::super) const CHILD_OF: u16 = 21;
    pub(in super::super) const HOP_OF: u16 = 22;
    pub(in super::super) const TRAFFIC: u16 = 23;
    pub(in super::super) const CLIENT: u16 = 24;
    pub(in super::super) const FLAGS: u16 = 25;
    pub(in super::super) const SITE: u16 = 26;
    pub(in super::super) const QUOTA: u16 = 27;
}

/// What is wrong with a body, before it is known whose.
pub(super) type Malformed = &'static str;

/// Reads a body front to back.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("a fixed field is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    /// 16 bytes of address, IPv4 mapped into IPv6, and a port.
    pub(super) fn address(&mut self) -> Result<SocketAddr, Malformed> {
        let address = Ipv6Addr::from(self.take::<16>()?);
        let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        Ok(SocketAddr::new(address, self.u16()?))
    }

    /// A u32 count and as many entries of `size` bytes. The count is believed only as far as the bytes are there.
    pub(super) fn list<T>(
        &mut self,
        size: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| "a list is cut short")?;
        if count.checked_mul(size).is_none_or(|bytes| bytes > self.0.len()) {
            return Err("a list is cut short");
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }

    /// Hands every TLV to `field`, which ignores types it does not know.
    pub(super) fn tlvs(
        mut self,
        mut field: impl FnMut(u16, Value<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        while !self.0.is_empty() {
            let tag = self.u16().map_err(|_| "a TLV is cut short")?;
            let length = usize::from(self.u16().map_err(|_| "a TLV is cut short")?);
            let (value, rest) = self.0.split_at_checked(length).ok_or("a TLV is cut short")?;
            self.0 = rest;
            field(tag, Value(value))?;
        }
        Ok(())
    }
}

/// The value of one TLV.
#[derive(Clone, Copy)]
pub(super) struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    pub(super) fn u8(self) -> Result<u8, Malformed> {
        match self.0 {
            [byte] => Ok(*byte),
            _ => Err("a TLV has the wrong length for a u8"),
        }
    }

    pub(super) fn u32(self) -> Result<u32, Malformed> {
        self.0.try_into().map(u32::from_le_bytes).map_err(|_| "a TLV has the wrong length for a u32")
    }

    pub(super) fn u64(self) -> Result<u64, Malformed> {
        self.0.try_into().map(u64::from_le_bytes).map_err(|_| "a TLV has the wrong length for a u64")
    }

    pub(super) fn key(self) -> Result<KeyHash, Malformed> {
        self.0.try_into().map(KeyHash).map_err(|_| "a key is not 16 bytes long")
    }

    pub(super) fn name<S: From<&'a str>>(self) -> Result<S, Malformed> {
        if self.0.is_empty() || self.0.len() > MAX_NAME {
            return Err("a name is empty or longer than 128 bytes");
        }
        self.string()
    }

    pub(super) fn text(self) -> Result<String, Malformed> {
        if self.0.len() > MAX_TEXT { Err("a text is longer than 1024 bytes") } else { self.string() }
    }

    pub(super) fn cursor(self) -> Cursor<'a> {
        Cursor(self.0)
    }

    fn string<S: From<&'a str>>(self) -> Result<S, Malformed> {
        str::from_utf8(self.0).map(S::from).map_err(|_| "a string is not UTF-8")
    }
}

/// Writes a counted list.
pub(super) fn put_list<T>(buffer: &mut BytesMut, items: &[T], mut entry: impl FnMut(&mut BytesMut, &T)) {
    // A list that does not fit the count does not fit a frame either; `encode_frame` takes it back.
    buffer.put_u32_le(u32::try_from(items.len()).unwrap_or(u32::MAX));
    for item in items {
        entry(buffer, item);
    }
}

/// Cuts a list into parts of at most `most` bytes each; an item that is longer is a part by itself.
pub(super) fn parts<T>(mut items: &[T], most: usize, length: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    core::iter::from_fn(move || {
        let mut bytes: usize = 0;
        let fits = items.iter().take_while(|item| {
            bytes = bytes.saturating_add(length(item));
            bytes <= most
        });
        let count = fits.count().max(1);
        let (part, rest) = items.split_at_checked(count)?;
        items = rest;
        Some(part)
    })
}

/// Bytes of the TLV of a name.
pub(super) fn name_length(name: &str) -> usize {
    2 * size_of::<u16>() + name.len().min(MAX_NAME)
}

/// Writes one TLV.
pub(super) fn put_tlv(buffer: &mut BytesMut, tag: u16, value: &[u8]) {
    // Callers bound what they put; a longer value could not be expressed and would not fit a frame.
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    buffer.put_u16_le(tag);
    buffer.put_u16_le(length);
    buffer.put_slice(&value[..usize::from(length)]);
}

/// Writes a name, cut to what a peer accepts. An empty name is left out, because it names nothing.
pub(super) fn put_name(buffer: &mut BytesMut, tag: u16, name: &str) {
    let name = cut(name, MAX_NAME);
    if !name.is_empty() {
        put_tlv(buffer, tag, name.as_bytes());
    }
}

/// Writes free text, cut to what a peer accepts.
pub(super) fn put_text(buffer: &mut BytesMut, tag: u16, text: &str) {
    put_tlv(buffer, tag, cut(text, MAX_TEXT).as_bytes());
}

pub(super) fn put_opt_name(buffer: &mut BytesMut, tag: u16, name: Option<&str>) {
    if let Some(name) = name {
        put_name(buffer, tag, name);
    }
}

pub(super) fn put_opt_u32(buffer: &mut BytesMut, tag: u16, value: Option<u32>) {
    if let Some(value) = value {
        put_tlv(buffer, tag, &value.to_le_bytes());
    }
}

pub(super) fn put_opt_key(buffer: &mut BytesMut, tag: u16, key: Option<KeyHash>) {
    if let Some(KeyHash(bytes)) = key {
        put_tlv(buffer, tag, &bytes);
    }
}

/// Writes an address as [`Cursor::address`] reads it.
pub(super) fn put_address(buffer: &mut BytesMut, address: SocketAddr) {
    let bytes = match address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    buffer.put_slice(&bytes.octets());
    buffer.put_u16_le(address.port());
}

/// Writes a TLV whose value is fields and TLVs itself.
pub(super) fn put_nested(buffer: &mut BytesMut, tag: u16, write: impl FnOnce(&mut BytesMut)) {
    buffer.put_u16_le(tag);
    let start = buffer.len() + size_of::<u16>();
    buffer.put_u16_le(0);
    write(buffer);
    // As in `put_tlv`: what is longer does not fit a frame.
    let length = u16::try_from(buffer.len() - start).unwrap_or(u16::MAX);
    buffer[start - size_of::<u16>()..start].copy_from_slice(&length.to_le_bytes());
}

/// Gives a bad body the frame it belongs to.
pub(super) fn malformed(frame: FrameRef<'_>) -> impl Fn(Malformed) -> ParseError + use<> {
    let (kind, request) = (frame.kind, frame.request);
    move |what| ParseError::Malformed { kind, request, what }
}

/// The longest prefix of at most `limit` bytes that ends between characters.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
