//! `TCP_DEFER_ACCEPT`: a listener that takes a connection into its queue when the first data comes, and not before. An
//! island of unsafe code for one socket option that no crate wraps.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// Has `listener` wait for data, for at least 10 s.
pub(crate) fn defer(listener: &TcpListener) -> io::Result<()> {
    let seconds: libc::c_int = 10;
    let length = libc::socklen_t::try_from(size_of_val(&seconds)).expect("an int has a few bytes");
    // SAFETY: the descriptor is open, and the pointer is to a number of the length given, which outlives the call.
    let refused = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        )
    };
    if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
