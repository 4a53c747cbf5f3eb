//! Open connections per cgroup by polling, for the tier without BPF. Counts under the creator of the socket, and for
//! inbound connections that is the creator of the listener. Pure; the tables come from `sockdiag`.

use crate::tables::sockdiag::SocketRow;
use std::collections::{BTreeMap, BTreeSet};

/// Open connections of one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    /// Its local port is a listener's.
    pub(crate) inbound: u64,
    /// Any other.
    pub(crate) outbound: u64,
}

/// Connections of one namespace.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Ports that listen, or did while a connection on them is still open: closing a listener does not turn what it
    /// accepted around.
    inbound_ports: BTreeSet<u16>,
    /// Counts by cgroup id; 0 stands for sockets whose cgroup the kernel does not show.
    pub(crate) by_cgroup: BTreeMap<u64, Open>,
}

impl Connections {
    /// Counts anew from complete tables of one namespace.
    pub(crate) fn count(&mut self, listening: impl IntoIterator<Item = u16>, connections: &[SocketRow]) {
        let ports_in_use: BTreeSet<u16> = connections.iter().map(|row| row.port).collect();
        self.inbound_ports.retain(|port| ports_in_use.contains(port));
        self.inbound_ports.extend(listening);
        self.by_cgroup.clear();
        // A queued connection whose client is gone is no process's: it counts against its listener.
        for row in connections.iter().filter(|row| !row.time_wait && !row.is_abandoned()) {
            let open = self.by_cgroup.entry(row.cgroup.unwrap_or(0)).or_default();
            if self.inbound_ports.contains(&row.port) {
                open.inbound += 1;
            } else {
                open.outbound += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn connection(port: u16, cgroup: u64) -> SocketRow {
        SocketRow {
            address: Ipv4Addr::LOCALHOST.into(),
            port,
            cookie: 0,
            inode: 1,
            receive_queue: 0,
            send_queue: 0,
            drops: None,
            cgroup: Some(cgroup),
            time_wait: false,
            close_wait: false,
            state: 1,
            mptcp: false,
        }
    }

    #[test]
    fn the_side_with_the_listener_is_inbound() {
        let mut connections = Connections::default();
        connections.count([8080], &[connection(8080, 25), connection(40_000, 26), connection(40_001, 26)]);
        assert_eq!(connections.by_cgroup[&25], Open { inbound: 1, outbound: 0 });
        assert_eq!(connections.by_cgroup[&26], Open { inbound: 0, outbound: 2 });
    }

    #[test]
    fn connections_stay_inbound_after_their_listener_closed() {
        let mut connections = Connections::default();
        connections.count([8080], &[connection(8080, 25)]);
        connections.count([], &[connection(8080, 25)]);
        assert_eq!(connections.by_cgroup[&25].inbound, 1);
        connections.count([], &[]);
        connections.count([], &[connection(8080, 25)]);
        assert_eq!(connections.by_cgroup[&25].outbound, 1);
    }

    #[test]
    fn an_abandoned_connection_is_nobodys() {
        let mut connections = Connections::default();
        let abandoned = SocketRow { inode: 0, close_wait: true, ..connection(8080, 25) };
        let half_closed = SocketRow { inode: 7, ..abandoned.clone() };
        connections.count([8080], &[abandoned, half_closed]);
        assert_eq!(connections.by_cgroup[&25], Open { inbound: 1, outbound: 0 });
    }

    #[test]
    fn the_remains_of_a_connection_are_not_open() {
        let mut connections = Connections::default();
        connections.count([8080], &[SocketRow { time_wait: true, ..connection(8080, 25) }]);
        assert!(connections.by_cgroup.is_empty());
    }
}
