//! Names for cgroup-v2 ids. An id is the inode number of the group's folder, so a folder made again under the same
//! path has another id: counts follow the path, and an id whose folder is gone has none.
//!
//! On a host whose controllers live in v1 (hybrid or pure v1) most processes sit at the v2 root. That root would be one
//! group that stands for everyone, so there it is never shown as a group; only v2 folders below it are.

use super::privileged;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Folders looked at in one walk; far above what systemd or a container runtime makes.
const MOST_FOLDERS: usize = 65_536;
/// Between audits the tree is read at most this often, and …
const PAUSE: Duration = Duration::from_millis(200);
/// … for at most one part in this many of the time.
const SHARE: u32 = 20;

/// How this host lays out its cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// Only v2.
    Unified(PathBuf),
    /// v2 beside v1 controllers.
    Hybrid(PathBuf),
    /// No v2 mount.
    Legacy,
}

/// What a cgroup id means on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A group with this path below the v2 root.
    At(String),
    /// A group whose folder is gone while sockets of it live on.
    Gone,
    /// The v2 root of a hybrid host, or no id: says nothing about whose socket it is.
    Unattributed,
}

/// The id → path table.
#[derive(Debug)]
pub(crate) struct Cgroups {
    hierarchy: Hierarchy,
    root_id: u64,
    paths: BTreeMap<u64, String>,
    /// Ids that the last reading of the tree did not find: asking again is useless until the next audit.
    gone: BTreeSet<u64>,
    not_before: Option<Instant>,
}

impl Cgroups {
    /// Finds the v2 mount, or takes `root` for it, and reads the tree once.
    pub(crate) fn detect(root: Option<&Path>) -> Self {
        let table = privileged::mounts().unwrap_or_default();
        let hierarchy = match (root, layout(&table)) {
            (Some(root), Hierarchy::Hybrid(_)) => Hierarchy::Hybrid(root.to_owned()),
            (Some(root), _) => Hierarchy::Unified(root.to_owned()),
            (None, found) => found,
        };
        let mut cgroups =
            Self { hierarchy, root_id: 0, paths: BTreeMap::new(), gone: BTreeSet::new(), not_before: None };
        cgroups.refresh();
        cgroups
    }

    /// Makes sure that the table covers `ids`: reads the tree again when one is new, at most 5 % of the time.
    pub(crate) fn learn(&mut self, ids: &BTreeSet<u64>, now: Instant) {
        let known = |id: &u64| *id == 0 || self.paths.contains_key(id) || self.gone.contains(id);
        if ids.iter().all(known) || self.not_before.is_some_and(|then| now < then) {
            return;
        }
        self.refresh();
        self.gone = ids.iter().filter(|id| !self.paths.contains_key(id)).copied().collect();
        self.not_before = Some(now + PAUSE.max(now.elapsed() * SHARE));
    }

    /// Reads the tree again; called at audits, so that removed folders are noticed too.
    pub(crate) fn refresh(&mut self) {
        self.gone.clear();
        let Some(root) = self.root().map(Path::to_owned) else { return };
        let mut paths = BTreeMap::new();
        self.root_id = fs::metadata(&root).map_or(0, |folder| folder.ino());
        paths.insert(self.root_id, "/".to_owned());
        let mut open = vec![(root, String::new())];
        while let Some((folder, path)) = open.pop() {
            // A folder that vanished during the walk has no children any more.
            let Ok(children) = subfolders(&folder) else { continue };
            for (name, id) in children {
                let below = format!("{path}/{name}");
                open.push((folder.join(&name), below.clone()));
                paths.insert(id, below);
            }
            if paths.len() > MOST_FOLDERS {
                break;
            }
        }
        self.paths = paths;
    }

    /// What `id` means.
    pub(crate) fn group(&self, id: u64) -> Group {
        let root_of_everyone = id == self.root_id && !matches!(self.hierarchy, Hierarchy::Unified(_));
        if id == 0 || root_of_everyone || self.hierarchy == Hierarchy::Legacy {
            return Group::Unattributed;
        }
        self.paths.get(&id).map_or(Group::Gone, |path| Group::At(path.clone()))
    }

