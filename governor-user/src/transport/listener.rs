//! Unix sockets with their final mode from the first moment. A socket file that a live process answers on is never
//! removed; only a refused connection proves that it is left over.

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Backlog of every listener of the daemon, as far as the kernel allows; the runtime would ask for less.
pub const BACKLOG: u16 = 1024;

/// A bound socket; its file goes away with it.
#[derive(Debug)]
pub struct BoundSocket {
    /// The listener.
    pub listener: UnixListener,
    /// Removes the file when dropped.
    pub file: SocketFile,
}

/// The file of a bound socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: another file of this name belongs to another daemon. `None` where it could not be looked at.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    /// Whether its name still leads to it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_there() {
            tracing::debug!(path = %self.path.display(), "the socket file is gone or another daemon's, and stays as it is");
        } else if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket file cannot be removed");
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Binds `path` with this mode and, if named, this group.
///
/// # Errors
/// The path is a live instance's socket, is no socket, or cannot be made; the message says which and what to do.
pub fn bind(path: &Path, mode: u32, group: Option<&str>) -> Result<BoundSocket> {
    let shown = path.display();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {shown}"))?;
    }
    remove_leftover(path)?;
    // Owner-only until the group is right, then the configured mode: no other user can connect in between.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.with_context(|| format!("cannot listen on {shown}"))?;
    rustix::net::listen(&listener, BACKLOG.into()).with_context(|| format!("cannot listen on {shown}"))?;
    let bound = BoundSocket { listener, file: SocketFile::of(path) };
    if let Some(name) = group {
        let gid = super::peer::group_id(name).with_context(|| format!("no group named \"{name}\" for {shown}"))?;
        std::os::unix::fs::chown(path, None, Some(gid)).with_context(|| format!("cannot give {shown} to {name}"))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {shown}"))?;
    Ok(bound)
}

/// Whether `path` is a socket whose listener is gone; false if there is nothing.
///
/// # Errors
/// The path is a live instance's socket, is no socket, or cannot be examined.
pub fn is_leftover(path: &Path) -> Result<bool> {
    let shown = path.display();
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    };
    if !kind.is_socket() {
        bail!("{shown} is not a socket: move it away or choose another path");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("another governord is running on {shown}: stop it first or choose another path"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot tell whether {shown} is in use, so it stays")),
    }
}

/// Removes a socket whose listener is gone; says whether there was one.
///
/// # Errors
/// As for [`is_leftover`], or it cannot be removed.
pub fn remove_leftover(path: &Path) -> Result<bool> {
    let leftover = is_leftover(path)?;
    if leftover {
        std::fs::remove_file(path).with_context(|| format!("cannot remove the left-over socket {}", path.display()))?;
    }
    Ok(leftover)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        format!("{:#}", bind(path, 0o600, None).unwrap_err())
    }

    #[tokio::test]
    async fn a_live_instance_is_left_alone_and_a_leftover_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind(&path, 0o600, None).unwrap();
        assert!(refusal(&path).contains("another governord is running"));
        assert!(path.exists(), "the live instance's socket stays");
        drop(first);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener that died left its file");
        bind(&path, 0o600, None).unwrap();
    }

    #[tokio::test]
    async fn a_successors_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind(&path, 0o600, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = bind(&path, 0o600, None).unwrap();
        assert!(!first.file.is_there() && second.file.is_there());
        drop(first);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_regular_file_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, "mine").unwrap();
        assert!(refusal(&path).contains("is not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn the_socket_has_the_mode_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _bound = bind(&path, 0o660, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    }
}
