//! Tests that count what one kernel does run one at a time on a machine, whichever runner starts them. Knows no test.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

/// The machine's lock; dropping it lets the next test in.
#[derive(Debug)]
pub struct Alone {
    _file: OwnedFd,
}

/// Waits until no other test of this machine holds the lock, in this process or another one, and takes it.
///
/// # Panics
/// The lock file cannot be made or locked.
#[must_use]
pub fn alone() -> Alone {
    let path = std::env::temp_dir().join("governor-kernel-tests.lock");
    // Not through a link that another user may have put there, and readable is enough to lock it.
    let file =
        open(&path, OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    flock(&file, FlockOperation::LockExclusive)
        .unwrap_or_else(|error| panic!("cannot lock {}: {error}", path.display()));
    Alone { _file: file }
}
