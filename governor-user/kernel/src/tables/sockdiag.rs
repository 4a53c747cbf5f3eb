//! Socket tables by `NETLINK_SOCK_DIAG`: what the kernel itself says about TCP sockets, without BPF. Reads the
//! namespace its socket was made in; knows nothing about how that namespace was entered.
//!
//! A dump that was interrupted, timed out or malformed is an error, never an empty table.

mod find;

use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NlasIterator, Parseable,
};
use netlink_packet_sock_diag::{
    SOCK_DIAG_BY_FAMILY,
    constants::{AF_INET, AF_INET6, INET_DIAG_SKMEMINFO, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags, Timer},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::{io, net::IpAddr, time::Duration};

/// Attribute with the cgroup-v2 id of the socket's creator (Linux 5.9); the packet crate does not name it.
const INET_DIAG_CGROUP_ID: u16 = 21;
/// Nested attribute about the protocol above TCP, and its name within.
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_NAME: u16 = 1;
/// `TCP_CLOSE_WAIT` of the kernel's socket states.
const TCP_CLOSE_WAIT: u8 = 8;
/// Index of the drop counter among the `u32`s of `INET_DIAG_SKMEMINFO`.
const SK_MEMINFO_DROPS: usize = 8;
/// Bytes of a netlink header.
const NETLINK_HEADER: usize = 16;
/// Bytes of `struct inet_diag_msg`, after which the attributes begin.
const MESSAGE_HEADER: usize = 72;
/// The kernel fills at most 32 KiB of a dump at once, whatever more is offered.
const RECEIVE_BYTES: usize = 32 * 1024;
/// A kernel that does not answer in this time is broken; the plane goes on without the answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often an interrupted dump is begun again before it counts as failed.
const ATTEMPTS: u32 = 4;

/// Why a socket table could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiagError {
    /// The netlink socket failed, or the kernel did not answer in time.
    #[error("the socket diagnostics socket failed")]
    Io(#[from] io::Error),
    /// The kernel refused the request.
    #[error("the kernel refused socket diagnostics")]
    Refused(#[source] io::Error),
    /// The table changed under every attempt to read it.
    #[error("the socket table changed during each of {ATTEMPTS} dumps")]
    Interrupted,
    /// Bytes that are not what the kernel documents.
    #[error("socket diagnostics sent an answer of unknown form")]
    Malformed,
}

/// One TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketRow {
    /// Local address; an IPv4-mapped one is folded into IPv4.
    pub(crate) address: IpAddr,
    /// Local port.
    pub(crate) port: u16,
    /// Socket cookie, unique on the host.
    pub(crate) cookie: u64,
    /// Inode number of the descriptor; 0 for a socket no process holds (queued or orphaned).
    pub(crate) inode: u64,
    /// LISTEN: connections in the accept queue. Otherwise bytes to read.
    pub(crate) receive_queue: u32,
    /// LISTEN: the backlog. Otherwise bytes not acknowledged.
    pub(crate) send_queue: u32,
    /// Kernel discards at this socket, ever.
    pub(crate) drops: Option<u32>,
    /// cgroup-v2 id of the creator.
    pub(crate) cgroup: Option<u64>,
    /// Only the remains of a connection; not open any more.
    pub(crate) time_wait: bool,
    /// The other side has closed, and this side has not.
    pub(crate) close_wait: bool,
    /// State as the kernel numbers it.
    pub(crate) state: u8,
    /// The TCP side of an MPTCP socket. Shown only with `CAP_NET_ADMIN`.
    pub(crate) mptcp: bool,
}

impl SocketRow {
    /// Waits in an accept queue although the client is gone: no process holds a descriptor, and an orphan that its own
    /// side closed would be in another state.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.close_wait && self.inode == 0
    }
}

/// Which sockets to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// Listeners.
    Listeners,
    /// Connections that were established and are not yet closed, by whichever side.
    Connections,
    /// Of those only the ones that the other side has closed.
    ClosedByPeer,
}

impl Select {
    fn states(self) -> StateFlags {
        match self {
            Self::Listeners => StateFlags::LISTEN,
            Self::Connections => {
                StateFlags::ESTABLISHED
                    | StateFlags::FIN_WAIT1
                    | StateFlags::FIN_WAIT2
                    | StateFlags::CLOSE_WAIT
                    | StateFlags::LAST_ACK
                    | StateFlags::CLOSING
            }
            Self::ClosedByPeer => StateFlags::CLOSE_WAIT,
        }
    }

    fn extensions(self) -> ExtensionFlags {
        match self {
            // Without INFO newer kernels leave out the protocol above TCP.
            Self::Listeners => ExtensionFlags::SKMEMINFO | ExtensionFlags::INFO,
            Self::Connections | Self::ClosedByPeer => ExtensionFlags::empty(),
        }
    }
}

/// A diagnostics socket, bound for life to the network namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Diag {
    socket: Socket,
    sequence: u32,
}

