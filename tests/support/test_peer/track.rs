//! Fills a connection-tracking table by hand, over ctnetlink: no packet is sent and nothing has to match one.

use rustix::net::{AddressFamily, SocketType, netlink, socket};
use std::io;

/// Subsystem conntrack, message `IPCTNL_MSG_CT_NEW`.
const CT_NEW: u16 = 1 << 8;
/// `NLM_F_REQUEST | NLM_F_EXCL | NLM_F_CREATE`; no answer is asked for.
const CREATE: u16 = 0x1 | 0x200 | 0x400;
const HEADER: usize = 16;
const NESTED: u16 = 1 << 15;
/// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_TIMEOUT`.
const ORIGINAL: u16 = 1 | NESTED;
const REPLY: u16 = 2 | NESTED;
const TIMEOUT: u16 = 7;
/// `CTA_TUPLE_IP`, `CTA_TUPLE_PROTO` and what is in them.
const IP: u16 = 1 | NESTED;
const PROTO: u16 = 2 | NESTED;
const FIRST: u16 = 1;
const SECOND: u16 = 2;
const THIRD: u16 = 3;
const UDP: u8 = 17;
/// Seconds until an entry would go by itself.
const LIFE: u32 = 600;
/// Entries a system call makes.
const AT_ONCE: u32 = 200;

/// Makes `count` entries in the table of this network namespace; how many are in it then.
pub(crate) fn fill(count: u32) -> io::Result<usize> {
    let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER))?;
    let mut batch = Vec::new();
    for number in 0..count {
        entry(&mut batch, number);
        if (number + 1) % AT_ONCE == 0 || number + 1 == count {
            rustix::io::write(&kernel, &batch)?;
            batch.clear();
        }
    }
    entries()
}

/// Connections in the table.
fn entries() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")?;
    text.trim().parse().map_err(io::Error::other)
}

/// A flow of UDP from a client of its own.
fn entry(out: &mut Vec<u8>, number: u32) {
    let (client, server) = (0x0a00_0001 + (number >> 16), 0x0aff_0001_u32);
    let [_, _, high, low] = number.to_be_bytes();
    let port = u16::from_be_bytes([high, low]);
    let mut body = vec![2, 0, 0, 0];
    attribute(&mut body, ORIGINAL, &tuple(client, server, port, 53));
    attribute(&mut body, REPLY, &tuple(server, client, 53, port));
    attribute(&mut body, TIMEOUT, &LIFE.to_be_bytes());
    let length = u32::try_from(HEADER + body.len()).expect("a message is short");
    out.extend(length.to_ne_bytes());
    out.extend(CT_NEW.to_ne_bytes());
    out.extend(CREATE.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(body);
}

fn tuple(from: u32, to: u32, source: u16, target: u16) -> Vec<u8> {
    let (mut addresses, mut ports, mut both) = (Vec::new(), Vec::new(), Vec::new());
    attribute(&mut addresses, FIRST, &from.to_be_bytes());
    attribute(&mut addresses, SECOND, &to.to_be_bytes());
    attribute(&mut ports, FIRST, &[UDP]);
    attribute(&mut ports, SECOND, &source.to_be_bytes());
    attribute(&mut ports, THIRD, &target.to_be_bytes());
    attribute(&mut both, IP, &addresses);
    attribute(&mut both, PROTO, &ports);
    both
}

/// Length and type, the value, and zeros up to a multiple of four.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("an attribute is short");
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}
