//! Values that a listening socket reports through one of its descriptors. An island of unsafe code for three calls that
//! no crate wraps: `TCP_INFO`, which shows the backlog the kernel holds for it, `SIOCGSKNS`, which opens its network
//! namespace, and that namespace's cookie.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What `TCP_INFO` begins with; the kernel writes no more than it is asked for.
const ASKED: usize = 32;

/// `TCP_LISTEN`, at the first byte.
const LISTEN: u8 = 10;

/// Where a listener's depth stands (`tcpi_unacked`), and after it its limit (`tcpi_sacked`).
const QUEUE_AT: usize = 24;

/// The accept queue of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Connections in it.
    pub depth: u32,
    /// Its limit.
    pub backlog: u32,
}

/// The accept queue behind a socket as the kernel holds it now; `None` when it does not listen.
///
/// # Errors
/// It is no TCP socket.
pub fn queue(socket: &impl AsFd) -> io::Result<Option<Queue>> {
    let mut info = [0_u8; ASKED];
    let mut length = libc::socklen_t::try_from(ASKED).expect("a few bytes");
    // SAFETY: the descriptor is open, and the pointer is to as many bytes as the length says, which outlive the call.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if refused != 0 {
        return Err(io::Error::last_os_error());
    }
    if info[0] != LISTEN {
        return Ok(None);
    }
    let field = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    Ok(Some(Queue { depth: field(QUEUE_AT), backlog: field(QUEUE_AT + 4) }))
}

/// The network namespace of a socket, which need not be that of the process that holds it.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` over it.
pub fn namespace(socket: &impl AsFd) -> io::Result<OwnedFd> {
    const SIOCGSKNS: libc::c_ulong = 0x894c;
    // SAFETY: the descriptor is open; the request takes no argument and returns a descriptor.
    let opened = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSKNS, 0) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this call, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The cookie of a socket's network namespace: its inode number is given to another one after its end, its cookie
/// never. `None` before Linux 5.14.
pub fn namespace_cookie(socket: &impl AsFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).expect("a few bytes");
    // SAFETY: the descriptor is open, and the pointer is to as many bytes as the length says, which outlive the call.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (refused == 0).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_listener_tells_its_depth_and_backlog_and_a_connection_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 7).unwrap();
        assert_eq!(queue(&listener).unwrap(), Some(Queue { depth: 0, backlog: 7 }));
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(queue(&listener).unwrap(), Some(Queue { depth: 1, backlog: 7 }));
        assert_eq!(queue(&client).unwrap(), None);
        assert!(queue(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn sockets_of_one_namespace_share_its_cookie() {
        let [one, other] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        assert_eq!(namespace_cookie(&one), namespace_cookie(&other));
        assert_eq!(namespace_cookie(&std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn the_namespace_of_a_socket_is_where_it_was_made() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Needs rights that a test may lack.
        if let Ok(opened) = namespace(&listener) {
            let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
            assert_eq!(std::fs::File::from(opened).metadata().unwrap().ino(), own);
        }
    }
}
