//! A real daemon as a kernel test sees it: started on pins of its own, asked over its control socket, its maps read past it.

use aya::maps::{HashMap, Map, MapData};
use governor_common::abi::{CgroupKey, CgroupState, ListenerState};
use serde_json::Value;
use std::path::Path;
use support::machine::bpffs::Bpffs;
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::programs::daemon::{Daemon, Setup};
use support::skip;

/// A bpffs of the test's own; `None`, and a line that says why, where it cannot be had.
pub(crate) fn bpffs() -> Option<Bpffs> {
    match Bpffs::mount() {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            skip(&format!("no bpffs can be mounted: {error}"));
            None
        }
    }
}

/// A real daemon on the best tier that pins in `folder`; `None`, and a line that says why, where no programs can be loaded.
pub(crate) fn daemon(folder: &Path) -> Option<Daemon> {
    let setup = Setup::new("").tier("auto").env("GOVERNOR_KERNEL_TICK", "20ms").env("GOVERNOR_KERNEL_AUDIT", "500ms");
    match setup.pins(folder).try_start() {
        Ok(daemon) => Some(daemon),
        Err(refusal) if refusal.log.contains("this tier has nothing to pin") => {
            skip("no programs can be loaded here");
            None
        }
        Err(refusal) => panic!("{}: {}", refusal.status, refusal.log),
    }
}

/// The rows of a namespace's listeners, as the daemon tells them.
pub(crate) fn rows_in(rows: &Value, namespace: &Netns) -> Vec<Value> {
    let rows = rows.as_array().into_iter().flatten();
    rows.filter(|row| row["netns"] == namespace.inode()).cloned().collect()
}

/// The row of the listener on `port`, if it is seen.
pub(crate) fn row_of(rows: &Value, namespace: &Netns, port: u16) -> Option<Value> {
    rows_in(rows, namespace).into_iter().find(|row| row["port"] == port)
}

/// Open connections of a cgroup, inbound and outbound, as the daemon tells them.
pub(crate) fn open_of(groups: &Value, cgroup: &Cgroup) -> (u64, u64) {
    let group = groups.as_array().into_iter().flatten().find(|group| group["path"] == cgroup.path());
    let count = |group: &Value, which: &str| group[which].as_u64().expect("a group has both counts");
    group.map_or((0, 0), |group| (count(group, "inbound"), count(group, "outbound")))
}

/// What the counts must never show: drift, sockets without an entry, lost events.
pub(crate) fn wrong(status: &Value) -> [u64; 3] {
    ["drift", "untracked", "lost_events"].map(|name| status["kernel"][name].as_u64().expect("a count"))
}

/// Entries of the listeners' map that belong to one of these network namespaces.
pub(crate) fn listener_entries(pins: &Path, namespaces: &[u64]) -> usize {
    let map: HashMap<_, u64, ListenerState> = pinned(pins, "map_LISTENERS");
    let entries = map.iter().filter_map(Result::ok);
    entries.filter(|(_, listener)| namespaces.contains(&listener.netns.into())).count()
}

/// Entries of the cgroups' map that belong to one of these cgroups.
pub(crate) fn cgroup_entries(pins: &Path, cgroups: &[u64]) -> usize {
    let map: HashMap<_, CgroupKey, CgroupState> = pinned(pins, "map_CGROUPS");
    map.keys().filter_map(Result::ok).filter(|key| cgroups.contains(&key.cgroup)).count()
}

/// Adds connections to a cgroup's count of what was opened inbound, as programs would that never see them close.
pub(crate) fn forge_opened(pins: &Path, key: CgroupKey, count: u64) {
    let mut map: HashMap<_, CgroupKey, CgroupState> = pinned(pins, "map_CGROUPS");
    let mut state = map.get(&key, 0).expect("connections of it are open");
    state.inbound_opened += count;
    map.insert(key, state, 0).expect("an entry can be replaced");
}

fn pinned<K: aya::Pod, V: aya::Pod>(pins: &Path, name: &str) -> HashMap<MapData, K, V> {
    let map = MapData::from_pin(pins.join(name)).and_then(Map::from_map_data);
    map.and_then(HashMap::try_from).expect("the daemon has pinned it")
}
