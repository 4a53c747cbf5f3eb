//! The governor's protocol as a client that is in a hurry says it: frames made beforehand, answers looked at by their
//! header. Checks what it takes for granted.

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use governor_common::wire::codec::{encode_reply, encode_request, parse_reply};
use governor_common::wire::frame::decode_frame;
use governor_common::wire::reply::{Grant, Reply};
use governor_common::wire::request::{Acquire, Hello, Request};
use governor_common::wire::{KeyHash, VERSION};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const GRANT: u8 = 0x82;
const SHED: u8 = 0x84;
const REJECT: u8 = 0x85;

/// The frame that asks for a slot.
pub(crate) fn acquire(key: u8) -> Result<Vec<u8>> {
    let acquire = Acquire { pool: "chat".to_owned(), key: Some(KeyHash([key; 16])), ..Acquire::default() };
    encoded(&Request::Acquire(acquire))
}

/// The frame that gives leases back.
pub(crate) fn release(leases: &[u64]) -> Result<Vec<u8>> {
    encoded(&Request::Release { leases: leases.to_vec() })
}

/// The answer, as long as the daemon's.
pub(crate) fn grant() -> Result<Vec<u8>> {
    let mut frame = BytesMut::new();
    let grant = Grant { lease: 1, member: Some("m10".to_owned()), waited_ms: 0 };
    encode_reply(&Reply::Grant(grant), 1, &mut frame)?;
    Ok(frame.to_vec())
}

fn encoded(request: &Request) -> Result<Vec<u8>> {
    let mut frame = BytesMut::new();
    encode_request(request, 1, &mut frame)?;
    Ok(frame.to_vec())
}

/// A session that was greeted.
pub(crate) fn session(path: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(path).context("the daemon's socket")?;
    stream.write_all(&encoded(&Request::Hello(Hello { version: VERSION, name: "bench".to_owned(), resume: None }))?)?;
    let mut buffer = BytesMut::new();
    // What says the limits is the last of the greeting.
    loop {
        while let Some(frame) = decode_frame(&mut buffer)? {
            if let Reply::Limits(_) = parse_reply(&frame)? {
                return Ok(stream);
            }
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            bail!("the daemon hung up");
        }
        buffer.extend_from_slice(&chunk[..count]);
    }
}

/// Takes whole frames off the front of `bytes`: pushes the leases that were granted and says how many bytes that were.
pub(crate) fn grants(bytes: &[u8], leases: &mut Vec<u64>) -> Result<usize> {
    let mut taken = 0;
    while let Some((header, body)) = bytes.get(taken..).and_then(|rest| rest.split_first_chunk::<12>()) {
        let length = usize::try_from(u32::from_le_bytes([header[0], header[1], header[2], header[3]]))?;
        let rest = length.checked_sub(8).context("a frame is shorter than its header")?;
        let Some(body) = body.get(..rest) else { break };
        match header[4] {
            GRANT => leases.push(u64::from_le_bytes(*body.first_chunk().context("a grant names no lease")?)),
            SHED | REJECT => bail!("a request was refused: what is measured is something else"),
            // Limits and levels, told to everybody.
            _ => {}
        }
        taken += 4 + length;
    }
    Ok(taken)
}
