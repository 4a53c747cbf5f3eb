//! A real `governord` on sockets of its own: started with a configuration, waited for, stopped or killed, its log kept.
//! Nothing of it outlives the test: the process is killed by its own handle on drop, its folder is removed.
//!
//! ```no_run
//! use support::programs::daemon::Setup;
//!
//! let daemon = Setup::new("[pools.chat.members.a]\nslots = 8\n").start();
//! assert_eq!(daemon.get("/v1/status")["level"], "normal");
//! assert!(daemon.stop().success());
//! ```

use crate::programs::bins;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for a start, a stop or an answer. Only a bound for what hangs: none of them takes a tenth of it.
const BOUND: Duration = Duration::from_secs(20);

/// The same for a start: an emulated kernel takes its time over each program.
const START_BOUND: Duration = Duration::from_secs(90);

/// How often a state is looked at while waiting for it.
const POLL: Duration = Duration::from_millis(10);

/// What a daemon is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    config: String,
    environment: Vec<(String, String)>,
    /// Makes the machine what the daemon is to find.
    surroundings: Option<String>,
}

impl Setup {
    /// A daemon with this configuration file. Sockets, state folder and drain time are set by environment, over
    /// whatever the file says; metrics and pins are off,
    /// the machine's own load presses nothing, and the kernel is observed by the netlink tier until told otherwise,
    /// because most tests are about admission and many daemons run at once.
    #[must_use]
    pub fn new(config: &str) -> Self {
        Self { config: config.to_owned(), environment: Vec::new(), surroundings: None }
            .env("GOVERNOR_DAEMON_METRICS_LISTEN", "off")
            .env("GOVERNOR_DAEMON_DRAIN_TIMEOUT", "200ms")
            .env("GOVERNOR_KERNEL_TIER", "netlink")
            .env("GOVERNOR_KERNEL_PINS", "off")
            .env("GOVERNOR_OVERLOAD_IGNORE", "cpu_pressure,memory_pressure")
    }

    /// Sets an environment variable of the daemon; the last one of a name counts.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(have, _)| have != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Observes the kernel by this tier, or by the best there is: `auto`.
    #[must_use]
    pub fn tier(self, tier: &str) -> Self {
        self.env("GOVERNOR_KERNEL_TIER", tier)
    }

    /// Pins what counts in this folder.
    #[must_use]
    pub fn pins(self, folder: &Path) -> Self {
        let folder = folder.to_str().expect("a folder of ours has a plain name");
        self.env("GOVERNOR_KERNEL_PINS", "require").env("GOVERNOR_KERNEL_PIN_DIR", folder)
    }

    /// Starts it in a mount namespace of its own after this shell script, which makes the machine what it is to find. The
    /// script's last command may be one that runs the rest of its line, such as `setpriv`.
    #[must_use]
    pub fn within(mut self, script: &str) -> Self {
        self.surroundings = Some(script.to_owned());
        self
    }

    /// Serves metrics on this address, see [`free_port`].
    #[must_use]
    pub fn metrics(self, address: SocketAddr) -> Self {
        self.env("GOVERNOR_DAEMON_METRICS_LISTEN", &address.to_string())
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// When it ends or does not answer in time; the message has its log.
    #[must_use]
    pub fn start(self) -> Daemon {
        self.try_start()
            .unwrap_or_else(|refusal| panic!("governord did not start: {}\n{}", refusal.status, refusal.log))
    }

    /// Starts it and waits until it answers or ends.
    ///
    /// # Errors
    /// It ended by itself: how, and what it said.
    ///
    /// # Panics
    /// When it does neither in time.
    pub fn try_start(self) -> Result<Daemon, Refusal> {
        let mut daemon = self.prepared();
        daemon.launch()?;
        Ok(daemon)
    }

    /// Makes its folder and starts nothing: [`Daemon::command`] is what would be started.
    ///
    /// # Panics
    /// When the temporary folder is not writable.
    #[must_use]
    pub fn prepared(self) -> Daemon {
        let folder = TempDir::with_prefix("governord-").expect("the temporary folder is writable");
        fs::write(folder.path().join("governor.toml"), &self.config).expect("the temporary folder is writable");
        Daemon { setup: self, child: None, folder }
    }
}

/// A start that failed.
#[derive(Debug)]
pub struct Refusal {
    /// How the process ended.
    pub status: ExitStatus,
    /// Everything it wrote.
    pub log: String,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    setup: Setup,
    /// `None` after [`Daemon::kill`].
    child: Option<Child>,
    folder: TempDir,
}

impl Daemon {
    /// The socket proxies connect to.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("proxy.sock")
    }

