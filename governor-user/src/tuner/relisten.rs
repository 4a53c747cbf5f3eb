//! The hands of the tuner: calls `listen()` on a socket of another process through a duplicate of its descriptor, which
//! is checked to be that socket, and closed at once: a duplicate that lived on would keep the listener alive after its
//! owner and swallow connections. What the backlog is afterwards the kernel says. Decides nothing.

use governor_health::backlog::tuner::{Called, Socket};
use governor_kernel::proc::preflight;
use governor_kernel::proc::privileged::{self, Duplicate};
use governor_kernel::proc::walk::{self, Sought};
use governor_kernel::tables::listening::{self, Queue};
use governor_observation::ProcessWalk;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::error::Error;
use std::io;
use std::path::Path;

/// Why `listen()` was not called, or did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelistenError {
    /// No process is known to hold it, and every process was looked at.
    #[error("no process holds it")]
    NoHolder,
    /// No process is known to hold it, and not every process could be looked at.
    #[error("no process is seen that holds it: {0}")]
    HolderUnseen(String),
    /// A right is missing.
    #[error("duplicating a descriptor of process {pid} is not permitted: {reason}")]
    Denied {
        /// The process.
        pid: u32,
        /// Which right is missing.
        reason: String,
    },
    /// The process that held it does not, or holds another socket by now.
    #[error("the socket is gone: its owner closed it or ended")]
    Gone,
    /// It is open and does not listen.
    #[error("the socket does not listen any more")]
    NotListening,
    /// The namespace's cap could not be set.
    #[error("net.core.somaxconn cannot be set in the namespace of the socket")]
    Cap(#[source] io::Error),
    /// Anything else.
    #[error("the kernel refused")]
    Refused(#[source] io::Error),
}

/// A duplicate of a listener's descriptor that was checked. Closed on drop.
#[derive(Debug)]
pub(crate) struct Held {
    duplicate: Duplicate,
    pid: u32,
}

impl Held {
    /// Duplicates a descriptor of the socket from the first holder that lets it.
    ///
    /// # Errors
    /// See [`RelistenError`].
    pub(crate) fn of(socket: &Socket) -> Result<Self, RelistenError> {
        let mut reason = RelistenError::NoHolder;
        let Some(inode) = socket.inode else { return Err(reason) };
        // Of a listener that is new, or seen by a daemon that is, the holders have not been looked for yet.
        let mut found = Vec::new();
        if socket.pids.is_empty() {
            let sought = Sought { sockets: [(inode, socket.netns)].into(), ..Sought::default() };
            let mut walk = walk::walk(Path::new("/proc"), &sought);
            found = walk.holders.remove(&inode).unwrap_or_default().into_iter().map(|holder| holder.pid).collect();
            if let Some(blind) = ProcessWalk::from(&walk).blind() {
                reason = RelistenError::HolderUnseen(blind);
            }
        }
        for pid in socket.pids.iter().chain(&found) {
            let held = match privileged::duplicate_socket(*pid, inode) {
                Ok(Some(duplicate)) => Self { duplicate, pid: *pid },
                Ok(None) => {
                    reason = RelistenError::Gone;
                    continue;
                }
                Err(error) => {
                    reason = refused(*pid, error);
                    continue;
                }
            };
            if held.is(socket) {
                return Ok(held);
            }
            reason = RelistenError::Gone;
        }
        Err(reason)
    }

    /// The backlog the kernel holds for it now.
    ///
    /// # Errors
    /// It does not listen.
    pub(crate) fn backlog(&self) -> Result<u32, RelistenError> {
        match listening::queue(&self.duplicate.file) {
            Ok(Some(Queue { backlog, .. })) => Ok(backlog),
            Ok(None) => Err(RelistenError::NotListening),
            Err(error) => Err(RelistenError::Refused(error)),
        }
    }

    /// Cookie of the socket's own namespace, where the kernel reports it.
    pub(crate) fn namespace_cookie(&self) -> Option<u64> {
        listening::namespace_cookie(&self.duplicate.file)
    }

    /// Sets `net.core.somaxconn` of the socket's own namespace, if it is as `expected`; what it was and what it is.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn set_somaxconn(&self, value: u32, expected: Option<u32>) -> Result<(u32, u32), RelistenError> {
        listening::namespace(&self.duplicate.file)
            .and_then(|namespace| privileged::set_somaxconn(namespace, value, expected))
            .map_err(RelistenError::Cap)
    }

    /// Gives the listener this backlog, as far as its namespace allows, and lets go of it.
    ///
    /// # Errors
    /// See [`RelistenError`]; [`RelistenError::Gone`] when its owner ended meanwhile and it may have ended with this
    /// call.
    pub(crate) fn listen(self, backlog: u32) -> Result<Called, RelistenError> {
        // On a socket that was shut down listen() would open it anew.
        let before = self.backlog()?;
        let asked = i32::try_from(backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&self.duplicate.file, asked).map_err(|errno| RelistenError::Refused(errno.into()))?;
        let after = self.backlog()?;
        let Self { duplicate: Duplicate { file, process }, pid } = self;
        drop(file);
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) => Ok(Called { pid, before, after }),
            Ok(_) => Err(RelistenError::Gone),
            Err(errno) => Err(RelistenError::Refused(errno.into())),
        }
    }

    /// Whether it is that socket: a descriptor's number may stand for another one by the time it is duplicated.
    fn is(&self, socket: &Socket) -> bool {
        let file = &self.duplicate.file;
        let inode = rustix::fs::fstat(file).ok().map(|stat| stat.st_ino);
        let cookie = rustix::net::sockopt::socket_cookie(file).ok();
        inode == socket.inode && socket.cookie.is_none_or(|wanted| cookie == Some(wanted))
    }
}

