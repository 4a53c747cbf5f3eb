//! A BPF file system of a test's own, so that its pins are nobody else's. Unmounted on drop, and what is pinned in it goes
//! with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

const PREFIX: &str = "governor-bpffs-";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A mounted bpffs.
#[derive(Debug)]
pub struct Bpffs(PathBuf);

impl Bpffs {
    /// Mounts one in the temporary folder.
    ///
    /// # Errors
    /// What `mount` said: usually that the rights or the file system are missing.
    pub fn mount() -> io::Result<Self> {
        sweep();
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder)?;
        // Before the mount: the folder goes whatever becomes of it.
        let mounted = Self(folder);
        run("mount", &["-t", "bpf", "bpf", &mounted.text()])?;
        Ok(mounted)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A folder for pins in it, not made yet.
    #[must_use]
    pub fn pins(&self) -> PathBuf {
        self.0.join("governor")
    }

    /// Lets nothing be written to it any more.
    ///
    /// # Errors
    /// What `mount` said.
    pub fn make_read_only(&self) -> io::Result<()> {
        run("mount", &["-o", "remount,bind,ro", &self.text()])
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        // A failure shows as a leftover, which the next run sweeps.
        drop(run("umount", &[&self.text()]));
        drop(fs::remove_dir(&self.0));
    }
}

/// Unmounts those of test processes that do not run any more.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).map(str::to_owned);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(Bpffs(entry.path()));
        }
    }
}

fn run(command: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(command).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
