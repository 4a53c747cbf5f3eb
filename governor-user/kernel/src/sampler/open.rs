//! Open connections by cgroup, as the tier in use counts them.

use super::Sampler;
use crate::accounting::connections::Open;
use crate::programs::tracepoint::Reading;
use governor_observation::Tier;
use std::collections::BTreeMap;

impl Sampler {
    /// Open connections by cgroup id; `None` where this tier or this host does not count them.
    pub(super) fn open_connections(&self, reading: Option<&Reading>) -> Option<BTreeMap<u64, Open>> {
        if self.cgroups.unavailable().is_some() {
            return None;
        }
        match self.tier {
            Tier::Procfs => None,
            // A sum over some of the namespaces would look like a fall.
            Tier::Netlink => (!self.misses_connections()).then(|| self.polled_connections()),
            Tier::Tracepoint | Tier::Trampoline => {
                let counted = reading?.cgroups.as_ref()?.iter();
                let open = counted.map(|(id, open)| (*id, Open { inbound: open.inbound, outbound: open.outbound }));
                Some(open.filter(|(_, open)| *open != Open::default()).collect())
            }
        }
    }

    /// Connections by the cgroup that created their listener, where they count under the one that accepted.
    pub(super) fn owned_connections(&self) -> Option<BTreeMap<u64, u64>> {
        if !self.sees_accepts || self.cgroups.unavailable().is_some() || self.misses_connections() {
            return None;
        }
        // 0 stands for sockets whose cgroup the kernel does not show.
        let owned = self.polled_connections().into_iter().filter(|(id, open)| *id != 0 && open.inbound > 0);
        Some(owned.map(|(id, open)| (id, open.inbound)).collect())
    }

    /// Connections of a namespace that was read are not known now.
    fn misses_connections(&self) -> bool {
        self.reached.iter().any(|netns| !self.connections.contains_key(netns))
    }

    fn polled_connections(&self) -> BTreeMap<u64, Open> {
        let mut sum: BTreeMap<u64, Open> = BTreeMap::new();
        for (id, open) in self.connections.values().flat_map(|polled| &polled.connections.by_cgroup) {
            let entry = sum.entry(*id).or_default();
            entry.inbound += open.inbound;
            entry.outbound += open.outbound;
        }
        sum
    }
}
