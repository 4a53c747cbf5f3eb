//! Reads how the machine and a few processes fare: pressure stall information, memory of cgroups, descriptors. A
//! handful of small files; whatever is missing or forbidden is unknown. Knows no range and no level.

use crate::proc::cgroup;
use crate::proc::privileged;
use governor_observation::vitals::Descriptors;
use governor_observation::vitals::{CgroupMemory, Vitals};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// cgroups of proxies that are looked at.
const MOST_CGROUPS: usize = 16;

/// Reads vitals.
#[derive(Debug)]
pub struct VitalsReader {
    /// The v2 mount.
    root: Option<PathBuf>,
}

impl VitalsReader {
    /// Finds the cgroup-v2 mount.
    #[must_use]
    pub fn find() -> Self {
        Self { root: cgroup::find_root() }
    }

    /// Reads those of the machine, of the cgroups of `proxies`, and of the descriptors of `proxies` and `others`.
    pub fn read(&self, proxies: &BTreeSet<u32>, others: impl Iterator<Item = u32>) -> Vitals {
        let groups: BTreeSet<String> = proxies.iter().filter_map(|pid| own_group(*pid)).take(MOST_CGROUPS).collect();
        let pids: BTreeSet<u32> = proxies.iter().copied().chain(others).collect();
        Vitals {
            cpu: self.stall(&groups, "cpu"),
            memory: self.stall(&groups, "memory"),
            cgroup_memory: groups
                .iter()
                .filter_map(|group| self.scarcest(group))
                .max_by_key(|memory| (memory.permille(), memory.used)),
            descriptors: pids.into_iter().filter_map(|pid| Some((pid, descriptors(pid)?))).collect(),
        }
    }

    /// Pressure of the worst of these groups; of the machine where there is none or none shows it.
    fn stall(&self, groups: &BTreeSet<String>, resource: &str) -> Option<u16> {
        let of_group = |group: &String| {
            let file = self.folder(group)?.join(format!("{resource}.pressure"));
            some_avg10(&fs::read_to_string(file).ok()?)
        };
        let worst = groups.iter().filter_map(of_group).max();
        worst.or_else(|| some_avg10(&fs::read_to_string(Path::new("/proc/pressure").join(resource)).ok()?))
    }

    /// Of a group and those above it, the one closest to its limit: a limit holds for everything below it.
    fn scarcest(&self, group: &str) -> Option<CgroupMemory> {
        let above = Path::new(group).ancestors().filter_map(Path::to_str).filter(|path| *path != "/");
        above.filter_map(|path| memory(&self.folder(path)?, path)).max_by_key(CgroupMemory::permille)
    }

    fn folder(&self, group: &str) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(group.strip_prefix('/')?))
    }
}

/// The cgroup-v2 path of a process; `None` for the root, which says nothing about it.
fn own_group(pid: u32) -> Option<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = table.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A process outside the daemon's cgroup namespace is named by a way out of it.
    (path != "/" && !path.starts_with("/..")).then(|| path.to_owned())
}

/// `avg10` of the line `some`, in ‰.
fn some_avg10(table: &str) -> Option<u16> {
    let line = table.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()?;
    let permille = std::time::Duration::try_from_secs_f64(percent.clamp(0.0, 100.0)).ok()?.as_millis() / 100;
    u16::try_from(permille).ok()
}

/// `None` where there is no limit, or no controller.
fn memory(folder: &Path, path: &str) -> Option<CgroupMemory> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max")?;
    let current = number("memory.current")?;
    // The kernel reclaims unused memory before anything fails.
    let cache = fs::read_to_string(folder.join("memory.stat"))
        .ok()
        .and_then(|table| table.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok()))
        .unwrap_or(0);
    Some(CgroupMemory { path: path.to_owned(), used: current.saturating_sub(cache), limit })
}

fn descriptors(pid: u32) -> Option<Descriptors> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let limit = soft_limit(&fs::read_to_string(process.join("limits")).ok()?)?;
    Some(Descriptors { pid, open: privileged::count_descriptors(&process).ok()?, limit })
}

/// The soft limit of open files in `/proc/<pid>/limits`; `None` where there is none.
fn soft_limit(table: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_share_in_which_some_task_waited() {
        let table = "some avg10=99.01 avg60=98.98 avg300=89.64 total=12617249303\nfull avg10=0.00 avg60=0.00 total=0\n";
        assert_eq!(some_avg10(table), Some(990));
        assert_eq!(some_avg10("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"), Some(0));
        for broken in ["", "full avg10=1.00\n", "some avg60=1.00\n", "some avg10=NaN\n", "some avg10=-1.00\n"] {
            assert!(some_avg10(broken).is_none_or(|share| share == 0), "{broken:?}");
        }
    }

    #[test]
    fn a_limit_is_the_soft_one_and_may_be_missing() {
        let table = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      524288      files\n";
        assert_eq!(soft_limit(table), Some(1024));
        assert_eq!(soft_limit("Max open files            unlimited  unlimited  files\n"), None);
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn memory_without_unused_cache_is_held_against_the_tightest_limit_above() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, max: &str, current: u64, cache: u64| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("memory.max"), format!("{max}\n")).unwrap();
            fs::write(folder.join("memory.current"), format!("{current}\n")).unwrap();
            fs::write(folder.join("memory.stat"), format!("anon 5\ninactive_file {cache}\n")).unwrap();
        };
        group("pod", "1000", 950, 50);
        group("pod/gateway", "max", 400, 0);
        group("pod/other", "1000", 800, 0);
        let reader = VitalsReader { root: Some(root.path().to_owned()) };
        let expected = CgroupMemory { path: "/pod".into(), used: 900, limit: 1000 };
        assert_eq!(reader.scarcest("/pod/gateway"), Some(expected));
        assert_eq!(reader.scarcest("/elsewhere"), None);
    }

    #[test]
    fn descriptors_of_this_process_are_counted() {
        let pid = std::process::id();
        let before = descriptors(pid).unwrap();
        let files: Vec<_> = (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = descriptors(pid).unwrap();
        assert!(after.open >= 200 && after.open > before.open, "{before:?} {after:?}");
        assert!(after.limit >= after.open);
        drop(files);
        let reader = VitalsReader { root: None };
        assert!(reader.read(&BTreeSet::new(), [pid].into_iter()).descriptors.contains_key(&pid));
        assert_eq!(descriptors(u32::MAX), None);
    }
}
