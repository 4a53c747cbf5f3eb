//! Where the TCP flags are in a packet that begins with its network header, and what they ask for. Sees the packet through
//! a reader of single bytes, so that it is tested without a kernel.

/// Extension headers of IPv6 passed over before a packet is given up; TCP rarely has one.
const MAX_EXTENSIONS: usize = 4;
/// Bytes of the fixed IPv6 header.
const IPV6_HEADER: u32 = 40;
/// Offset of the flags in a TCP header.
const FLAGS: u32 = 13;

const IPPROTO_HOP_BY_HOP: u8 = 0;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_ROUTING: u8 = 43;
const IPPROTO_DESTINATION: u8 = 60;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Whether it asks a listener for a connection: a SYN and nothing that makes a listener discard or refuse it before it
/// looks at its queue. `byte` reads one byte of the packet; `None` where the packet ends before.
#[inline(always)]
pub fn asks_to_connect(byte: impl Fn(u32) -> Option<u8>) -> bool {
    let Some(first) = byte(0) else { return false };
    let header = match first >> 4 {
        4 => Some(u32::from(first & 0xf) * 4).filter(|_| byte(9) == Some(IPPROTO_TCP)),
        6 => past_extensions(&byte),
        _ => None,
    };
    let Some(flags) = header.and_then(|at| byte(at + FLAGS)) else { return false };
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// Where the TCP header begins behind an IPv6 header.
#[inline(always)]
fn past_extensions(byte: &impl Fn(u32) -> Option<u8>) -> Option<u32> {
    let mut next = byte(6)?;
    let mut at = IPV6_HEADER;
    for _ in 0..MAX_EXTENSIONS {
        match next {
            IPPROTO_TCP => return Some(at),
            IPPROTO_HOP_BY_HOP | IPPROTO_ROUTING | IPPROTO_DESTINATION => {
                next = byte(at)?;
                at += (u32::from(byte(at + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
    if next == IPPROTO_TCP { Some(at) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(packet: &[u8]) -> bool {
        asks_to_connect(|at| packet.get(usize::try_from(at).unwrap()).copied())
    }

    fn v4(options: usize, protocol: u8, flags: u8) -> Vec<u8> {
        let words = 5 + u8::try_from(options).unwrap();
        let mut packet = vec![0; 20 + options * 4 + 20];
        packet[0] = 0x40 | words;
        packet[9] = protocol;
        packet[20 + options * 4 + 13] = flags;
        packet
    }

    fn v6(extensions: &[u8], flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        let mut chain = extensions.to_vec();
        chain.push(IPPROTO_TCP);
        packet[6] = chain[0];
        for next in &chain[1..] {
            // One unit of 8 bytes beyond the first.
            packet.extend([*next, 1]);
            packet.extend([0; 14]);
        }
        packet.extend([0; 20]);
        let at = packet.len() - 20 + 13;
        packet[at] = flags;
        packet
    }

    #[test]
    fn a_bare_syn_asks_to_connect_also_with_congestion_bits() {
        for flags in [SYN, SYN | 0x40 | 0x80, SYN | 8] {
            assert!(asks(&v4(0, IPPROTO_TCP, flags)) && asks(&v6(&[], flags)), "{flags:#x}");
        }
        assert!(asks(&v4(3, IPPROTO_TCP, SYN)), "behind IPv4 options");
        assert!(asks(&v6(&[IPPROTO_HOP_BY_HOP, IPPROTO_DESTINATION], SYN)), "behind IPv6 extensions");
    }

    #[test]
    fn nothing_else_does() {
        for flags in [0, ACK, SYN | ACK, SYN | RST, SYN | FIN, FIN | ACK, RST] {
            assert!(!asks(&v4(0, IPPROTO_TCP, flags)) && !asks(&v6(&[], flags)), "{flags:#x}");
        }
        assert!(!asks(&v4(0, 17, SYN)), "not TCP");
        assert!(!asks(&v6(&[44], SYN)), "a fragment is put together before it gets here");
    }

    #[test]
    fn a_packet_that_ends_early_asks_for_nothing() {
        for packet in [v4(2, IPPROTO_TCP, SYN), v6(&[IPPROTO_ROUTING], SYN)] {
            let flags_at = packet.len() - 7;
            assert!(asks(&packet[..=flags_at]));
            for end in 0..=flags_at - 1 {
                assert!(!asks(&packet[..end]), "cut at {end}");
            }
        }
    }
}