/// An error and what led to it, in one line.
pub(crate) fn chain(error: &RelistenError) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

fn refused(pid: u32, error: io::Error) -> RelistenError {
    match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => RelistenError::Denied { pid, reason: preflight::holders_obstacle() },
        _ if error.kind() == io::ErrorKind::NotFound => RelistenError::Gone,
        _ => RelistenError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Child, Command, Stdio};

    /// A process that holds a listener and knows nothing of it; killed on drop.
    struct Owner(Child);

    impl Owner {
        fn of(listener: &TcpListener) -> Self {
            let inherited = Stdio::from(OwnedFd::from(listener.try_clone().unwrap()));
            Self(Command::new("sleep").arg("60").stdin(inherited).spawn().unwrap())
        }

        fn end(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            // It may have ended.
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn listener(backlog: i32) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, backlog).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn socket(listener: &TcpListener, pids: &[u32]) -> Socket {
        let inode = rustix::fs::fstat(listener).unwrap().st_ino;
        let cookie = rustix::net::sockopt::socket_cookie(listener).ok();
        Socket {
            cookie,
            netns: std::fs::metadata("/proc/self/ns/net").unwrap().ino(),
            inode: Some(inode),
            pids: pids.to_vec(),
        }
    }

    fn descriptors(pid: u32) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut links: Vec<String> = entries
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .map(|link| link.display().to_string())
            .collect();
        links.sort();
        links
    }

    #[test]
    fn the_backlog_of_another_process_is_set_and_read_back_and_nothing_is_left_behind() {
        let (mine, _) = listener(5);
        let owner = Owner::of(&mine);
        let socket = socket(&mine, &[owner.0.id()]);
        drop(mine);
        let before = descriptors(owner.0.id());
        let done = Held::of(&socket).unwrap().listen(77).unwrap();
        assert_eq!(done, Called { pid: owner.0.id(), before: 5, after: 77 });
        assert_eq!(Held::of(&socket).unwrap().backlog().unwrap(), 77);
        assert_eq!(descriptors(owner.0.id()), before);
        let inode = format!("socket:[{}]", socket.inode.unwrap());
        assert!(!descriptors(std::process::id()).contains(&inode));
    }

    #[test]
    fn a_value_above_the_cap_is_read_back_as_what_the_kernel_made_of_it() {
        let cap: u32 = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let (mine, _) = listener(5);
        let owner = Owner::of(&mine);
        let done = Held::of(&socket(&mine, &[owner.0.id()])).unwrap().listen(u32::MAX).unwrap();
        assert_eq!(done.after, cap);
    }

    #[test]
    fn an_owner_that_ends_between_the_duplicate_and_the_call_takes_its_listener_with_it() {
        let (mine, address) = listener(5);
        let mut owner = Owner::of(&mine);
        let socket = socket(&mine, &[owner.0.id()]);
        drop(mine);
        let held = Held::of(&socket).unwrap();
        owner.end();
        assert!(matches!(held.listen(77), Err(RelistenError::Gone)));
        TcpListener::bind(address).expect("nobody listens there any more");
        assert!(matches!(Held::of(&socket), Err(RelistenError::Gone)));
    }

    #[test]
    fn another_socket_behind_the_same_number_is_left_alone() {
        let (mine, _) = listener(5);
        let owner = Owner::of(&mine);
        let right = socket(&mine, &[owner.0.id()]);
        let other = Socket { cookie: right.cookie.map(|cookie| cookie + 1), ..right.clone() };
        assert!(matches!(Held::of(&other), Err(RelistenError::Gone)));
        let other = Socket { inode: Some(1), ..right.clone() };
        assert!(matches!(Held::of(&other), Err(RelistenError::Gone)));
        assert!(matches!(Held::of(&Socket { inode: None, ..right }), Err(RelistenError::NoHolder)));
    }

    #[test]
    fn a_socket_that_was_shut_down_is_not_opened_anew() {
        let (mine, _) = listener(5);
        let owner = Owner::of(&mine);
        let held = Held::of(&socket(&mine, &[owner.0.id()])).unwrap();
        rustix::net::shutdown(&mine, rustix::net::Shutdown::Both).unwrap();
        assert!(matches!(held.listen(77), Err(RelistenError::NotListening)));
    }

    #[test]
    fn a_holder_that_nobody_has_named_is_looked_for() {
        let (mine, _) = listener(5);
        let socket = socket(&mine, &[]);
        assert_eq!(Held::of(&socket).unwrap().listen(9).unwrap().after, 9);
        drop(mine);
        // Some process of the machine may refuse to be looked at.
        assert!(matches!(Held::of(&socket), Err(RelistenError::NoHolder | RelistenError::HolderUnseen(_))));
    }

    #[test]
    fn of_several_holders_the_first_that_lives_is_enough() {
        let (mine, _) = listener(5);
        let (mut dead, alive) = (Owner::of(&mine), Owner::of(&mine));
        dead.end();
        let done = Held::of(&socket(&mine, &[dead.0.id(), alive.0.id()])).unwrap().listen(9).unwrap();
        assert_eq!((done.pid, done.after), (alive.0.id(), 9));
    }
}
