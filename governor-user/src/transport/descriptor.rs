//! A descriptor that travels with bytes (SCM_RIGHTS). Knows nothing of what it stands for.

use governor_common::wire::socket::Socket;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

/// Writes the first of `bytes`, the descriptor with them, and says how many. A peer that receives bytes only, is not
/// bothered: the kernel closes what it did not take.
///
/// # Errors
/// The socket failed, or the peer has too many descriptors on the way (`ETOOMANYREFS`).
pub(crate) async fn send(socket: &Socket, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let write = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        // There is room for one.
        let held = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(held, "the buffer was made for it");
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    };
    loop {
        match write() {
            Err(Errno::AGAIN) => socket.writable().await?,
            Err(Errno::INTR) => {}
            written => return Ok(written?),
        }
    }
}
