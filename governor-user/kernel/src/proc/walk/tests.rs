//! Walks over the real `/proc`, and over trees that look like it: what costs what, and who pays.

use super::*;
use crate::proc::walk::budget::Limits;
use crate::proc::walk::search::walk_within;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};
use std::{fs, io::Read, process::Command};
use tempfile::TempDir;

const HERE: u64 = 4_026_531_840;
const ELSEWHERE: u64 = 4_026_531_999;
const LIMITS: Limits = Limits { per_user: 100, all: 250, first_look: 10 };

/// A tree that looks like `/proc`.
struct Proc(TempDir);

impl Proc {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A process with one task, and descriptors for these inodes from 0 on. Its user stands in its status only, as that of a
    /// process that cannot be dumped.
    fn process(&self, pid: u32, user: u32, netns: u64, inodes: impl IntoIterator<Item = u64>) {
        let folder = self.0.path().join(pid.to_string());
        let task = folder.join("task").join(pid.to_string());
        fs::create_dir_all(task.join("ns")).unwrap();
        symlink(format!("net:[{netns}]"), task.join("ns/net")).unwrap();
        fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n")).unwrap();
        fs::create_dir(folder.join("fd")).unwrap();
        for (descriptor, inode) in inodes.into_iter().enumerate() {
            symlink(format!("socket:[{inode}]"), folder.join("fd").join(descriptor.to_string())).unwrap();
        }
    }

    fn walk(&self, sought: &Sought) -> Walk {
        walk_within(self.0.path(), sought, LIMITS)
    }
}

fn sought(inodes: &[u64]) -> Sought {
    Sought { sockets: inodes.iter().map(|inode| (*inode, HERE)).collect(), ..Sought::default() }
}

fn pids(walk: &Walk, inode: u64) -> Vec<u32> {
    walk.holders.get(&inode).into_iter().flatten().map(|holder| holder.pid).collect()
}

/// Folders of another owner than root belong to one user, whatever their status says.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIP: several users need a tree that belongs to root");
    }
    root
}

#[test]
fn a_walk_finds_the_own_namespace_and_the_holder_of_a_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let inode = rustix::fs::fstat(&listener).unwrap().st_ino;
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
    let found = walk(Path::new("/proc"), &Sought { sockets: [(inode, own)].into(), ..Sought::default() });
    assert!(found.namespaces.contains_key(&own));
    assert_eq!(pids(&found, inode), [std::process::id()]);
    assert_eq!(found.failed, None);
}

#[test]
fn a_user_with_many_descriptors_pays_alone() {
    if !is_root() {
        return;
    }
    let proc = Proc::new();
    for pid in 100..150 {
        proc.process(pid, 1000, HERE, 10_000..10_200);
    }
    proc.process(900, 33, HERE, [1, 2, 7]);
    let found = proc.walk(&sought(&[7]));
    assert_eq!(pids(&found, 7), [900]);
    // 51 tasks, 3 descriptors, and what one user may cost.
    assert_eq!(found.looked_at, 51 + 3 + LIMITS.per_user);
    assert_eq!(found.left_out.keys().collect::<Vec<_>>(), [&1000]);
    assert_eq!(found.left_out[&1000].pids.len(), 40, "ten had a first look");
}

#[test]
fn a_process_that_was_left_out_has_its_turn_in_the_next_walk() {
    if !is_root() {
        return;
    }
    let proc = Proc::new();
    for pid in 100..130 {
        proc.process(pid, 1000, HERE, (10_000..10_009).chain([u64::from(pid)]));
    }
    let mut sought = sought(&[129]);
    let mut walks = 0;
    loop {
        let found = proc.walk(&sought);
        walks += 1;
        if pids(&found, 129) == [129] {
            break;
        }
        assert!(walks < 4, "ten processes a walk");
        sought.after = found.left_out.iter().map(|(user, left_out)| (*user, left_out.after)).collect();
    }
    assert_eq!(walks, 3);
}

#[test]
fn a_holder_that_is_known_costs_one_look() {
    let proc = Proc::new();
    proc.process(100, 0, ELSEWHERE, 1..9);
    let mut sought = sought(&[7]);
    sought.known.insert(7, vec![Holder { pid: std::process::id(), descriptor: 0 }]);
    let found = proc.walk(&sought);
    assert_eq!(pids(&found, 7), [100], "what has changed is searched for again");
    assert_eq!(found.looked_at, 1 + 1 + 8);
}

#[test]
fn processes_of_other_namespaces_are_looked_at_last() {
    let proc = Proc::new();
    proc.process(100, 0, ELSEWHERE, [1, 2, 3, 4]);
    proc.process(101, 0, HERE, [5, 7]);
    assert_eq!(proc.walk(&sought(&[7])).looked_at, 2 + 2);
    let found = proc.walk(&sought(&[3]));
    assert_eq!((pids(&found, 3), found.looked_at), (vec![100], 2 + 2 + 4));
    assert_eq!(proc.walk(&sought(&[])).looked_at, 2, "without sockets only tasks");
}

#[test]
fn what_cannot_be_walked_is_not_taken_for_empty() {
    let found = walk(Path::new("/nonexistent"), &sought(&[7]));
    assert!(found.failed.is_some_and(|reason| reason.contains("No such file")));
}

#[test]
fn a_million_descriptors_of_one_process_cost_a_first_look() {
    // As many as the limit of this machine allows; the listener has a low number, as servers' have.
    let script = "import os, resource, socket, sys\n\
                  most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 20000)\n\
                  resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
                  bound = socket.create_server(('127.0.0.1', 0))\n\
                  null = os.open('/dev/null', os.O_RDONLY)\n\
                  held = [os.dup(null) for _ in range(most - 100)]\n\
                  print(os.fstat(bound.fileno()).st_ino, len(held), flush=True)\n\
                  sys.stdin.read()\n";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = child.stdout.take().unwrap();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    let (inode, held) = line.split_once(' ').unwrap();
    let (inode, held): (u64, usize) = (inode.parse().unwrap(), held.parse().unwrap());
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
    let sought = Sought { sockets: [(inode, own)].into(), ..Sought::default() };
    let without = walk(Path::new("/proc"), &Sought::default()).looked_at;
    let found = walk(Path::new("/proc"), &sought);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(pids(&found, inode), [child.id()]);
    let others = found.looked_at - without;
    assert!(held > 2 * LIMITS_OF_A_WALK.first_look, "{held}");
    assert!(others < held, "{others} of at least {held}: it was not looked through");
}

use crate::proc::walk::LIMITS as LIMITS_OF_A_WALK;

#[test]
fn bind_mounted_namespaces_are_read_from_the_mount_table() {
    let table = "26 1 0:4 net:[4026532001] /run/netns/blue rw shared:2 - nsfs nsfs rw\n\
                 27 1 0:4 mnt:[4026532002] /run/mnt rw - nsfs nsfs rw\n";
    let found: Vec<_> = bound_namespaces(table).collect();
    assert_eq!(found, vec![("/run/netns/blue".into(), 4_026_532_001)]);
}
