//! Reading and replacing one file so that neither a crash nor another user can do harm: a reader sees the old or the new
//! content, opens no link, waits for no writer of a FIFO, and trusts only files that no other user could have written.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It has no content.
    #[error("it is empty")]
    Empty,
    /// It has another content than expected.
    #[error("its content is not readable: {0}")]
    Content(String),
    /// It is longer than any that is written here.
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    /// A link, a FIFO, a folder, …
    #[error("it is {0}")]
    Kind(&'static str),
    /// Another user could have written it.
    #[error("it {0}")]
    Owner(NotOurs),
    /// The system refuses to read it.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// Why another user could have written a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// It belongs to another user than root and the daemon's.
    #[error("belongs to uid {0}")]
    Owner(u32),
    /// Its group or everyone may write to it.
    #[error("can be written by other users")]
    Mode,
}

/// Reads a file of at most `most` bytes; `None` where there is none.
///
/// # Errors
/// See [`Damage`].
pub fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Damage> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut content = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > most) {
        return Err(Damage::TooLong(most));
    }
    Ok(Some(content))
}

/// Opens a regular file of ours for reading; `None` where there is none.
///
/// # Errors
/// See [`Damage`].
pub fn open(path: &Path) -> Result<Option<File>, Damage> {
    // NONBLOCK: the open of a FIFO without a writer would wait for one.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Damage::Kind("a symbolic link")),
        Err(Errno::NXIO) => return Err(Damage::Kind("a socket or a device")),
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(Damage::Kind("a folder"));
    }
    if !metadata.is_file() {
        return Err(Damage::Kind("not a regular file"));
    }
    check_owner(&metadata).map_err(Damage::Owner)?;
    Ok(Some(file))
}

/// Whether a path is free, or a folder that no other user can write to.
///
/// # Errors
/// See [`Damage`].
pub fn check_folder(path: &Path) -> Result<(), Damage> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(metadata) if !metadata.is_dir() => Err(Damage::Kind("not a folder")),
        Ok(metadata) => check_owner(&metadata).map_err(Damage::Owner),
    }
}

/// Whether only root and this process's user could have written it.
///
/// # Errors
/// See [`NotOurs`].
pub fn check_owner(metadata: &Metadata) -> Result<(), NotOurs> {
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(NotOurs::Owner(metadata.uid()));
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err(NotOurs::Mode);
    }
    Ok(())
}

/// Replaces a file (mode 0600) so that after a crash or a loss of power it has the old or the new content.
///
/// # Errors
/// The folder cannot be written; the old content stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    // Left by a crash, or created by another user: it is not opened.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        // Before the rename: otherwise a loss of power may leave the new name with no content.
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    if let Err(error) = write() {
        // What of it was written takes room on a full disk.
        fs::remove_file(&beside).ok();
        return Err(error);
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
