//! Every act that needs a right an ordinary process lacks: entering another network namespace, reading other users'
//! `/proc` entries, and duplicating a descriptor of another process. In-process today; one module, so that a privileged
//! helper process can take it over without touching its callers. Knows nothing about sockets' meaning.

use crate::proc::own_namespaces::proc_is_ours;
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    thread,
};

/// Where the calling thread's own network namespace is found.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Why a network namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The way in leads to another namespace by now, or nowhere.
    #[error("the namespace is not reachable any more")]
    Gone,
    /// The rights are missing: `CAP_SYS_ADMIN` over it, or `CAP_SYS_PTRACE` to open the way in.
    #[error("entering needs CAP_SYS_ADMIN and CAP_SYS_PTRACE")]
    Denied,
    /// Anything else.
    #[error("cannot enter the namespace")]
    Other(#[source] io::Error),
    /// The thread is in the other namespace and cannot come back: it must end.
    #[error("cannot return to the own network namespace")]
    Stranded(#[source] io::Error),
}

/// The namespace a thread belongs to and returns to.
#[derive(Debug)]
pub struct Home {
    file: fs::File,
    inode: u64,
}

impl Home {
    /// Takes the calling thread's namespace as its home.
    ///
    /// # Errors
    /// When `/proc` is not mounted or not readable.
    pub fn of_this_thread() -> io::Result<Self> {
        let file = fs::File::open(OWN_NAMESPACE)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode })
    }

    /// Inode number of the home namespace.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Runs `work` inside the namespace `inode` behind `door` and returns to the home namespace. Holds no reference
    /// to the namespace afterwards: an observer must not keep a dead container's network alive.
    pub fn visit<T>(&self, inode: u64, door: &Path, work: impl FnOnce() -> T) -> Result<T, EnterError> {
        if inode == self.inode {
            return Ok(work());
        }
        let target = fs::File::open(door).map_err(classify)?;
        // A process id may have been reused since the door was noted, so the inode decides.
        if target.metadata().map_err(classify)?.ino() != inode {
            return Err(EnterError::Gone);
        }
        move_into_link_name_space(target.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| classify(errno.into()))?;
        drop(target);
        let result = work();
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| EnterError::Stranded(errno.into()))?;
        Ok(result)
    }
}

/// The network namespace of a process or task by its folder below `/proc`, as an inode number.
///
/// # Errors
/// `PermissionDenied` for processes of other users without `CAP_SYS_PTRACE`; `NotFound` when it ended.
pub fn task_namespace(task: &Path) -> io::Result<u64> {
    let link = fs::read_link(task.join("ns/net")).map_err(|error| unless_ended(error, task))?;
    bracketed(link.as_os_str().as_bytes(), b"net:[").ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Calls `each` with the descriptor and inode number of every socket among the descriptors of a process, from the
/// `skipped`th on and of at most `most`, which come in ascending order; returns how many descriptors were looked at.
///
/// # Errors
/// `PermissionDenied` for processes of other users without `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`; `NotFound` when it
/// ended.
pub fn each_socket(process: &Path, skipped: usize, most: usize, mut each: impl FnMut(u32, u64)) -> io::Result<usize> {
    let mut seen = 0;
    let classify = |error| unless_ended(error, process);
    for entry in fs::read_dir(process.join("fd")).map_err(classify)?.skip(skipped).take(most) {
        seen += 1;
        let entry = entry.map_err(classify)?;
        let link = match fs::read_link(entry.path()) {
            Ok(link) => link,
            // The folder may be open to us and what is in it not.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(classify(error)),
            Err(_) => continue,
        };
        let Some(inode) = bracketed(link.as_os_str().as_bytes(), b"socket:[") else { continue };
        if let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            each(descriptor, inode);
        }
    }
    Ok(seen)
}

/// Whether a process holds the socket with this inode by this descriptor.
pub fn holds(process: u32, descriptor: u32, inode: u64) -> bool {
    let link = fs::read_link(format!("/proc/{process}/fd/{descriptor}"));
    link.is_ok_and(|link| bracketed(link.as_os_str().as_bytes(), b"socket:[") == Some(inode))
}

