//! One walk over `/proc`: which network namespaces tasks live in and which processes hold the listeners. It takes
//! milliseconds to a second on a full host, so it runs on a thread of its own and never delays a tick; its answers are
//! as old as the walk.

use super::{netns::Door, privileged};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Descriptors and tasks looked at in one walk.
const MOST_ENTRIES: usize = 1_000_000;
/// Processes named for one listener: a pre-forking server holds it in every worker.
const MOST_HOLDERS: usize = 64;
/// Ways into one namespace that are remembered.
const MOST_DOORS: usize = 4;

/// What one walk found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Namespaces by inode number, with ways in.
    pub(crate) namespaces: BTreeMap<u64, Vec<Door>>,
    /// Processes by the wanted socket inodes, ascending.
    pub(crate) holders: BTreeMap<u64, Vec<u32>>,
    /// Processes whose entries could not be read for want of rights.
    pub(crate) unreadable: usize,
    /// The walk ended early, at its bound.
    pub(crate) truncated: bool,
    /// How long it took.
    pub(crate) took: Duration,
}

/// The walking thread. One walk at a time; dropping it ends the thread after the walk it is in.
#[derive(Debug)]
pub(crate) struct Walker {
    wanted: mpsc::Sender<Arc<BTreeSet<u64>>>,
    walks: mpsc::Receiver<Walk>,
    busy: bool,
}

impl Walker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (wanted, requests) = mpsc::channel::<Arc<BTreeSet<u64>>>();
        let (answers, walks) = mpsc::channel();
        thread::Builder::new().name("governor-walk".to_owned()).spawn(move || {
            for inodes in requests {
                if answers.send(walk(Path::new("/proc"), &inodes)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { wanted, walks, busy: false })
    }

    /// Asks for a walk that also looks for the holders of `inodes`; `false` while one is under way.
    pub(crate) fn ask(&mut self, inodes: BTreeSet<u64>) -> bool {
        if self.busy {
            return false;
        }
        self.busy = self.wanted.send(Arc::new(inodes)).is_ok();
        self.busy
    }

    /// The walk asked for, once it is done.
    pub(crate) fn take(&mut self) -> Option<Walk> {
        let walk = self.walks.try_recv().ok()?;
        self.busy = false;
        Some(walk)
    }

    /// As [`Self::take`], but waits for it. For the start, when nothing else is to be done.
    pub(crate) fn wait(&mut self) -> Option<Walk> {
        let walk = self.walks.recv().ok()?;
        self.busy = false;
        Some(walk)
    }
}

/// Walks `proc` now, on the calling thread.
pub(crate) fn walk(proc: &Path, inodes: &BTreeSet<u64>) -> Walk {
    let begun = Instant::now();
    let mut walk = Walk::default();
    let mut budget = MOST_ENTRIES;
    for (mount_point, inode) in bound_namespaces(&privileged::mounts().unwrap_or_default()) {
        add_door(&mut walk.namespaces, inode, Door::Mount(mount_point));
    }
    let Ok(processes) = fs::read_dir(proc) else { return walk };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let folder = process.path();
        let denied = visit(&folder, pid, inodes, &mut walk, &mut budget);
        walk.unreadable += usize::from(denied);
        if budget == 0 {
            walk.truncated = true;
            break;
        }
    }
    for pids in walk.holders.values_mut() {
        pids.sort_unstable();
        pids.truncate(MOST_HOLDERS);
    }
    walk.took = begun.elapsed();
    walk
}

/// Adds what one process shows; `true` when it shows nothing for want of rights. A process that ends meanwhile is no
/// error.
fn visit(folder: &Path, pid: u32, inodes: &BTreeSet<u64>, walk: &mut Walk, budget: &mut usize) -> bool {
    // Threads may live in other namespaces than their process.
    for task in fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
        *budget = budget.saturating_sub(1);
        match privileged::task_namespace(&task.path()) {
            Ok(inode) => add_door(&mut walk.namespaces, inode, Door::Task(task.path())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return true,
            Err(_) => {}
        }
    }
    if inodes.is_empty() {
        return false;
    }
    let mut held = BTreeSet::new();
    let looked_at = privileged::each_socket(folder, |inode| {
        if inodes.contains(&inode) {
            held.insert(inode);
        }
    });
    for inode in held {
        walk.holders.entry(inode).or_default().push(pid);
    }
    match looked_at {
        Ok(count) => {
            *budget = budget.saturating_sub(count);
            false
        }
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn add_door(namespaces: &mut BTreeMap<u64, Vec<Door>>, inode: u64, door: Door) {
    let doors = namespaces.entry(inode).or_default();
    if doors.len() < MOST_DOORS {
        doors.push(door);
    }
}

/// Namespaces kept alive by a mount (`ip netns add`, container runtimes), by `/proc/self/mountinfo`.
fn bound_namespaces(mounts: &str) -> impl Iterator<Item = (PathBuf, u64)> {
    mounts.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        if back.split(' ').next() != Some("nsfs") {
            return None;
        }
        let mut fields = front.split(' ').skip(3);
        let inode = fields.next()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()?;
        Some((super::cgroup::unescape(fields.next()?), inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::unix::fs::MetadataExt};

    #[test]
    fn a_walk_finds_the_own_namespace_and_the_holder_of_a_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&listener).unwrap().st_ino;
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let found = walk(Path::new("/proc"), &BTreeSet::from([inode]));
        assert!(found.namespaces.contains_key(&own));
        assert_eq!(found.holders.get(&inode), Some(&vec![std::process::id()]));
    }

    #[test]
    fn bind_mounted_namespaces_are_read_from_the_mount_table() {
        let table = "26 1 0:4 net:[4026532001] /run/netns/blue rw shared:2 - nsfs nsfs rw\n\
                     27 1 0:4 mnt:[4026532002] /run/mnt rw - nsfs nsfs rw\n";
        let found: Vec<_> = bound_namespaces(table).collect();
        assert_eq!(found, vec![("/run/netns/blue".into(), 4_026_532_001)]);
    }
}
