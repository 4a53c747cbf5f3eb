//! The walk itself, on the calling thread: tasks for their namespaces, then descriptors for the sockets that are
//! sought. Holders that are known are verified first, by one look each. Then come the processes that live in a
//! namespace of a sought socket, as far as the first descriptors of each; and all others only for sockets without a
//! known holder.

use crate::proc::privileged;
use crate::proc::walk::Door;
use crate::proc::walk::Holder;
use crate::proc::walk::LeftOut;
use crate::proc::walk::MOST_DOORS;
use crate::proc::walk::MOST_HOLDERS;
use crate::proc::walk::Sought;
use crate::proc::walk::Walk;
use crate::proc::walk::budget::{Budget, LIMITS, Limits};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

/// One process below `/proc`.
struct Process {
    pid: u32,
    folder: PathBuf,
    /// Its real user, for the budget.
    user: u32,
    /// Namespaces of its tasks.
    namespaces: BTreeSet<u64>,
    /// Its entries could not be read for want of rights.
    denied: bool,
}

/// Walks `proc` now.
pub fn walk(proc: &Path, sought: &Sought) -> Walk {
    walk_within(proc, sought, LIMITS)
}

pub(super) fn walk_within(proc: &Path, sought: &Sought, limits: Limits) -> Walk {
    let begun = Instant::now();
    let mut walk = Walk { searched: !sought.sockets.is_empty(), ..Walk::default() };
    match privileged::mounts() {
        Ok(mounts) => {
            for (mount_point, inode) in crate::proc::walk::bound_namespaces(&mounts) {
                add_door(&mut walk.namespaces, inode, Door::Mount(mount_point));
            }
        }
        Err(error) => walk.failed = Some(format!("the mount table cannot be read: {error}")),
    }
    match processes(proc, sought) {
        Ok(mut processes) => {
            let mut tasks = Budget::new(limits);
            processes.iter_mut().for_each(|process| visit_tasks(process, &mut walk, &mut tasks));
            walk.looked_at = tasks.spent();
            if walk.searched {
                let mut search = Search { sought, limits, budget: Budget::new(limits), walk: &mut walk };
                search.run(&mut processes);
            }
            walk.unreadable = processes.iter().filter(|process| process.denied).count();
        }
        Err(error) => walk.failed = Some(format!("/proc cannot be read: {error}")),
    }
    walk.took = begun.elapsed();
    walk
}

/// All processes, in turns: one of each user, then the next of each, so that the bound for all cuts off no user. A
/// user's turn goes on after the process where it was cut off the last time.
fn processes(proc: &Path, sought: &Sought) -> io::Result<Vec<Process>> {
    let mut by_user: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let folder = entry.path();
        // One that has ended by now shows nothing.
        let Ok(user) = privileged::user_of(&folder) else { continue };
        let process = Process { pid, folder, user, namespaces: BTreeSet::new(), denied: false };
        by_user.entry(user).or_default().push(process);
    }
    let mut turns: Vec<(usize, u32, Process)> = Vec::new();
    for (user, mut processes) in by_user {
        let after = sought.after.get(&user).copied().unwrap_or(0);
        processes.sort_unstable_by_key(|process| (process.pid <= after, process.pid));
        turns.extend(processes.into_iter().enumerate().map(|(turn, process)| (turn, user, process)));
    }
    turns.sort_by_key(|(turn, user, _)| (*turn, *user));
    Ok(turns.into_iter().map(|(.., process)| process).collect())
}

/// Threads may live in other namespaces than their process.
fn visit_tasks(process: &mut Process, walk: &mut Walk, budget: &mut Budget) {
    let tasks = match fs::read_dir(process.folder.join("task")) {
        Ok(tasks) => tasks,
        Err(error) => return note(process, walk, &privileged::unless_ended(error, &process.folder)),
    };
    let mut seen = 0;
    for task in tasks.flatten() {
        if seen >= budget.left(process.user) {
            leave_out(process, walk);
            break;
        }
        seen += 1;
        match privileged::task_namespace(&task.path()) {
            Ok(inode) => {
                process.namespaces.insert(inode);
                add_door(&mut walk.namespaces, inode, Door::Task(task.path()));
            }
            Err(error) => {
                note(process, walk, &error);
                break;
            }
        }
    }
    budget.spend(process.user, seen);
}

