//! Socket options that no crate wraps: an island of unsafe code for `test-peer`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has a listener take a connection into its queue only when data comes, for at least a second.
///
/// # Errors
/// What the kernel said.
pub fn defer_accept(listener: &impl AsFd) -> io::Result<()> {
    set(listener, libc::TCP_DEFER_ACCEPT, 1)
}

/// Has a listener take data with a SYN, from so many connections at a time that are not established yet.
///
/// # Errors
/// What the kernel said.
pub fn fast_open(listener: &impl AsFd, most: i32) -> io::Result<()> {
    set(listener, libc::TCP_FASTOPEN, most)
}

/// Has a socket that will connect send its first data with the SYN.
///
/// # Errors
/// What the kernel said.
pub fn fast_open_connect(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::TCP_FASTOPEN_CONNECT, 1)
}

fn set(socket: &impl AsFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("an int has a few bytes");
    // SAFETY: the descriptor is open, and the pointer is to a number of the length given, which outlives the call.
    let refused = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const value).cast(), length)
    };
    if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
