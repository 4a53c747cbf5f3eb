//! What the demo puts into the system and takes away again: a temporary folder and, for root, two cgroups.

use super::child::Program;
use anyhow::{Context, Result, bail};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// A private folder for sockets, state and logs, removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new folder that only this user can enter.
    pub(super) fn create() -> Result<Self> {
        let path = env::temp_dir().join(format!("governor-demo-{}", process::id()));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Two cgroup-v2 folders, one for the gateway and one for the load, removed when dropped. Both must be empty by then.
#[derive(Debug)]
pub(super) struct Cgroups(PathBuf);

impl Cgroups {
    /// Creates the folders where this process's own v2 cgroup is, and tries whether a process can enter them.
    pub(super) fn create(logs: &Path) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mount_point(&mounts).context("no cgroup2 file system is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let parent = own_folder(&mount, &own);
        let cgroups = Self(parent.join(format!("governor-demo-{}", process::id())));
        for folder in [cgroups.0.clone(), cgroups.gateway(), cgroups.load()] {
            fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for folder in [cgroups.gateway(), cgroups.load()] {
            let mut probe = Program::new("cgroup probe", "true".into()).cgroup(Some(folder)).start(logs)?;
            if probe.wait(Duration::from_secs(5))?.is_none_or(|status| !status.success()) {
                bail!("a process cannot enter {}", cgroups.0.display());
            }
        }
        Ok(cgroups)
    }

    /// Where the gateway runs.
    pub(super) fn gateway(&self) -> PathBuf {
        self.0.join("gateway")
    }

    /// Where the load runs.
    pub(super) fn load(&self) -> PathBuf {
        self.0.join("load")
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // A cgroup stays busy for a moment after its last process was waited for.
        let until = Instant::now() + Duration::from_secs(2);
        for folder in [self.gateway(), self.load(), self.0.clone()] {
            while folder.exists() && fs::remove_dir(&folder).is_err() && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Where cgroup v2 is mounted: on a hybrid host in a sub-folder of the v1 hierarchies.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let is_v2 = kind.split(' ').next() == Some("cgroup2");
        is_v2.then(|| fields.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The folder of a process's own v2 cgroup; the mount itself when that lies outside of what is mounted.
fn own_folder(mount: &Path, cgroup: &str) -> PathBuf {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let folder = mount.join(path);
    if path.starts_with("..") || !folder.is_dir() { mount.to_path_buf() } else { folder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v2_mount_is_found_on_unified_and_hybrid_hosts() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let hybrid = "31 25 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      32 31 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 31 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw";
        assert_eq!(mount_point(unified), Some("/sys/fs/cgroup".into()));
        assert_eq!(mount_point(hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("31 25 0:27 / /proc rw - proc proc rw"), None);
    }

    #[test]
    fn a_cgroup_outside_of_the_mount_is_replaced_by_the_mount() {
        let folder = Folder::create().unwrap();
        fs::create_dir(folder.path().join("session")).unwrap();
        assert_eq!(own_folder(folder.path(), "9:cpu:/x\n0::/session\n"), folder.path().join("session"));
        for outside in ["0::/../other\n", "0::/gone\n", "9:cpu:/x\n"] {
            assert_eq!(own_folder(folder.path(), outside), folder.path(), "{outside:?}");
        }
        assert_eq!(own_folder(folder.path(), "0::/\n"), folder.path().join(""));
    }
}
