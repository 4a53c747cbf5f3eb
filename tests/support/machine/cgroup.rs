//! cgroup-v2 folders for the processes a test watches, removed on drop.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// One folder right below the v2 root.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    path: String,
    id: u64,
}

impl Cgroup {
    /// Makes `governor-test-<pid>-<name>`.
    ///
    /// # Errors
    /// When no cgroup2 is mounted or it is not writable.
    pub fn create(name: &str) -> io::Result<Self> {
        let path = format!("/governor-test-{}-{name}", std::process::id());
        let folder = root()?.join(&path[1..]);
        fs::create_dir(&folder)?;
        let id = fs::metadata(&folder)?.ino();
        Ok(Self { folder, path, id })
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn add(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("a running process can be moved");
    }

    /// Where it is mounted.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its id: the folder's inode number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its path below the v2 root, with a leading slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was just reaped may be counted a moment longer.
        for _ in 0..100 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(20)),
                Ok(()) | Err(_) => return,
            }
        }
    }
}

/// Where cgroup2 is mounted.
///
/// # Errors
/// `NotFound` where it is not.
pub fn root() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&"cgroup2"))
        .and_then(|fields| fields.get(1).map(|path| Path::new(path).to_owned()))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup2 is mounted"))
}