impl Diag {
    /// Opens a socket in the calling thread's current network namespace.
    pub(crate) fn open() -> Result<Self, DiagError> {
        let socket = Socket::new(NETLINK_SOCK_DIAG)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN)).map_err(io::Error::from)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Replaces `rows` by the selected TCP sockets of both families, each once: a dual-stack listener and connections
    /// over mapped addresses are IPv6 sockets only, an MPTCP listener shows by its TCP side only.
    pub(crate) fn dump(&mut self, select: Select, rows: &mut Vec<SocketRow>) -> Result<(), DiagError> {
        rows.clear();
        for family in [AF_INET, AF_INET6] {
            let kept = rows.len();
            let mut attempt = 1;
            while !self.dump_family(family, select, rows)? {
                rows.truncate(kept);
                if attempt == ATTEMPTS {
                    return Err(DiagError::Interrupted);
                }
                attempt += 1;
            }
        }
        // A table longer than one answer may name a socket twice when its bucket changed in between.
        rows.sort_unstable_by_key(|row| row.cookie);
        rows.dedup_by_key(|row| row.cookie);
        Ok(())
    }

    /// One family's dump; `false` when it was interrupted and its rows mean nothing.
    fn dump_family(&mut self, family: u8, select: Select, rows: &mut Vec<SocketRow>) -> Result<bool, DiagError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(family, select, self.sequence), 0)?;
        let mut consistent = true;
        let mut answer = Vec::with_capacity(RECEIVE_BYTES);
        loop {
            answer.clear();
            self.socket.recv(&mut answer, 0)?;
            match parse_answer(&answer, self.sequence, rows)? {
                Answer::More { interrupted } => consistent &= !interrupted,
                Answer::Done { interrupted } => return Ok(consistent && !interrupted),
            }
        }
    }
}

/// What a datagram of a dump says about the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    More { interrupted: bool },
    Done { interrupted: bool },
}

fn request(family: u8, select: Select, sequence: u32) -> Vec<u8> {
    let body = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: select.extensions(),
        states: select.states(),
        socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
    };
    let length = NETLINK_HEADER + body.buffer_len();
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(length).expect("a request has a fixed size of less than 100 bytes");
    header.message_type = SOCK_DIAG_BY_FAMILY;
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    let mut bytes = vec![0; length];
    header.emit(&mut bytes);
    body.emit(&mut bytes[NETLINK_HEADER..]);
    bytes
}

/// Takes one datagram apart. Messages of an earlier, abandoned dump are skipped.
fn parse_answer(mut bytes: &[u8], sequence: u32, rows: &mut Vec<SocketRow>) -> Result<Answer, DiagError> {
    let mut interrupted = false;
    while !bytes.is_empty() {
        let message = NetlinkBuffer::new_checked(bytes).map_err(|_| DiagError::Malformed)?;
        let length = usize::try_from(message.length()).map_err(|_| DiagError::Malformed)?;
        let payload = bytes.get(NETLINK_HEADER..length).ok_or(DiagError::Malformed)?;
        // Messages are padded to 4 bytes, except that the last may end where the datagram does.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        if message.sequence_number() != sequence {
            continue;
        }
        interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
        match message.message_type() {
            NLMSG_DONE => {
                refusal(payload)?;
                return Ok(Answer::Done { interrupted });
            }
            NLMSG_ERROR => {
                refusal(payload)?;
                return Err(DiagError::Malformed);
            }
            SOCK_DIAG_BY_FAMILY => rows.push(parse_socket(payload)?),
            _ => {}
        }
    }
    Ok(Answer::More { interrupted })
}

/// Both the error and the end of a dump carry a negative errno or 0.
fn refusal(payload: &[u8]) -> Result<(), DiagError> {
    let code = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code < 0 { Err(DiagError::Refused(io::Error::from_raw_os_error(code.saturating_neg()))) } else { Ok(()) }
}

/// One `inet_diag_msg` with its attributes. Attributes are read here rather than by the packet crate, which neither
/// knows the cgroup id nor accepts the shorter memory record of older kernels, and copies what it does not know.
fn parse_socket(payload: &[u8]) -> Result<SocketRow, DiagError> {
    let header = InetResponseHeader::parse(payload).map_err(|_| DiagError::Malformed)?;
    let mut row = SocketRow {
        address: header.socket_id.source_address.to_canonical(),
        port: header.socket_id.source_port,
        cookie: u64::from_ne_bytes(header.socket_id.cookie),
        inode: header.inode.into(),
        receive_queue: header.recv_queue,
        send_queue: header.send_queue,
        drops: None,
        cgroup: None,
        time_wait: header.timer == Some(Timer::TimeWait),
        state: header.state,
        close_wait: header.state == TCP_CLOSE_WAIT,
        mptcp: false,
    };
    for attribute in NlasIterator::new(payload.get(MESSAGE_HEADER..).unwrap_or_default()) {
        let attribute = attribute.map_err(|_| DiagError::Malformed)?;
        match attribute.kind() {
            INET_DIAG_ULP_INFO => row.mptcp = is_mptcp(attribute.value())?,
            INET_DIAG_SKMEMINFO => row.drops = word(attribute.value(), SK_MEMINFO_DROPS),
            INET_DIAG_CGROUP_ID => {
                row.cgroup = attribute.value().first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            }
            _ => {}
        }
    }
    Ok(row)
}

