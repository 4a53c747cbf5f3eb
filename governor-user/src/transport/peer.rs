//! The process at the other end of a Unix socket: user and pid as the kernel reports them, and the moment it ends.

use anyhow::{Context, Result};
use governor_kernel::proc::own_namespaces::{proc_is_ours, unmapped_uid};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

/// The peer of a Unix stream socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its process in the daemon's pid namespace; `None` when it has no number there (the kernel reports 0).
    pub pid: Option<u32>,
    /// Its user in the daemon's user namespace; see [`unmapped_uid`] for a user without a number there.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When its process began, in clock ticks since the machine started: it differs for a later process with the same
    /// pid. `None` where it cannot be read.
    pub started: Option<u64>,
}

impl Peer {
    /// Reads `SO_PEERCRED`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn of(stream: &UnixStream) -> Result<Self> {
        // tokio reads it as `libc::ucred`, where the pid 0 of a process outside the pid namespace is a legal value.
        let credentials = stream.peer_cred().context("cannot read the peer's credentials")?;
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        let started = pid.filter(|_| proc_is_ours()).and_then(process_started);
        Ok(Self { pid, uid: credentials.uid(), gid: credentials.gid(), started })
    }

    /// As it was written to disk, by a daemon of this boot; its pid says something only in the same namespaces (`is_ours`).
    #[must_use]
    pub fn as_read(self, is_ours: bool) -> Self {
        if is_ours { self } else { Self { pid: None, started: None, ..self } }
    }

    /// The number of its folder in `/proc`; `None` where `/proc` numbers processes otherwise than the daemon's pid
    /// namespace, or the peer has no number there.
    #[must_use]
    pub fn in_proc(&self) -> Option<u32> {
        self.pid.filter(|_| proc_is_ours())
    }

    /// Whether its uid stands for every user without a number in the daemon's user namespace.
    #[must_use]
    pub fn is_unmapped(&self) -> bool {
        unmapped_uid() == Some(self.uid)
    }

    /// Whether both are one process of one user. Unknown, and so false, for a process without a pid here.
    #[must_use]
    pub fn is_same_process(&self, other: &Self) -> bool {
        self.pid.is_some() && self == other
    }

    /// Whether its process may still run.
    #[must_use]
    pub fn may_live(&self) -> bool {
        let Some(pid) = self.pid else { return true };
        // Not by `/proc`, which may belong to another pid namespace.
        if matches!(open_process(pid), Err(Errno::SRCH | Errno::INVAL)) {
            return false;
        }
        let now = || process_started(pid).filter(|_| proc_is_ours());
        self.started.is_none_or(|started| now().is_none_or(|now| now == started))
    }
}

/// A pidfd of a process by its number in the daemon's pid namespace.
fn open_process(pid: u32) -> rustix::io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Ends when the process does; never, where its end cannot be watched.
#[derive(Debug)]
pub struct ExitWatch(Option<AsyncFd<OwnedFd>>);

impl ExitWatch {
    /// Watches the peer's process through a pidfd. Called while the connection is open, so the number still names the
    /// process that connected or one that inherited the socket.
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        let pidfd = peer.pid.and_then(|pid| open_process(pid).ok());
        Self(pidfd.and_then(super::fd::readable))
    }

    /// Waits for the end of the process.
    pub async fn exited(&self) {
        match &self.0 {
            // A pidfd reads as ready once, at the end of its process, and stays so.
            Some(fd) => drop(fd.readable().await),
            None => std::future::pending().await,
        }
    }
}

/// Field 22 of `/proc/PID/stat`. The name in field 2 may hold anything, but no field after it has a parenthesis.
fn process_started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Which users may open a session.
#[derive(Clone, Debug, Default)]
pub struct Allowed(Option<Vec<u32>>);

impl Allowed {
    /// From names or numbers; an empty list allows whom the socket's mode lets in.
    ///
    /// # Errors
    /// A name that is no user of this machine.
    pub fn from_names(names: &[String]) -> Result<Self> {
        if names.is_empty() {
            return Ok(Self(None));
        }
        let ids: Result<Vec<u32>> = names
            .iter()
            .map(|name| {
                name.parse()
                    .ok()
                    .or_else(|| account_id("/etc/passwd", name))
                    .with_context(|| format!("daemon.allow_users: no user named \"{name}\" on this machine"))
            })
            .collect();
        Ok(Self(Some(ids?)))
    }

    /// Whether this peer may. Root always may. A list of users admits no unmapped uid, which may stand for any of them.
    #[must_use]
    pub fn permits(&self, peer: &Peer) -> bool {
        peer.uid == 0 || self.0.as_ref().is_none_or(|ids| ids.contains(&peer.uid) && !peer.is_unmapped())
    }
}

/// The id of a group given by name or number.
#[must_use]
pub fn group_id(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| account_id("/etc/group", name))
}

/// Third field of the line that starts with `name:`. Accounts from directory services are given by number.
fn account_id(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("4711"), Some(4711));
        assert_eq!(group_id("no-such-group"), None);
        let error = Allowed::from_names(&["no-such-user".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no-such-user"), "{error}");
    }

    #[test]
    fn an_empty_list_leaves_it_to_the_sockets_mode() {
        let peer = Peer { pid: None, uid: 1000, gid: 1000, started: None };
        assert!(Allowed::from_names(&[]).unwrap().permits(&peer));
        let only = Allowed::from_names(&["1001".to_owned()]).unwrap();
        assert!(!only.permits(&peer) && only.permits(&Peer { uid: 0, ..peer }));
    }

    #[test]
    fn a_process_is_told_from_a_later_one_of_its_number() {
        let pid = std::process::id();
        let started = process_started(pid);
        assert!(started.is_some_and(|ticks| ticks > 0));
        let me = Peer { pid: Some(pid), uid: 0, gid: 0, started };
        let earlier = Peer { started: started.map(|ticks| ticks - 1), ..me };
        assert!(me.is_same_process(&me) && !me.is_same_process(&earlier));
        let foreign = Peer { pid: None, ..me };
        assert!(!foreign.is_same_process(&foreign));
        let nobody = Peer { pid: Some(u32::MAX), ..me };
        assert_eq!([me, earlier, foreign, nobody].map(|peer| peer.may_live()), [true, false, true, false]);
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let watch = ExitWatch::of(&Peer { pid: Some(child.id()), uid: 0, gid: 0, started: None });
        child.kill().unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(10), watch.exited()).await.unwrap();
        child.wait().unwrap();
    }
}
