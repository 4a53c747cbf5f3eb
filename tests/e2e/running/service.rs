//! The daemon under a service manager: notifications on a socket of the test's own, signals during the start, reloads that
//! have an answer, and starts without root's rights.

use crate::world::pool;
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use support::programs::daemon::{Daemon, Setup};

/// Longest wait for a notification or a state of the process.
const SOON: Duration = Duration::from_secs(20);

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self { socket, folder }
    }

    fn of(&self, setup: Setup) -> Setup {
        setup.env("NOTIFY_SOCKET", self.folder.path().join("notify").to_str().unwrap())
    }

    /// The next notification but keep-alives.
    fn next(&self) -> String {
        loop {
            let text = self.any();
            if text != "WATCHDOG=1\n" {
                return text;
            }
        }
    }

    fn any(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a notification comes");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }
}

#[test]
fn start_reload_and_stop_are_notified() {
    let manager = Manager::new();
    let daemon = manager.of(Setup::new(&pool(1, 1, ""))).start();
    assert_eq!(manager.next(), "READY=1\nSTATUS=serving\n");
    assert_eq!(daemon.request("POST", "/v1/reload", None), (200, json!({ "changes": [], "warnings": [] })));
    assert!(manager.next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.next(), "READY=1\nSTATUS=serving\n");
    std::fs::write(daemon.config_file(), "[node]\nmax_paralel = 5\n").unwrap();
    assert_eq!(daemon.request("POST", "/v1/reload", None).0, 400);
    assert!(manager.next().starts_with("RELOADING=1\n"));
    let failed = manager.next();
    assert!(failed.starts_with("READY=1\nSTATUS=serving; the last reload failed: "), "{failed}");
    assert!(failed.contains("max_paralel") && failed.lines().count() == 2, "{failed}");
    assert!(daemon.stop().success());
    assert_eq!(manager.next(), "STOPPING=1\n");
}

#[test]
fn the_loop_feeds_the_watchdog() {
    let manager = Manager::new();
    let daemon = manager.of(Setup::new(&pool(1, 1, ""))).env("WATCHDOG_USEC", "300000").start();
    let mut fed = 0;
    while fed < 4 {
        fed += usize::from(manager.any() == "WATCHDOG=1\n");
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_manager_that_does_not_read_blocks_nothing() {
    let manager = Manager::new();
    // Far more keep-alives than its socket holds.
    let daemon = manager.of(Setup::new(&pool(1, 1, ""))).env("WATCHDOG_USEC", "3000").start();
    let full = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < full {
        assert_eq!(daemon.get("/v1/status")["level"], "normal");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(daemon.stop().success());
}

#[test]
fn reload_answers_with_the_reason_why_nothing_changed() {
    let daemon = Setup::new(&pool(1, 1, "")).start();
    std::fs::write(daemon.config_file(), pool(1, 3, "")).unwrap();
    let done = daemon.ctl(&["reload"]);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(daemon.get("/v1/pools")[0]["capacity"], 3);
    std::fs::write(daemon.config_file(), "[pools.chat.park]\nmax_wait = 30\n").unwrap();
    let refused = daemon.ctl(&["reload"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("nothing changed") && why.contains(":2: ") && why.contains("\"30s\""), "{why}");
    assert_eq!(daemon.get("/v1/pools")[0]["capacity"], 3, "the configuration in force stays");
}

#[test]
fn signals_before_ready_are_kept() {
    let stopped = "governord has stopped";
    for (signal, log) in [(Signal::HUP, "configuration reloaded"), (Signal::USR2, stopped), (Signal::TERM, stopped)] {
        let mut start = Start::stalled();
        start.signal(signal);
        start.go_on();
        start.wait_for_log(log);
        if signal == Signal::HUP {
            start.signal(Signal::TERM);
        }
        let status = start.child.wait().unwrap();
        assert!(status.success(), "{signal:?}: {status}\n{}", start.log());
    }
}

/// A daemon whose start waits for its configuration, which is a FIFO that nothing writes to yet.
struct Start {
    child: Child,
    daemon: Daemon,
    log: PathBuf,
}

impl Start {
    fn stalled() -> Self {
        let daemon = Setup::new("").prepared();
        let config = daemon.config_file();
        let log = config.with_file_name("early.log");
        std::fs::remove_file(&config).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &config, Mode::RUSR | Mode::WUSR).unwrap();
        let child = daemon.command().stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let start = Self { child, daemon, log };
        let signals = [Signal::HUP, Signal::USR2, Signal::TERM];
        start.wait_until("it handles signals", || signals.iter().all(|signal| start.handles(*signal)));
        start
    }

    /// Whether the process has a handler of its own for the signal.
    fn handles(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(caught, 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Gives the daemon its configuration, and a file in its place for a reload.
    fn go_on(&self) {
        let config = self.daemon.config_file();
        let mut fifo = std::fs::File::options().write(true).open(&config).unwrap();
        let file = config.with_extension("new");
        std::fs::write(&file, pool(1, 1, "")).unwrap();
        std::fs::rename(&file, &config).unwrap();
        fifo.write_all(pool(1, 1, "").as_bytes()).unwrap();
    }

    fn wait_for_log(&self, words: &str) {
        self.wait_until(words, || self.log().contains(words));
    }

    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < end, "{what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_plain_user_learns_which_settings_to_change() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("becoming another user needs root");
    }
    let mut command = Command::new(support::programs::bins::binary("governord"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.path().join("governor.toml");
    std::fs::write(&config, pool(1, 1, "")).unwrap();
    command.arg("--config").arg(&config).env_clear().env("XDG_RUNTIME_DIR", "/run/user/65534").env("HOME", "/home/mia");
    let output = command.uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for line in [
        "[daemon]",
        "socket = \"/run/user/65534/governor/proxy.sock\"",
        "control_socket = \"/run/user/65534/governor/control.sock\"",
        "state_dir = \"/home/mia/.local/state/governor\"",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