/// The real user of a process by its folder below `/proc`. The folder of one that cannot be dumped belongs to root, whatever user
/// runs it.
///
/// # Errors
/// `NotFound` when it ended.
pub fn user_of(process: &Path) -> io::Result<u32> {
    let owner = fs::metadata(process).map_err(classify_process)?.uid();
    if owner != 0 {
        return Ok(owner);
    }
    let status = fs::read_to_string(process.join("status")).map_err(classify_process)?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().next()?.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How many descriptors a process has open. Newer kernels say it as the size of the folder; the others have it counted.
///
/// # Errors
/// `PermissionDenied` for processes of other users without `CAP_SYS_PTRACE`; `NotFound` when it ended.
pub fn count_descriptors(process: &Path) -> io::Result<u64> {
    let folder = process.join("fd");
    match fs::metadata(&folder)?.len() {
        0 => Ok(u64::try_from(fs::read_dir(folder)?.count()).unwrap_or(u64::MAX)),
        count => Ok(count),
    }
}

/// The mount table of this process.
///
/// # Errors
/// When `/proc` is not mounted or not readable.
pub fn mounts() -> io::Result<String> {
    fs::read_to_string("/proc/self/mountinfo")
}

/// Where `task`'s namespace is entered.
pub fn door_of(task: &Path) -> PathBuf {
    task.join("ns/net")
}

/// A duplicate of another process's descriptor, and the process it is of.
#[derive(Debug)]
pub struct Duplicate {
    /// The same open file; it stays open for the other process's peers as long as this lives, so not for long.
    pub file: OwnedFd,
    /// Readable once the process has ended.
    pub process: OwnedFd,
}

/// Duplicates the descriptor behind which `process` holds the socket with this inode; `None` when it holds none. What the
/// descriptor stands for may have changed since it was looked up: the caller checks.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_PTRACE` over the process; `NotFound` when it ended; `Other` where `/proc` is of
/// another pid namespace.
pub fn duplicate_socket(process: u32, inode: u64) -> io::Result<Option<Duplicate>> {
    // `process` is a number of `/proc`, `pidfd_open` takes one of this process's pid namespace.
    if !proc_is_ours() {
        return Err(io::Error::other("/proc shows another pid namespace than governord's: mount its own there"));
    }
    let ended = || io::Error::from(io::ErrorKind::NotFound);
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(ended)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| classify_process(errno.into()))?;
    let folder = fs::read_dir(format!("/proc/{process}/fd")).map_err(classify_process)?;
    for entry in folder {
        let entry = entry.map_err(classify_process)?;
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        if bracketed(link.as_os_str().as_bytes(), b"socket:[") != Some(inode) {
            continue;
        }
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
            Ok(file) => return Ok(Some(Duplicate { file, process: handle })),
            // Closed since it was listed; the process may hold it twice.
            Err(Errno::BADF) => {}
            Err(errno) => return Err(classify_process(errno.into())),
        }
    }
    Ok(None)
}

/// When a process started, in clock ticks since boot: with its id, which process it is.
///
/// # Errors
/// `NotFound` when it ended.
pub fn started(process: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).map_err(classify_process)?;
    // The command's name comes second, in parentheses, and may hold anything.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    fields.and_then(|mut rest| rest.nth(19)?.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// `net.core.somaxconn` of a network namespace, before and after it was set to `value`, both as the kernel says; it is set
/// only if it is as `expected`. Other threads stay where they are: one is made for it and ends.
///
/// # Errors
/// The namespace cannot be entered, or the setting not written (read-only `/proc/sys`).
pub fn set_somaxconn(namespace: OwnedFd, value: u32, expected: Option<u32>) -> io::Result<(u32, u32)> {
    const SETTING: &str = "/proc/sys/net/core/somaxconn";
    let read = || -> io::Result<u32> {
        let text = fs::read_to_string(SETTING)?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    };
    let visit = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        drop(namespace);
        let before = read()?;
        if expected.is_some_and(|expected| expected != before) {
            return Ok((before, before));
        }
        fs::write(SETTING, value.to_string())?;
        Ok((before, read()?))
    };
    let thread = thread::Builder::new().name("netns-visit".to_owned()).spawn(visit)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that entered the namespace panicked")))
}

/// The number in `prefix[number]`, where `prefix` includes the opening bracket.
fn bracketed(text: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(prefix)?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A process that ended while it was asked about is not found, whichever way the kernel says so.
fn classify_process(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::SRCH | Errno::NOENT) => io::ErrorKind::NotFound.into(),
        _ => error,
    }
}

/// As `classify_process`, for what hangs from the folder of a process or task: of one that ends between the look-up of
/// a name there and its use, the kernel says that access is denied. Then the folder is gone too.
pub fn unless_ended(error: io::Error, folder: &Path) -> io::Error {
    let is_gone = || fs::symlink_metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if error.kind() == io::ErrorKind::PermissionDenied && is_gone() {
        return io::ErrorKind::NotFound.into();
    }
    classify_process(error)
}

fn classify(error: io::Error) -> EnterError {
    match Errno::from_io_error(&error) {
        // ESRCH: the process ended while its entry was being opened.
        Some(Errno::NOENT | Errno::SRCH) => EnterError::Gone,
        Some(Errno::ACCESS | Errno::PERM) => EnterError::Denied,
        _ => EnterError::Other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_links_name_an_inode() {
        assert_eq!(bracketed(b"socket:[42]", b"socket:["), Some(42));
        assert_eq!(bracketed(b"socket:[42", b"socket:["), None);
        assert_eq!(bracketed(b"socket:[-1]", b"socket:["), None);
        assert_eq!(bracketed(b"pipe:[42]", b"socket:["), None);
    }

    #[test]
    fn what_is_denied_of_a_process_that_has_ended_is_not_found() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(unless_ended(denied(), Path::new("/proc/self")).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(unless_ended(denied(), Path::new("/proc/self/task/0")).kind(), io::ErrorKind::NotFound);
        assert_eq!(unless_ended(Errno::SRCH.into(), Path::new("/proc/self")).kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_process_is_told_from_a_later_one_by_its_start() {
        let started = started(std::process::id()).unwrap();
        assert!(started > 0);
        assert_eq!(crate::proc::privileged::started(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_home_namespace_needs_no_door() {
        let home = Home::of_this_thread().unwrap();
        assert_eq!(home.visit(home.inode(), Path::new("/nonexistent"), || 7).unwrap(), 7);
    }

    #[test]
    fn a_door_that_leads_elsewhere_is_refused() {
        let home = Home::of_this_thread().unwrap();
        let result = home.visit(home.inode() + 1, Path::new(OWN_NAMESPACE), || 7);
        assert!(matches!(result, Err(EnterError::Gone)));
    }
}
