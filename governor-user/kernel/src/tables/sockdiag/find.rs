//! One connection by its two ends.

use crate::tables::sockdiag::ANSWER_WITHIN;
use crate::tables::sockdiag::Diag;
use crate::tables::sockdiag::DiagError;
use crate::tables::sockdiag::NETLINK_HEADER;
use crate::tables::sockdiag::RECEIVE_BYTES;
use crate::tables::sockdiag::parse_socket;
use crate::tables::sockdiag::refusal;
use netlink_packet_core::{Emitable, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader};
use netlink_packet_sock_diag::{
    SOCK_DIAG_BY_FAMILY,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Instant;

/// `TCP_LISTEN` of the kernel's socket states.
const TCP_LISTEN: u8 = 10;

/// A connection that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldConnection {
    /// Socket cookie, unique on the host.
    pub(crate) cookie: u64,
    /// It is one subflow of Multipath TCP: neither its cookie nor its end is that of the connection a process holds.
    pub(crate) subflow: bool,
}

impl Diag {
    /// The connection between these ends as its `local` side sees it; `None` when no process holds one any more.
    pub(crate) fn find(&mut self, local: SocketAddr, peer: SocketAddr) -> Result<Option<HeldConnection>, DiagError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(local, peer, self.sequence), 0)?;
        let mut answer = Vec::with_capacity(RECEIVE_BYTES);
        let end = Instant::now() + ANSWER_WITHIN;
        while Instant::now() < end {
            answer.clear();
            self.socket.recv(&mut answer, 0)?;
            // An answer of an earlier question that came too late is skipped.
            if let Some(found) = parse(&answer, self.sequence)? {
                return Ok(found.connection());
            }
        }
        Err(DiagError::Malformed)
    }
}

/// What the kernel knows of these ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Socket { connection: HeldConnection, inode: u64, state: u8, time_wait: bool },
}

impl Found {
    /// Where there is no connection the kernel answers with the listener of the local port; a connection without an
    /// inode is one that no descriptor stands for.
    fn connection(self) -> Option<HeldConnection> {
        match self {
            Self::Socket { connection, inode: 1.., state, time_wait: false } if state != TCP_LISTEN => Some(connection),
            Self::Socket { .. } | Self::Nothing => None,
        }
    }
}

fn request(local: SocketAddr, peer: SocketAddr, sequence: u32) -> Vec<u8> {
    let v4 = local.is_ipv4() && peer.is_ipv4();
    let mut socket_id = if v4 { SocketId::new_v4() } else { SocketId::new_v6() };
    socket_id.source_address = local.ip();
    socket_id.source_port = local.port();
    socket_id.destination_address = peer.ip();
    socket_id.destination_port = peer.port();
    // The kernel compares no cookie: the caller does.
    socket_id.cookie = [0xff; 8];
    let body = InetRequest {
        family: if v4 { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    };
    let length = NETLINK_HEADER + body.buffer_len();
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(length).expect("a request has a fixed size of less than 100 bytes");
    header.message_type = SOCK_DIAG_BY_FAMILY;
    header.flags = NLM_F_REQUEST;
    header.sequence_number = sequence;
    let mut bytes = vec![0; length];
    header.emit(&mut bytes);
    body.emit(&mut bytes[NETLINK_HEADER..]);
    bytes
}

/// The answer to `sequence`, if this is it.
fn parse(bytes: &[u8], sequence: u32) -> Result<Option<Found>, DiagError> {
    let message = NetlinkBuffer::new_checked(bytes).map_err(|_| DiagError::Malformed)?;
    let length = usize::try_from(message.length()).map_err(|_| DiagError::Malformed)?;
    let payload = bytes.get(NETLINK_HEADER..length).ok_or(DiagError::Malformed)?;
    if message.sequence_number() != sequence {
        return Ok(None);
    }
    match message.message_type() {
        NLMSG_ERROR => match refusal(payload) {
            Err(DiagError::Refused(error)) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {
                Ok(Some(Found::Nothing))
            }
            Err(error) => Err(error),
            Ok(()) => Err(DiagError::Malformed),
        },
        SOCK_DIAG_BY_FAMILY => {
            let row = parse_socket(payload)?;
            Ok(Some(Found::Socket {
                connection: HeldConnection { cookie: row.cookie, subflow: row.mptcp },
                inode: row.inode,
                state: row.state,
                time_wait: row.time_wait,
            }))
        }
        _ => Err(DiagError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_found_while_its_holder_has_it_and_its_listener_is_not_taken_for_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            let mut diag = Diag::open().unwrap();
            let found = diag.find(local, peer).unwrap().expect("it is there");
            assert_eq!(found.cookie, rustix::net::sockopt::socket_cookie(&server).unwrap());
            drop(client);
            assert_eq!(diag.find(local, peer).unwrap(), Some(found), "a half-closed connection is held still");
            drop(server);
            assert_eq!(diag.find(local, peer).unwrap(), None);
        }
    }

    #[test]
    fn a_connection_that_was_reset_is_gone_although_its_descriptor_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(Diag::open().unwrap().find(server.local_addr().unwrap(), peer).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(parse(&bytes, 1));
        }
    }
}
