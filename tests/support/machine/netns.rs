//! Private network namespaces, named so that a later run can sweep what a killed one left.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

const PREFIX: &str = "governor-test-";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace with loopback up, deleted on drop. IPv4 acknowledges at once there: what a delayed ACK brings about,
/// such as the end of a connection, happens on the time of whatever task its timer interrupts, and a machine can have tasks
/// that no tracing program ever runs on (seen of the threads of a machine's first process: 670 switches to them, none from
/// them, and not one event between, for perf as for our programs). On such a machine a test with thousands of connections
/// would now and then miss a batch of ends, which the next audit repairs and calls drift.
#[derive(Debug)]
pub struct Netns {
    name: String,
    inode: u64,
}

impl Netns {
    /// Makes one.
    ///
    /// # Errors
    /// What `ip` said: usually that the rights are missing.
    pub fn create() -> io::Result<Self> {
        sweep();
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let mut namespace = Self { name, inode: 0 };
        ip(&["-n", &namespace.name, "link", "set", "lo", "up"])?;
        namespace.acknowledge("1")?;
        namespace.inode = fs::metadata(namespace.path())?.ino();
        Ok(namespace)
    }

    /// Writes a setting of the namespace below `/proc/sys/net`, e.g. `ipv4/tcp_syncookies`; `false` where the kernel does
    /// not have it or refuses.
    #[must_use]
    pub fn set(&self, setting: &str, value: &str) -> bool {
        let script = format!("echo {value} > /proc/sys/net/{setting}");
        let command = ["netns", "exec", &self.name, "sh", "-c", &script];
        Path::new("/proc/sys/net").join(setting).exists()
            && Command::new("ip").args(command).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Lets ACKs wait for data to go with, as they do elsewhere.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn delay_acknowledgements(&self) -> io::Result<()> {
        self.acknowledge("0")
    }

    fn acknowledge(&self, at_once: &str) -> io::Result<()> {
        ["127.0.0.0/8", "127.0.0.1"].iter().try_for_each(|to| {
            let route = ["route", "replace", "local", to, "dev", "lo", "table", "local", "src", "127.0.0.1"];
            ip(&[&["-n", &self.name], &route[..], &["quickack", at_once]].concat())
        })
    }

    /// Gives 192.0.2.0/24 a route that leads nowhere.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn add_nowhere(&self) -> io::Result<()> {
        ip(&["-n", &self.name, "route", "add", "192.0.2.0/24", "dev", "lo"])
    }

    /// Inode number, as observations name it.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The file to enter it by.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// The name for `ip` and `ss`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // A failure shows as a leftover, which the next run sweeps.
        drop(ip(&["netns", "del", &self.name]));
    }
}

/// Deletes namespaces of test processes that do not run any more.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).map(str::to_owned);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(ip(&["netns", "del", &name]));
        }
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
