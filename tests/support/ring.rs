//! Accepting through io_uring: an island of unsafe code for `test-peer`, because the ring takes raw descriptors.

use io_uring::{IoUring, opcode, types};
use std::{
    io,
    net::TcpListener,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

/// Whether this kernel has io_uring and lets it be used.
#[must_use]
pub fn is_available() -> bool {
    IoUring::new(1).is_ok()
}

/// Accepts `count` connections, one request after the other.
///
/// # Errors
/// What the kernel said.
pub fn accept(listener: &TcpListener, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut ring = IoUring::new(1)?;
    (0..count).map(|_| accept_one(&mut ring, listener)).collect()
}

fn accept_one(ring: &mut IoUring, listener: &TcpListener) -> io::Result<OwnedFd> {
    let request = opcode::Accept::new(types::Fd(listener.as_raw_fd()), ptr::null_mut(), ptr::null_mut())
        .flags(libc::SOCK_CLOEXEC)
        .build();
    // SAFETY: the request names no memory, and the listener outlives it: the ring is waited for below.
    unsafe { ring.submission().push(&request) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let outcome = ring.completion().next().ok_or(io::ErrorKind::UnexpectedEof)?.result();
    if outcome < 0 {
        return Err(io::Error::from_raw_os_error(-outcome));
    }
    // SAFETY: the kernel has just made this descriptor for the ring's caller, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(outcome) })
}