/// Whether the protocol above TCP is named `mptcp`.
fn is_mptcp(nested: &[u8]) -> Result<bool, DiagError> {
    for attribute in NlasIterator::new(nested) {
        let attribute = attribute.map_err(|_| DiagError::Malformed)?;
        if attribute.kind() == INET_ULP_INFO_NAME {
            return Ok(attribute.value() == b"mptcp\0");
        }
    }
    Ok(false)
}

/// The `index`th `u32` of an attribute, where the kernel is new enough to send it.
fn word(value: &[u8], index: usize) -> Option<u32> {
    value.get(index * 4..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(NETLINK_HEADER + payload.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn listener(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[0] = AF_INET6;
        bytes[1] = 10;
        bytes[4..6].copy_from_slice(&8003u16.to_be_bytes());
        bytes[8..24].copy_from_slice(&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
        bytes[44..52].copy_from_slice(&77u64.to_ne_bytes());
        bytes[56..60].copy_from_slice(&3u32.to_ne_bytes());
        bytes[60..64].copy_from_slice(&128u32.to_ne_bytes());
        bytes[68..72].copy_from_slice(&4242u32.to_ne_bytes());
        bytes.extend(attributes.concat());
        bytes
    }

    #[test]
    fn a_listener_is_read_with_the_attributes_that_are_there() {
        let memory: Vec<u8> = (0..9u32).flat_map(u32::to_ne_bytes).collect();
        let full = listener(&[
            attribute(INET_DIAG_SKMEMINFO, &memory),
            attribute(INET_DIAG_CGROUP_ID, &25u64.to_ne_bytes()),
            attribute(INET_DIAG_ULP_INFO, &attribute(INET_ULP_INFO_NAME, b"mptcp\0")),
            attribute(999, b"unknown"),
        ]);
        let row = parse_socket(&full).unwrap();
        assert_eq!((row.address, row.port, row.cookie), (Ipv4Addr::LOCALHOST.into(), 8003, 77));
        assert_eq!((row.receive_queue, row.send_queue, row.inode), (3, 128, 4242));
        assert_eq!((row.drops, row.cgroup, row.mptcp), (Some(8), Some(25), true));

        // Kernels before 4.x end the memory record before the drops; before 5.9 there is no cgroup id.
        let old = parse_socket(&listener(&[attribute(INET_DIAG_SKMEMINFO, &memory[..28])])).unwrap();
        assert_eq!((old.drops, old.cgroup), (None, None));
    }

    #[test]
    fn an_interrupted_dump_is_not_an_empty_table() {
        let mut rows = Vec::new();
        let done = message(NLMSG_DONE, NLM_F_DUMP_INTR, 5, &0i32.to_ne_bytes());
        assert_eq!(parse_answer(&done, 5, &mut rows).unwrap(), Answer::Done { interrupted: true });
    }

    #[test]
    fn an_error_in_the_end_marker_is_an_error() {
        let mut rows = Vec::new();
        let done = message(NLMSG_DONE, 0, 5, &(-2i32).to_ne_bytes());
        assert!(matches!(parse_answer(&done, 5, &mut rows), Err(DiagError::Refused(_))));
    }

    #[test]
    fn an_answer_to_an_earlier_dump_is_skipped() {
        let mut rows = Vec::new();
        let late = message(SOCK_DIAG_BY_FAMILY, 0, 4, &listener(&[]));
        assert_eq!(parse_answer(&late, 5, &mut rows).unwrap(), Answer::More { interrupted: false });
        assert!(rows.is_empty());
    }

    #[test]
    fn the_kernel_lists_a_dual_stack_listener_once_with_its_queue() {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _over_v4 = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let _over_v6 = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        let mut rows = Vec::new();
        Diag::open().unwrap().dump(Select::Listeners, &mut rows).unwrap();
        let mine: Vec<_> = rows.iter().filter(|row| row.port == port).collect();
        assert_eq!(mine.len(), 1);
        assert_eq!((mine[0].receive_queue, mine[0].drops), (2, Some(0)));
        assert_eq!(mine[0].cookie, rustix::net::sockopt::socket_cookie(&listener).unwrap());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut rows = Vec::new();
            let _unspecified = parse_answer(&bytes, 0, &mut rows);
            let _unspecified = parse_socket(&bytes);
        }

        #[test]
        fn damaged_answers_never_panic(index in 0usize..160, value: u8, cut in 0usize..160) {
            let memory: Vec<u8> = vec![0; 36];
            let mut bytes = message(SOCK_DIAG_BY_FAMILY, 2, 0, &listener(&[attribute(INET_DIAG_SKMEMINFO, &memory)]));
            if let Some(byte) = bytes.get_mut(index) {
                *byte = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let mut rows = Vec::new();
            let _unspecified = parse_answer(&bytes, 0, &mut rows);
        }
    }
}