    /// Why per-cgroup counts cannot be given at all, if so.
    pub(crate) fn unavailable(&self) -> Option<&'static str> {
        match &self.hierarchy {
            Hierarchy::Unified(_) => None,
            Hierarchy::Hybrid(_) if self.paths.len() > 1 => None,
            Hierarchy::Hybrid(_) => Some(
                "connections per cgroup are unavailable: this host uses v1 cgroups and every process is in the v2 root",
            ),
            Hierarchy::Legacy => {
                Some("connections per cgroup are unavailable: no cgroup2 is mounted (v1 groups do not reach sockets)")
            }
        }
    }

    /// The v2 mount.
    pub(crate) fn root(&self) -> Option<&Path> {
        match &self.hierarchy {
            Hierarchy::Unified(root) | Hierarchy::Hybrid(root) => Some(root),
            Hierarchy::Legacy => None,
        }
    }
}

/// The v2 mount by the mount table.
pub(crate) fn find_root() -> Option<PathBuf> {
    match layout(&privileged::mounts().unwrap_or_default()) {
        Hierarchy::Unified(root) | Hierarchy::Hybrid(root) => Some(root),
        Hierarchy::Legacy => None,
    }
}

/// Folders right below `folder` with their inode numbers.
fn subfolders(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.ino()));
        }
    }
    Ok(found)
}

/// The layout by the mount table (`/proc/self/mountinfo`).
fn layout(mounts: &str) -> Hierarchy {
    let mut unified = None;
    let mut controllers = false;
    for line in mounts.lines() {
        // "36 35 98:0 /root /mount/point options [optional…] - fstype source super-options"
        let Some((front, back)) = line.split_once(" - ") else { continue };
        match back.split(' ').next() {
            Some("cgroup2") if unified.is_none() => unified = front.split(' ').nth(4).map(unescape),
            Some("cgroup") => controllers = true,
            _ => {}
        }
    }
    match unified {
        Some(root) if controllers => Hierarchy::Hybrid(root),
        Some(root) => Hierarchy::Unified(root),
        None => Hierarchy::Legacy,
    }
}

/// Mount points carry blanks and the like as `\040`.
pub(crate) fn unescape(field: &str) -> PathBuf {
    let mut path = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        path.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                path.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                path.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    path.push_str(rest);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
    const V1: &str = "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    const V2_BELOW: &str = "41 24 0:36 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 none rw\n";

    #[test]
    fn the_layout_is_read_from_the_mount_table() {
        assert_eq!(layout(V2), Hierarchy::Unified("/sys/fs/cgroup".into()));
        assert_eq!(layout(&format!("{V1}{V2_BELOW}")), Hierarchy::Hybrid("/sys/fs/cgroup/uni fied".into()));
        assert_eq!(layout(V1), Hierarchy::Legacy);
        assert_eq!(layout("garbage"), Hierarchy::Legacy);
    }

    fn table(hierarchy: Hierarchy, groups: &[(u64, &str)]) -> Cgroups {
        let mut paths = BTreeMap::from([(1, "/".to_owned())]);
        paths.extend(groups.iter().map(|(id, path)| (*id, (*path).to_owned())));
        Cgroups { hierarchy, root_id: 1, paths, gone: BTreeSet::new(), not_before: None }
    }

    #[test]
    fn the_root_of_a_hybrid_host_is_nobodys_group() {
        let hybrid = table(Hierarchy::Hybrid("/x".into()), &[(25, "/g")]);
        assert_eq!(hybrid.group(1), Group::Unattributed);
        assert_eq!(hybrid.group(25), Group::At("/g".into()));
        assert_eq!(hybrid.unavailable(), None);
        assert!(table(Hierarchy::Hybrid("/x".into()), &[]).unavailable().is_some());

        let unified = table(Hierarchy::Unified("/x".into()), &[]);
        assert_eq!(unified.group(1), Group::At("/".into()));
        assert!(table(Hierarchy::Legacy, &[]).unavailable().is_some());
    }

    #[test]
    fn a_folder_made_again_is_another_group_and_the_old_id_has_no_path() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("g");
        fs::create_dir(&folder).unwrap();
        let before = fs::metadata(&folder).unwrap().ino();
        let mut cgroups = Cgroups::detect(Some(root.path()));
        assert_eq!(cgroups.group(before), Group::At("/g".into()));

        // Moving it away keeps its inode number in use, as a cgroup with live sockets does.
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(&folder, elsewhere.path().join("g")).unwrap();
        fs::create_dir(&folder).unwrap();
        cgroups.learn(&BTreeSet::from([before, 1]), Instant::now());
        let after = fs::metadata(&folder).unwrap().ino();
        assert_eq!(cgroups.group(before), Group::Gone);
        assert_eq!(cgroups.group(after), Group::At("/g".into()));
    }
}
