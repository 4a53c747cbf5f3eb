//! The monitors: each turns one measurement into 0–1000 ‰ by clamp((x − lo) / (hi − lo)); the pressure is their maximum.
//! What is unknown presses nothing.

use crate::config::{CgroupCeiling, OverloadConfig};
use crate::kernel::view::{ListenerView, Observation};
use governor_common::wire::reply::cause;
use std::collections::BTreeSet;

/// Node in flight presses from this share of the cap on, in ‰, and fully at the cap.
const NODE_LO: u32 = 800;

/// Everything the pressure is made of at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Maximum over the monitors, 0–1000 ‰.
    pub permille: u16,
    /// Bits of the monitors that press at all.
    pub causes: u32,
    /// A queue is full now: enter levels at once.
    pub urgent: bool,
    /// Maximum over the monitors that may cost admitted work its slot, 0–1000 ‰. A full accept queue in front of an idle
    /// proxy asks for a longer backlog, not for refusals.
    pub shedding: u16,
}

/// Causes that may shed work.
const SHEDDING: u32 = cause::NODE_IN_FLIGHT;

impl Pressure {
    fn add(&mut self, bit: u32, pressure: u16) {
        if pressure > 0 {
            self.causes |= bit;
            self.permille = self.permille.max(pressure);
            if bit & SHEDDING != 0 {
                self.shedding = self.shedding.max(pressure);
            }
        }
    }
}

