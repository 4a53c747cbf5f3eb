//! Child processes that cannot outlive the demo: each is in a process group of its own, dies with its parent, and is
//! ended by its own pid. Knows nothing of what the programs do.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to say that it listens.
const START: Duration = Duration::from_secs(10);

/// How long a program may take to end when asked; then it is killed.
const STOP: Duration = Duration::from_secs(5);

/// How often a process is looked at while waiting for it.
const POLL: Duration = Duration::from_millis(20);

/// What the demo runs itself as, between its own process and a program: it ties the program's life to the demo's and
/// enters a cgroup before the program begins, which a parent cannot do for it without unsafe code.
#[derive(Debug, clap::Args)]
pub(crate) struct Launch {
    /// Process whose end ends the program
    #[arg(long)]
    parent: i32,
    /// Folder of the cgroup to enter
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program. Returns only when that fails.
pub(crate) fn launch(launch: &Launch) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot tie the program to its parent")?;
    if getppid().map(Pid::as_raw_pid) != Some(launch.parent) {
        bail!("the demo has ended");
    }
    if let Some(cgroup) = &launch.cgroup {
        // 0 stands for the process that writes.
        fs::write(cgroup.join("cgroup.procs"), "0").with_context(|| format!("cannot enter {}", cgroup.display()))?;
    }
    let (program, arguments) = launch.command.split_first().context("no program was given")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", Path::new(program).display()))
}

/// A program to start.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: Vec<OsString>,
    cgroup: Option<PathBuf>,
}

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// A program by its file, named for messages.
    pub(super) fn new(name: &'static str, path: PathBuf) -> Self {
        Self { name, path, arguments: Vec::new(), cgroup: None }
    }

    /// Adds arguments.
    pub(super) fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs it in a cgroup.
    pub(super) fn cgroup(mut self, folder: Option<PathBuf>) -> Self {
        self.cgroup = folder;
        self
    }

    /// Starts it with its standard error in a log file in `folder`.
    pub(super) fn start(&self, folder: &Path) -> Result<Running> {
        let log = folder.join(format!("{}.log", self.name));
        let stderr = File::options().create(true).append(true).open(&log)?;
        self.spawn(log, stderr.into())
    }

    /// Starts it with its standard error in a pipe.
    pub(super) fn start_watched(&self, folder: &Path) -> Result<(Running, ChildStderr)> {
        let mut running = self.spawn(folder.join(format!("{}.log", self.name)), Stdio::piped())?;
        let stderr = running.child.stderr.take().context("standard error was to be a pipe")?;
        Ok((running, stderr))
    }

    fn spawn(&self, log: PathBuf, stderr: Stdio) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
        command.args(["demo", "launch", "--parent", &std::process::id().to_string()]);
        if let Some(cgroup) = &self.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        command.arg("--").arg(&self.path).args(&self.arguments);
        // A group of its own: Ctrl-C on the terminal reaches the demo alone, which then ends all in order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        Ok(Running { name: self.name, child, log })
    }
}

impl Running {
    /// The address in the program's first line, `listening on ADDRESS`.
    pub(super) fn address(&mut self) -> Result<SocketAddr> {
        let stdout = self.stdout()?;
        let (sender, line) = mpsc::channel();
        thread::spawn(move || {
            let mut first = String::new();
            if BufReader::new(stdout).read_line(&mut first).is_ok() {
                sender.send(first).ok();
            }
        });
        let line = line.recv_timeout(START).unwrap_or_default();
        match line.trim_end().strip_prefix("listening on ").and_then(|address| address.parse().ok()) {
            Some(address) => Ok(address),
            None => bail!("{} does not listen{}", self.name, self.last_words()),
        }
    }

    /// The program's standard output, once.
    pub(super) fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().with_context(|| format!("the output of {} is already being read", self.name))
    }

    /// Fails when the program has ended.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}{}", self.name, self.last_words());
        }
        Ok(())
    }

    /// Waits for the program to end by itself; `None` when it did not within `bound`.
    pub(super) fn wait(&mut self, bound: Duration) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + bound;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= until => return Ok(None),
                None => thread::sleep(POLL),
            }
        }
    }

    /// Asks the program to end, and kills it when it does not.
    pub(super) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // Not waited for yet, so the pid is still this child's.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        if self.wait(STOP)?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// The end of the program's log, for a message.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].iter().map(|line| format!("\n  {line}")).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing more can be done for a process that cannot be ended.
        self.end().ok();
    }
}
