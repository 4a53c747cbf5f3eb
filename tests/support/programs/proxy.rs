//! nginx and HAProxy as the distribution ships them, each in a network namespace, with its configuration, sockets and files
//! in a temporary folder. Nothing of them outlives the value.

use crate::machine::netns::Netns;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for a start or an end; neither takes a tenth of it.
const BOUND: Duration = Duration::from_secs(20);

/// A running proxy, killed on drop with all that it started.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    folder: TempDir,
    program: PathBuf,
    arguments: Vec<String>,
    /// Name of the network namespace.
    namespace: String,
}

impl Proxy {
    /// nginx with two workers on `listen`, answering 204; `None` where it is not installed.
    ///
    /// # Panics
    /// When it does not come to listen.
    #[must_use]
    pub fn nginx(namespace: &Netns, listen: SocketAddr, backlog: u32) -> Option<Self> {
        let (program, folder) = (installed("nginx")?, TempDir::with_prefix("governor-nginx-").expect("a folder"));
        // It takes an order to upgrade only where its parent has ended, as that of a daemon has; in a process namespace of
        // its own nothing of it outlives the one that we started.
        let daemon = format!(
            "{} -p {shown} -c {shown}/nginx.conf && exec sleep infinity",
            program.display(),
            shown = folder.path().display()
        );
        let arguments = ["--pid", "--fork", "--kill-child", "sh", "-c", &daemon].map(str::to_owned).to_vec();
        let proxy = Self::prepare(namespace, "unshare".into(), folder, arguments, |folder| {
            fs::write(folder.join("nginx.conf"), nginx_config(folder, listen, backlog))
        });
        Some(proxy.started(listen))
    }

    /// HAProxy with one thread on `listen`, answering 204, ready to hand its sockets over; `None` where it is not installed.
    ///
    /// # Panics
    /// When it does not come to listen.
    #[must_use]
    pub fn haproxy(namespace: &Netns, listen: SocketAddr, backlog: u32) -> Option<Self> {
        let (program, folder) = (installed("haproxy")?, TempDir::with_prefix("governor-haproxy-").expect("a folder"));
        let file = folder.path().join("haproxy.cfg").display().to_string();
        let arguments = ["-f", &file, "-db"].map(str::to_owned).to_vec();
        let proxy = Self::prepare(namespace, program, folder, arguments, |folder| {
            let stats = folder.join("stats.sock");
            let text = format!(
                "global\n  stats socket {} mode 600 level admin expose-fd listeners\n  nbthread 1\n\
                 defaults\n  mode http\n  timeout connect 1s\n  timeout client 10s\n  timeout server 10s\n\
                 frontend tuned\n  bind {listen} backlog {backlog}\n  http-request return status 204\n",
                stats.display()
            );
            fs::write(folder.join("haproxy.cfg"), text)
        });
        Some(proxy.started(listen))
    }

    /// The process that was started last.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A file of its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The processes that it started, and theirs.
    #[must_use]
    pub fn descendants(&self) -> Vec<u32> {
        let mut all = children(self.pid());
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            all.extend(children(pid));
            next += 1;
        }
        all
    }

    /// Those of them whose command line begins so, parents first: nginx says there what each is.
    #[must_use]
    pub fn titled(&self, title: &str) -> Vec<u32> {
        let is =
            |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(title.as_bytes()));
        self.descendants().into_iter().filter(is).collect()
    }

    /// Gives nginx another backlog, as of its next reload.
    ///
    /// # Panics
    /// When its folder cannot be written.
    pub fn configure_nginx(&self, listen: SocketAddr, backlog: u32) {
        let text = nginx_config(self.folder.path(), listen, backlog);
        fs::write(self.path("nginx.conf"), text).expect("our own folder is writable");
    }

    /// Starts a successor with further arguments and waits for the end of the process that it takes over from.
    ///
    /// # Panics
    /// When that does not end.
    pub fn succeed(&mut self, further: &[&str]) {
        let arguments: Vec<String> =
            self.arguments.iter().cloned().chain(further.iter().map(|word| (*word).to_owned())).collect();
        let successor = launch(&self.namespace, &self.program, &arguments);
        let mut old = std::mem::replace(&mut self.child, successor);
        wait("the old process leaves", || old.try_wait().expect("our own child can be waited for").is_some());
    }

    fn prepare(
        namespace: &Netns,
        program: PathBuf,
        folder: TempDir,
        arguments: Vec<String>,
        configure: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Self {
        configure(folder.path()).expect("our own folder is writable");
        let namespace = namespace.name().to_owned();
        Self { child: launch(&namespace, &program, &arguments), folder, program, arguments, namespace }
    }

    fn started(self, listen: SocketAddr) -> Self {
        let rows =
            || Command::new("ss").args(["-N", &self.namespace, "-tlnH"]).output().expect("ss is installed").stdout;
        wait("the proxy listens", || String::from_utf8_lossy(&rows()).contains(&listen.to_string()));
        self
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let all = self.descendants();
        for pid in all.into_iter().rev() {
            signal(pid, Signal::KILL);
        }
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal to a process that we started, if it still runs.
///
/// # Panics
/// For a number that is no process id.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    // It may have ended by itself.
    kill_process(pid, signal).ok();
}

/// Children of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Waits until something is so.
///
/// # Panics
/// When it never is.
pub fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < BOUND, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin"].into_iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

fn launch(namespace: &str, program: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ip is installed")
}

fn nginx_config(folder: &Path, listen: SocketAddr, backlog: u32) -> String {
    let shown = folder.display();
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {shown};"));
    format!(
        "user root; worker_processes 2; pid {shown}/nginx.pid; error_log {shown}/error.log;\n\
         events {{ worker_connections 2048; }}\n\
         http {{ access_log off; {}\n  server {{ listen {listen} backlog={backlog}; location / {{ return 204; }} }}\n}}\n",
        temporary.join(" ")
    )
}
