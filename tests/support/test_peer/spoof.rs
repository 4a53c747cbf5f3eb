//! SYNs made by hand, from clients that are not there and never answer, for `test-peer`.

use rustix::net::{AddressFamily, SocketType, ipproto, sendto, socket};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const SYN: u8 = 2;

/// Sends one SYN to `port` of loopback from each of the first `count` addresses of 192.0.2.0/24, which have to be routed
/// somewhere.
pub(crate) fn syns(port: u16, count: usize) -> io::Result<()> {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
    for host in 1..=u8::try_from(count).map_err(io::Error::other)? {
        let packet = syn(Ipv4Addr::new(192, 0, 2, host), Ipv4Addr::LOCALHOST, port);
        sendto(&raw, &packet, rustix::net::SendFlags::empty(), &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    }
    Ok(())
}

/// The kernel fills in the checksum of the IP header.
fn syn(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut packet = vec![0; IP_HEADER + TCP_HEADER];
    let (ip, tcp) = packet.split_at_mut(IP_HEADER);
    ip[0] = 0x45;
    ip[3] = 40;
    ip[8] = 64;
    ip[9] = PROTOCOL_TCP;
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    tcp[0..2].copy_from_slice(&40_000_u16.to_be_bytes());
    tcp[2..4].copy_from_slice(&port.to_be_bytes());
    tcp[7] = 1;
    tcp[12] = 0x50;
    tcp[13] = SYN;
    tcp[14] = 0x7f;
    let sum = checksum(from, to, tcp);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Of a TCP header, with the addresses, protocol and length that belong to it.
fn checksum(from: Ipv4Addr, to: Ipv4Addr, tcp: &[u8]) -> u16 {
    let covered = [&from.octets()[..], &to.octets()[..], &[0, PROTOCOL_TCP, 0, 20], tcp].concat();
    let mut sum: u32 = covered.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}
