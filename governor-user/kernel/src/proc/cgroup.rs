//! Names for cgroup-v2 ids. An id is the inode number of the group's folder, so a folder made again under the same
//! path has another id: counts follow the path, and an id whose folder is gone has none.
//!
//! On a host whose controllers live in v1 (hybrid or pure v1) most processes sit at the v2 root. That root would be one
//! group that stands for everyone, so there it is never shown as a group; only v2 folders below it are.

use crate::proc::privileged;
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
    /// The v2 root of a hybrid host, no id, or an id that is not known while the tree cannot be read: the owner is unknown.
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
    /// Why the last reading of the tree was incomplete. Known paths are kept then, and no id is taken for one of a
    /// removed group.
    failure: Option<String>,
    /// It was incomplete because there are more than [`MOST_FOLDERS`].
    truncated: bool,
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
        let mut cgroups = Self {
            hierarchy,
            root_id: 0,
            paths: BTreeMap::new(),
            gone: BTreeSet::new(),
            not_before: None,
            failure: None,
            truncated: false,
        };
        cgroups.refresh();
        cgroups
    }

    /// Makes sure that the table covers `ids`: reads the tree again when an id is new or the last reading failed, at most 5 %
    /// of the time.
    pub(crate) fn learn(&mut self, ids: &BTreeSet<u64>, now: Instant) {
        let known = |id: &u64| *id == 0 || self.paths.contains_key(id) || self.gone.contains(id);
        // A tree that is too large is too large the next time too.
        let complete = (self.failure.is_none() || self.truncated) && ids.iter().all(known);
        if complete || self.not_before.is_some_and(|then| now < then) {
            return;
        }
        self.refresh();
        self.gone = ids.iter().filter(|id| !self.paths.contains_key(id)).copied().collect();
        self.not_before = Some(now + PAUSE.max(now.elapsed() * SHARE));
    }

    /// Reads the tree again; called at audits, so that removed folders are noticed too.
    pub(crate) fn refresh(&mut self) {
        self.gone.clear();
        self.truncated = false;
        let Some(root) = self.root().map(Path::to_owned) else { return };
        match self.read_tree(root) {
            Ok((paths, failure)) => {
                if failure.is_none() || self.paths.len() > 2 * MOST_FOLDERS {
                    self.paths = paths;
                } else {
                    self.paths.extend(paths);
                }
                self.failure = failure;
            }
            Err(reason) => self.failure = Some(reason),
        }
    }

    /// The paths of all folders, and why some are missing.
    ///
    /// # Errors
    /// The root cannot be read, or another file system is mounted there.
    fn read_tree(&mut self, root: PathBuf) -> Result<(BTreeMap<u64, String>, Option<String>), String> {
        let cannot = |folder: &Path, error: &io::Error| format!("{} cannot be read: {error}", folder.display());
        let root_id = fs::metadata(&root).map_err(|error| cannot(&root, &error))?.ino();
        // An unmounted cgroup2 leaves an empty folder of another file system, which would mean that all groups are removed.
        if self.root_id != 0 && root_id != self.root_id {
            return Err(format!("{} is not the cgroup2 mount that was found at the start", root.display()));
        }
        self.root_id = root_id;
        let mut paths = BTreeMap::from([(root_id, "/".to_owned())]);
        let mut failure = None;
        let mut open = vec![(root, String::new())];
        while let Some((folder, path)) = open.pop() {
            let children = match subfolders(&folder) {
                Ok(children) => children,
                // A folder that vanished during the walk has no children any more.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_empty() => continue,
                Err(error) => {
                    failure.get_or_insert_with(|| cannot(&folder, &error));
                    continue;
                }
            };
            for (name, id) in children {
                let below = format!("{path}/{name}");
                open.push((folder.join(&name), below.clone()));
                paths.insert(id, below);
            }
            if paths.len() > MOST_FOLDERS {
                self.truncated = true;
                failure = Some(format!("there are more than {MOST_FOLDERS} cgroups"));
                break;
            }
        }
        Ok((paths, failure))
    }

    /// Why the last reading of the tree was incomplete; `None` when it was complete.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What `id` means.
    pub(crate) fn group(&self, id: u64) -> Group {
        let root_of_everyone = id == self.root_id && !matches!(self.hierarchy, Hierarchy::Unified(_));
        if id == 0 || root_of_everyone || self.hierarchy == Hierarchy::Legacy {
            return Group::Unattributed;
        }
        match self.paths.get(&id) {
            Some(path) => Group::At(path.clone()),
            None if self.failure.is_some() => Group::Unattributed,
            None => Group::Gone,
        }
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
        Cgroups {
            hierarchy,
            root_id: 1,
            paths,
            gone: BTreeSet::new(),
            not_before: None,
            failure: None,
            truncated: false,
        }
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

    #[test]
    fn groups_keep_their_paths_while_the_tree_cannot_be_read() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("cgroup");
        let elsewhere = parent.path().join("elsewhere");
        fs::create_dir_all(root.join("g")).unwrap();
        let group = fs::metadata(root.join("g")).unwrap().ino();
        let mut cgroups = Cgroups::detect(Some(&root));
        let start = Instant::now();
        let unknown = u64::MAX;

        // The mount is gone: first nothing is there, then the empty folder below it.
        fs::rename(&root, &elsewhere).unwrap();
        cgroups.refresh();
        assert!(cgroups.failure().unwrap().contains("No such file"), "{:?}", cgroups.failure());
        fs::create_dir(&root).unwrap();
        cgroups.learn(&BTreeSet::from([group, unknown]), start);
        assert!(cgroups.failure().unwrap().contains("not the cgroup2 mount"), "{:?}", cgroups.failure());
        assert_eq!((cgroups.group(group), cgroups.group(unknown)), (Group::At("/g".into()), Group::Unattributed));

        fs::remove_dir(&root).unwrap();
        fs::rename(&elsewhere, &root).unwrap();
        cgroups.learn(&BTreeSet::from([group]), start + Duration::from_secs(60));
        assert_eq!((cgroups.failure(), cgroups.group(unknown)), (None, Group::Gone));
    }
}
