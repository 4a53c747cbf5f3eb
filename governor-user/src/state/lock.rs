//! A lock on a folder that ends with its process, however that ends.

use anyhow::{Context, Result, bail};
use governor_kernel::proc::locks::holder;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Locks an open folder for as long as `handle` is open. No file is made, so that a full or read-only disk is no obstacle.
pub(super) fn take(handle: &File, path: &Path) -> Result<()> {
    match flock(handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let process = holder(handle).map_or_else(String::new, |pid| format!(" (process {pid})"));
            let shown = path.display();
            bail!("another governord is running on {shown}{process}: stop it first or choose another daemon.state_dir")
        }
        Err(errno) => Err(errno).with_context(|| format!("cannot lock the state folder {}", path.display())),
    }
}
