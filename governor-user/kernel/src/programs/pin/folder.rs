//! The folder of pins: who may use it and what lies in it. Taken by one process at a time by a lock that ends with the
//! process, however it ends. Knows names of files, nothing of what they stand for.

use crate::proc::locks::holder;
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Made last and removed first: without it the rest is half made.
pub(super) const MANIFEST: &str = "manifest";
/// Prefixes of all other files, in the order in which they are removed: what counts goes before where it counts.
const KINDS: [&str; 3] = ["link_", "program_", "map_"];
/// `BPF_FS_MAGIC`.
const BPFFS: i128 = 0xcafe_4a11;
/// Attempts to lock a folder that its last owner may be removing.
const ATTEMPTS: usize = 8;

/// Why the folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The place is not on a BPF file system.
    #[error("{} is not on a bpffs: mount one (mount -t bpf bpf /sys/fs/bpf) or name another folder", .0.display())]
    NoBpffs(PathBuf),
    /// A live process has it.
    #[error("{} is in use by {}", .0.display(), .1.map_or("another governord".to_owned(), |pid| format!("process {pid}")))]
    Held(PathBuf, Option<u32>),
    /// The system refused.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A folder that this process has taken. It is free again when this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _handle: File,
}

impl Folder {
    /// Takes `path`, making it unless it is there. Its parent must be there and on a bpffs.
    ///
    /// # Errors
    /// See [`FolderError`].
    pub fn take(path: &Path) -> Result<Self, FolderError> {
        let parent = path.parent().unwrap_or(path);
        for _ in 0..ATTEMPTS {
            let place = if path.is_dir() { path } else { parent };
            if !is_bpffs(place) {
                return Err(FolderError::NoBpffs(path.to_owned()));
            }
            match DirBuilder::new().mode(0o700).create(path) {
                Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                    return Err(FolderError::Io { doing: "make", path: path.to_owned(), source });
                }
                Ok(()) | Err(_) => {}
            }
            if let Some(folder) = Self::lock(path)? {
                return Ok(folder);
            }
        }
        Err(FolderError::Held(path.to_owned(), None))
    }

    /// Takes `path` if it is there; `None` if it is not, or is on another file system, where nothing can be pinned.
    ///
    /// # Errors
    /// As for [`Self::take`].
    pub fn existing(path: &Path) -> Result<Option<Self>, FolderError> {
        if path.is_dir() && is_bpffs(path) { Self::lock(path) } else { Ok(None) }
    }

    /// `None` when the folder is gone, or another one by now.
    fn lock(path: &Path) -> Result<Option<Self>, FolderError> {
        let io = |doing, source| FolderError::Io { doing, path: path.to_owned(), source };
        let handle = match File::open(path) {
            Ok(handle) => handle,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io("open", source)),
        };
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(FolderError::Held(path.to_owned(), holder(&handle))),
            Err(errno) => return Err(io("lock", errno.into())),
        }
        let ours = handle.metadata().map_err(|source| io("look at", source))?.ino();
        let same = fs::metadata(path).is_ok_and(|there| there.ino() == ours);
        Ok(same.then(|| Self { path: path.to_owned(), _handle: handle }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of everything of ours in it, sorted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self) -> Result<Vec<String>, FolderError> {
        let io = |source| FolderError::Io { doing: "read", path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io)? {
            let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
            if name == MANIFEST || KINDS.iter().any(|kind| name.starts_with(kind)) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes everything of ours, so that what is attached by nothing else detaches; the names of what was removed.
    ///
    /// # Errors
    /// At the first file that cannot be removed.
    pub fn clear(&self) -> Result<Vec<String>, FolderError> {
        let mut names = self.names()?;
        names.sort_by_key(|name| KINDS.iter().position(|kind| name.starts_with(kind)).map_or(0, |place| place + 1));
        for name in &names {
            let path = self.path.join(name);
            fs::remove_file(&path).map_err(|source| FolderError::Io { doing: "remove", path, source })?;
        }
        Ok(names)
    }

    /// Removes everything of ours and the folder too, unless it holds something else; the names of what was removed.
    ///
    /// # Errors
    /// As for [`Self::clear`].
    pub fn remove(self) -> Result<Vec<String>, FolderError> {
        let names = self.clear()?;
        // It has a file or mount of another program: then it stays.
        drop(fs::remove_dir(&self.path));
        Ok(names)
    }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|about| i128::from(about.f_type) == BPFFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_elsewhere_than_on_a_bpffs_is_refused_and_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("governor");
        assert!(matches!(Folder::take(&path), Err(FolderError::NoBpffs(_))));
        assert!(!path.exists());
        assert!(matches!(Folder::existing(&path), Ok(None)));
        assert!(matches!(Folder::existing(folder.path()), Ok(None)));
    }
}
