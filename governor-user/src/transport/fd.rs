//! The one unsafe island of the proxy side: descriptors handed to the runtime's event loop.

use rustix::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor that becomes readable. `None` if the event loop refuses it.
pub(super) fn readable(fd: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns a valid descriptor, always gives the same one, and nothing takes it out of the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
}
