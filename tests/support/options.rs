//! Socket options that no crate wraps: an island of unsafe code for `test-peer`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has a listener take a connection into its queue only when data comes, for at least 100 s.
///
/// # Errors
/// What the kernel said.
pub fn defer_accept(listener: &impl AsFd) -> io::Result<()> {
    set(listener, libc::TCP_DEFER_ACCEPT, 100)
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

/// Has a listener hear SYNs only, until [`hear_all`]: its clients end their handshake, and it does not.
///
/// # Errors
/// What the kernel said.
pub fn hear_syns_only(listener: &impl AsFd) -> io::Result<()> {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 2;
    let mut program = [
        libc::sock_filter { code: LOAD_BYTE, jt: 0, jf: 0, k: FLAGS_AT },
        libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: SYN },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: u32::MAX },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 },
    ];
    let length = u16::try_from(program.len()).expect("a short program");
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    set_any(listener, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Ends [`hear_syns_only`].
///
/// # Errors
/// What the kernel said.
pub fn hear_all(listener: &impl AsFd) -> io::Result<()> {
    set_any(listener, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

fn set(socket: &impl AsFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_any(socket, libc::IPPROTO_TCP, option, &value)
}

fn set_any<T>(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).expect("an option has a few bytes");
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the pointer is to a value of the length given, which outlives the call.
    let refused = unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), length) };
    if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
