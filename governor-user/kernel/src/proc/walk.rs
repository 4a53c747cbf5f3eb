//! Walks over `/proc`: which network namespaces tasks live in and which processes hold the listeners. They run on a thread of
//! their own and never delay a tick; their answers are as old as the walk. `search` walks, `budget` bounds it.

mod budget;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use budget::LIMITS;
pub use search::walk;

use crate::proc::netns::Door;
use crate::proc::preflight;
use governor_observation::{LeftOutProcesses, ProcessWalk};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Processes named for one listener: a pre-forking server holds it in every worker.
const MOST_HOLDERS: usize = 64;
/// Ways into one namespace that are remembered.
const MOST_DOORS: usize = 4;

/// A process and the descriptor by which it holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// The lowest descriptor that was found.
    pub descriptor: u32,
}

/// What a walk is for, beside namespaces.
#[derive(Clone, Debug, Default)]
pub struct Sought {
    /// Sockets whose holders are sought, by inode number, and the namespace of each. With none no descriptor is looked at.
    pub sockets: BTreeMap<u64, u64>,
    /// Holders of them as known before.
    pub known: BTreeMap<u64, Vec<Holder>>,
    /// By user: the process after which the last walk was cut off.
    pub after: BTreeMap<u32, u32>,
}

/// Processes of one user that a walk left out because the user's budget was used up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The walk ended after this process.
    pub after: u32,
    /// They.
    pub pids: BTreeSet<u32>,
}

/// What one walk found.
#[derive(Debug, Default)]
pub struct Walk {
    /// Namespaces by inode number, with ways in.
    pub(crate) namespaces: BTreeMap<u64, Vec<Door>>,
    /// Processes by the sought socket inodes, ascending.
    pub holders: BTreeMap<u64, Vec<Holder>>,
    /// Holders were looked for.
    pub searched: bool,
    /// Processes whose entries could not be read for want of rights.
    pub unreadable: usize,
    /// Processes that were not looked at, or not at all of their descriptors, by user.
    pub left_out: BTreeMap<u32, LeftOut>,
    /// Tasks and descriptors that were looked at.
    pub looked_at: usize,
    /// Why the walk is not to be believed where it found nothing.
    pub failed: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl From<&Walk> for ProcessWalk {
    fn from(walk: &Walk) -> Self {
        let left_out =
            |(user, left_out): (&u32, &LeftOut)| LeftOutProcesses { uid: *user, processes: left_out.pids.len() };
        Self {
            looked_at: walk.looked_at,
            seconds: walk.took.as_secs_f64(),
            unreadable: walk.unreadable,
            unreadable_reason: (walk.unreadable > 0).then(preflight::holders_obstacle),
            left_out: walk.left_out.iter().map(left_out).collect(),
        }
    }
}

/// The walking thread. One walk at a time; dropping it ends the thread after the walk it is in.
#[derive(Debug)]
pub(crate) struct Walker {
    sought: mpsc::Sender<Sought>,
    walks: mpsc::Receiver<Walk>,
    busy: bool,
}

impl Walker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sought, requests) = mpsc::channel::<Sought>();
        let (answers, walks) = mpsc::channel();
        thread::Builder::new().name("proc-walk".to_owned()).spawn(move || {
            for sought in requests {
                if answers.send(walk(Path::new("/proc"), &sought)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { sought, walks, busy: false })
    }

    /// Whether a walk is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Asks for a walk; `false` while one is under way.
    pub(crate) fn ask(&mut self, sought: Sought) -> bool {
        if self.busy {
            return false;
        }
        self.busy = self.sought.send(sought).is_ok();
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

/// Namespaces kept alive by a mount (`ip netns add`, container runtimes), by `/proc/self/mountinfo`.
fn bound_namespaces(mounts: &str) -> impl Iterator<Item = (PathBuf, u64)> {
    mounts.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        if back.split(' ').next() != Some("nsfs") {
            return None;
        }
        let mut fields = front.split(' ').skip(3);
        let inode = fields.next()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()?;
        Some((crate::proc::cgroup::unescape(fields.next()?), inode))
    })
}