/// Looks for sockets.
struct Search<'a> {
    sought: &'a Sought,
    limits: Limits,
    budget: Budget,
    walk: &'a mut Walk,
}

impl Search<'_> {
    fn run(&mut self, processes: &mut [Process]) {
        self.verify_known();
        let namespaces: BTreeSet<u64> = self.sought.sockets.values().copied().collect();
        let is_candidate =
            |process: &Process| process.namespaces.is_empty() || !process.namespaces.is_disjoint(&namespaces);
        let (first, all) = (self.limits.first_look, usize::MAX);
        for process in processes.iter_mut().filter(|process| is_candidate(process)) {
            self.look(process, 0, first);
        }
        if !self.is_complete() {
            for process in processes.iter_mut().filter(|process| is_candidate(process)) {
                self.look(process, first, all);
            }
        }
        if !self.is_complete() {
            // A socket need not be held where it was made: an activated service gets it from its supervisor.
            for process in processes.iter_mut().filter(|process| !is_candidate(process)) {
                self.look(process, 0, all);
            }
        }
        for holders in self.walk.holders.values_mut() {
            holders.sort_unstable();
            holders.dedup_by_key(|holder| holder.pid);
            holders.truncate(MOST_HOLDERS);
        }
        self.walk.looked_at += self.budget.spent();
    }

    fn is_complete(&self) -> bool {
        self.sought.sockets.keys().all(|inode| self.walk.holders.contains_key(inode))
    }

    /// One look for each holder that is known; at most [`MOST_HOLDERS`] for each socket.
    fn verify_known(&mut self) {
        for (inode, holders) in &self.sought.known {
            for holder in holders.iter().filter(|_| self.sought.sockets.contains_key(inode)) {
                self.walk.looked_at += 1;
                if privileged::holds(holder.pid, holder.descriptor, *inode) {
                    self.walk.holders.entry(*inode).or_default().push(*holder);
                }
            }
        }
    }

    /// Looks at the descriptors of a process from the `skipped`th on, at most `most` and as many as its user has left.
    fn look(&mut self, process: &mut Process, skipped: usize, most: usize) {
        if process.denied {
            return;
        }
        let allowed = most.min(self.budget.left(process.user));
        if allowed == 0 {
            return leave_out(process, self.walk);
        }
        let (sockets, holders, pid) = (&self.sought.sockets, &mut self.walk.holders, process.pid);
        let looked = privileged::each_socket(&process.folder, skipped, allowed, |descriptor, inode| {
            if sockets.contains_key(&inode) {
                holders.entry(inode).or_default().push(Holder { pid, descriptor });
            }
        });
        match looked {
            Ok(seen) => {
                self.budget.spend(process.user, seen);
                if seen == allowed && allowed < most {
                    leave_out(process, self.walk);
                }
            }
            Err(error) => note(process, self.walk, &error),
        }
    }
}

fn leave_out(process: &Process, walk: &mut Walk) {
    let first = || LeftOut { after: process.pid.saturating_sub(1), pids: BTreeSet::new() };
    walk.left_out.entry(process.user).or_insert_with(first).pids.insert(process.pid);
}

/// What an error says of a process. One that ended meanwhile is none.
fn note(process: &mut Process, walk: &mut Walk, error: &io::Error) {
    if error.kind() == io::ErrorKind::PermissionDenied {
        process.denied = true;
    } else if error.kind() != io::ErrorKind::NotFound {
        walk.failed.get_or_insert_with(|| format!("processes cannot be looked at: {error}"));
    }
}

fn add_door(namespaces: &mut BTreeMap<u64, Vec<Door>>, inode: u64, door: Door) {
    let doors = namespaces.entry(inode).or_default();
    if doors.len() < MOST_DOORS {
        doors.push(door);
    }
}