/// Names of the bits in `causes`.
#[must_use]
pub fn cause_names(causes: u32) -> Vec<String> {
    cause::NAMES.iter().filter(|(bit, _)| causes & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

/// Weighs one observation. Listeners count if their port is configured or, when no port is, if one of `proxies` (process
/// ids of sessions) holds them.
#[must_use]
pub fn assess(
    config: &OverloadConfig,
    ceilings: &[CgroupCeiling],
    seen: &Observation,
    proxies: &BTreeSet<u32>,
    node: (u32, u32),
) -> Pressure {
    let mut pressure = Pressure::default();
    for listener in seen.listeners.iter().filter(|listener| is_watched(config, listener, proxies)) {
        if let Some(backlog) = listener.backlog {
            pressure.add(cause::ACCEPT_FILL, accept_fill(listener.depth, backlog, config.accept_fill));
        }
        // A queue seen full is overflowing, not filling.
        pressure.urgent |= listener.is_full() == Some(true);
    }
    for ceiling in ceilings {
        let open = seen
            .cgroups
            .iter()
            .flatten()
            .filter(|cgroup| cgroup.path.as_deref() == Some(ceiling.path.as_str()))
            .map(|cgroup| cgroup.inbound.saturating_add(cgroup.outbound))
            .max();
        if let Some(open) = open {
            let fill = permille(open, u64::from(ceiling.max_connections));
            pressure.add(cause::CGROUP_CONNECTIONS, ramp(fill, config.connections));
        }
    }
    let (counted, cap) = node;
    if cap > 0 {
        let fill = permille(u64::from(counted), u64::from(cap));
        pressure.add(cause::NODE_IN_FLIGHT, ramp(fill, (NODE_LO, 1000)));
    }
    pressure
}

/// Pressure of an accept queue. It holds backlog + 1, and utilisation is clamped to 1.
fn accept_fill(depth: u32, backlog: u32, range: (u32, u32)) -> u16 {
    ramp(permille(u64::from(depth), u64::from(backlog) + 1), range)
}

fn is_watched(config: &OverloadConfig, listener: &ListenerView, proxies: &BTreeSet<u32>) -> bool {
    if config.ports.is_empty() {
        listener.pids.iter().any(|pid| proxies.contains(pid))
    } else {
        config.ports.contains(&listener.port)
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    (part.saturating_mul(1000) / whole.max(1)).min(1000)
}

fn ramp(x: u64, (lo, hi): (u32, u32)) -> u16 {
    let (lo, hi) = (u64::from(lo), u64::from(hi));
    let pressure = (x.clamp(lo, hi.max(lo)) - lo) * 1000 / hi.saturating_sub(lo).max(1);
    u16::try_from(pressure.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::view::{Basis, CgroupView};
    use governor_engine::time::Duration;

    fn config(ports: &[u16]) -> OverloadConfig {
        OverloadConfig {
            accept_fill: (500, 1000),
            connections: (700, 1000),
            ports: ports.to_vec(),
            hold: Duration::from_secs(2),
        }
    }

    fn listener(port: u16, depth: u32, backlog: Option<u32>, pids: &[u32]) -> ListenerView {
        ListenerView { backlog, depth, pids: pids.to_vec(), ..ListenerView::bare(port) }
    }

    fn pressure(listeners: Vec<ListenerView>, ports: &[u16], proxies: &[u32]) -> Pressure {
        let seen = Observation { listeners, ..Observation::default() };
        assess(&config(ports), &[], &seen, &proxies.iter().copied().collect(), (0, 0))
    }

    #[test]
    fn a_full_queue_holds_backlog_plus_one_and_is_urgent() {
        for (depth, backlog, fill, urgent) in
            [(5, 4, 1000, true), (4, 4, 600, false), (1, 0, 1000, true), (0, 0, 0, false)]
        {
            let pressure = pressure(vec![listener(80, depth, Some(backlog), &[])], &[80], &[]);
            assert_eq!((pressure.permille, pressure.urgent), (fill, urgent), "{depth}/{backlog}");
        }
    }

    #[test]
    fn an_unknown_backlog_presses_nothing() {
        assert_eq!(pressure(vec![listener(80, 500, None, &[])], &[80], &[]), Pressure::default());
    }

    #[test]
    fn one_hot_socket_of_a_reuse_port_group_is_enough() {
        let group = vec![
            listener(443, 129, Some(128), &[7]),
            listener(443, 0, Some(128), &[7]),
            listener(443, 2, Some(128), &[7]),
        ];
        let pressure = pressure(group, &[], &[7]);
        assert_eq!((pressure.permille, pressure.causes), (1000, cause::ACCEPT_FILL));
        assert_eq!(pressure.shedding, 0, "a longer backlog would help, refusals would not");
    }

    #[test]
    fn listeners_of_strangers_are_not_the_proxys_overload() {
        assert_eq!(pressure(vec![listener(80, 9, Some(8), &[1])], &[], &[7]), Pressure::default());
    }

    #[test]
    fn connections_press_from_their_range_up_to_the_ceiling() {
        let ceilings = [CgroupCeiling { path: "/gw".to_owned(), max_connections: 100 }];
        for (inbound, outbound, expected) in [(60, 10, 0), (80, 5, 500), (90, 10, 1000), (500, 0, 1000)] {
            let cgroup = CgroupView {
                id: 1,
                path: Some("/gw".to_owned()),
                inbound,
                outbound,
                inbound_basis: Basis::Owner,
                inbound_owned: None,
            };
            let seen = Observation { cgroups: Some(vec![cgroup]), ..Observation::default() };
            let pressure = assess(&config(&[]), &ceilings, &seen, &BTreeSet::new(), (0, 1000));
            assert_eq!(pressure.permille, expected, "{inbound}+{outbound}");
        }
    }

    #[test]
    fn the_node_presses_from_eighty_percent_of_its_cap() {
        let weigh =
            |counted| assess(&config(&[]), &[], &Observation::default(), &BTreeSet::new(), (counted, 1000)).permille;
        assert_eq!((weigh(800), weigh(900), weigh(1000)), (0, 500, 1000));
        assert_eq!(
            assess(&config(&[]), &[], &Observation::default(), &BTreeSet::new(), (900, 1000)).shedding,
            500,
            "it is the node's own work"
        );
    }
}