    /// The socket of the control API.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.path("control.sock")
    }

    /// Its configuration file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.path("governor.toml")
    }

    /// Its state folder.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    /// Its process id.
    ///
    /// # Panics
    /// After [`Daemon::kill`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// Everything it wrote so far, over all its lives.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What the control API answers to `GET path`.
    ///
    /// # Panics
    /// When it answers anything but 200 and JSON.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path, None);
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// One request to the control API: the status, and the body as JSON (null if it is none).
    ///
    /// # Panics
    /// When the daemon cannot be reached.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, text) = exchange(&self.control_socket(), method, path, &body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()));
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Waits until the answer to `GET path` fits and returns it.
    ///
    /// # Panics
    /// When it does not fit in time; the message has the last answer.
    pub fn wait_for(&self, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + BOUND;
        loop {
            let answer = self.get(path);
            if fits(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "GET {path} did not become what was waited for: {answer:#}");
            std::thread::sleep(POLL);
        }
    }

    /// Runs `governorctl` against this daemon, standard input closed, to its end.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        ctl_command(&self.control_socket(), arguments).output().expect("governorctl can be started")
    }

    /// Runs `governorctl doctor --clean` with the configuration and environment of this daemon, which may be dead.
    #[must_use]
    pub fn clean(&self) -> Output {
        let daemon = self.command();
        let mut command = Command::new(bins::binary("governorctl"));
        for (name, value) in daemon.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["doctor", "--clean", "--config"]).arg(self.config_file()).stdin(Stdio::null());
        command.output().expect("governorctl can be started")
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// When it does not end in time, or was killed before.
    pub fn stop(mut self) -> ExitStatus {
        let child = self.child.take().expect("the daemon runs");
        terminate(child).unwrap_or_else(|| panic!("governord did not end after SIGTERM\n{}", self.log()))
    }

    /// As [`Daemon::stop`], but its folder stays, for [`Daemon::restart`].
    ///
    /// # Panics
    /// As [`Daemon::stop`], and when it ends with an error.
    pub fn halt(&mut self) {
        let child = self.child.take().expect("the daemon runs");
        let status = terminate(child).unwrap_or_else(|| panic!("governord did not end after SIGTERM\n{}", self.log()));
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Kills it (SIGKILL) as a crash would. Its folder stays, for [`Daemon::restart`].
    ///
    /// # Panics
    /// When it ended by itself before.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the daemon runs");
        let before = child.try_wait().expect("our own child can be waited for");
        assert!(before.is_none(), "governord had ended by itself: {before:?}\n{}", self.log());
        end(&mut child);
    }

    /// Starts it again on the same sockets, configuration and state, stopping it first (SIGTERM) if it runs.
    ///
    /// # Errors
    /// It ended by itself: how, and what it said in all its lives.
    ///
    /// # Panics
    /// When it does not stop, or neither answers nor ends in time.
    pub fn restart(&mut self) -> Result<(), Refusal> {
        if let Some(child) = self.child.take() {
            terminate(child).expect("governord ends after SIGTERM");
        }
        self.launch()
    }

    /// Sets an environment variable of its next life.
    pub fn set_env(&mut self, name: &str, value: &str) {
        let setup = self.setup.clone();
        self.setup = setup.env(name, value);
    }

    /// The command line of a daemon with this configuration and these sockets, e.g. for a second instance.
    #[must_use]
    pub fn command(&self) -> Command {
        let governord = bins::binary("governord");
        let mut command = match &self.setup.surroundings {
            None => Command::new(governord),
            Some(script) => {
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-e", "-c", &format!("{script} \"$@\""), "governord"]).arg(governord);
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("GOVERNOR_")) {
                command.env_remove(name);
            }
        }
        command
            .arg("--config")
            .arg(self.config_file())
            .env("GOVERNOR_DAEMON_SOCKET", self.socket())
            .env("GOVERNOR_DAEMON_CONTROL_SOCKET", self.control_socket())
            .env("GOVERNOR_DAEMON_STATE_DIR", self.state_dir())
            .envs(self.setup.environment.iter().map(|(name, value)| (name, value)))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    fn launch(&mut self) -> Result<(), Refusal> {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("our own folder is writable");
        let twin = log.try_clone().expect("a descriptor is left");
        let mut child = self.command().stdout(log).stderr(twin).spawn().expect("governord can be started");
        let bound = Instant::now() + START_BOUND;
        loop {
            if let Some(status) = child.try_wait().expect("our own child can be waited for") {
                return Err(Refusal { status, log: self.log() });
            }
            if exchange(&self.control_socket(), "GET", "/v1/status", "").is_ok_and(|(status, _)| status == 200) {
                self.child = Some(child);
                return Ok(());
            }
            if Instant::now() > bound {
                end(&mut child);
                panic!("governord neither answered nor ended\n{}", self.log());
            }
            std::thread::sleep(POLL);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
        if std::thread::panicking() {
            #[expect(clippy::print_stdout, reason = "libtest captures it and shows it for the test that failed only")]
            {
                println!("--- log of governord ---\n{}", self.log());
            }
        }
    }
}

/// `governorctl` on a control socket, with no colour and nothing to read.
#[must_use]
pub fn ctl_command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bins::binary("governorctl"));
    command.env("GOVERNOR_DAEMON_CONTROL_SOCKET", socket).args(arguments).stdin(Stdio::null());
    command
}

/// A loopback address whose port nobody uses now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    probe.local_addr().expect("a bound socket has an address")
}

/// SIGTERM and a bounded wait; `None`: it had to be killed.
fn terminate(mut child: Child) -> Option<ExitStatus> {
    let pid = Pid::from_child(&child);
    let bound = Instant::now() + BOUND;
    // A child that ended by itself is still there to be waited for, so the signal cannot reach anybody else.
    kill_process(pid, Signal::TERM).expect("our own child can be signalled");
    while Instant::now() < bound {
        if let Some(status) = child.try_wait().expect("our own child can be waited for") {
            return Some(status);
        }
        std::thread::sleep(POLL);
    }
    end(&mut child);
    None
}

fn end(child: &mut Child) {
    // Fails only for a child that has ended, which is what is wanted.
    drop(child.kill());
    drop(child.wait());
}

/// One HTTP exchange over a Unix socket: status and body.
fn exchange(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: governor\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(wrong)?;
    Ok((status, body.to_owned()))
}
