//! Servers as processes of their own on the servers' core: started, waited for, their CPU time read, killed by their own
//! handle. Knows how to start them and not what they serve.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::cores;

/// Longest wait for a start. Only a bound for what hangs.
const BOUND: Duration = Duration::from_secs(20);

/// A program that this machine does not have.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not here: not compared with it")]
pub(crate) struct Missing(pub(crate) &'static str);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server(Child);

impl Server {
    /// Starts it and waits until `ready`.
    pub(crate) fn start(name: &'static str, command: &mut Command, ready: impl Fn() -> bool) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match cores::beside_servers(|| command.spawn())? {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Missing(name).into()),
            started => started.with_context(|| format!("cannot start {name}"))?,
        };
        let mut server = Self(child);
        let bound = Instant::now() + BOUND;
        while !ready() {
            if let Some(status) = server.0.try_wait()? {
                bail!("{name} ended with {status}");
            }
            if Instant::now() > bound {
                bail!("{name} does not answer");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// This program as a server: see `serve`.
    pub(crate) fn own(name: &'static str, arguments: &[&str], ready: impl Fn() -> bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Self::start(name, command.arg("--serve").arg(name).args(arguments), ready)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only for one that has ended, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// CPU time of all threads that a process has now, in nanoseconds.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))? {
        // A thread may end between the two looks.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let spent = text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
        sum += spent.context("the kernel keeps no schedstat")?;
    }
    Ok(sum)
}

/// Whether something listens on this Unix socket.
pub(crate) fn listens(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}
