//! Whose queue an abandoned connection waits in. It belongs to the listener that made it and to no process: none holds
//! it yet. Pure; the rows come from `sockdiag`.

use crate::rows::Row;
use std::net::IpAddr;

/// Notes on each listener how many of `abandoned` (local ends, mapped addresses folded) wait in its queue; at most its
/// depth, which is younger. `None` for sockets that share address and port, unless there is none: the connection
/// itself does not say which of them made it.
pub(crate) fn attribute(rows: &mut [Row], abandoned: &[(IpAddr, u16)]) {
    let places: Vec<(IpAddr, u16)> = rows.iter().map(|row| (row.address.to_canonical(), row.port)).collect();
    let mut counts = vec![0_u32; rows.len()];
    for (address, port) in abandoned {
        if let Some(place) = listener_of(&places, *address, *port) {
            counts[place] = counts[place].saturating_add(1);
        }
    }
    for index in 0..rows.len() {
        let twins = places.iter().filter(|place| **place == places[index]).count();
        let of_place = places.iter().position(|place| *place == places[index]).map_or(0, |first| counts[first]);
        rows[index].abandoned = match (twins, of_place) {
            (1, count) => Some(count.min(rows[index].depth)),
            (_, 0) => Some(0),
            (_, _) => None,
        };
    }
}

/// Index of the first listener of the place that a connection to `address` came in by: the kernel prefers the exact
/// address, then the wildcard of its family, then the dual-stack one.
fn listener_of(places: &[(IpAddr, u16)], address: IpAddr, port: u16) -> Option<usize> {
    let at = |wanted: IpAddr| places.iter().position(|place| *place == (wanted, port));
    let v4_any = IpAddr::from([0, 0, 0, 0]);
    let v6_any = IpAddr::from([0_u16; 8]);
    at(address).or_else(|| if address.is_ipv4() { at(v4_any) } else { None }).or_else(|| at(v6_any))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Id;
    use governor_observation::Protocol;

    fn row(cookie: u64, address: &str, port: u16, depth: u32) -> Row {
        Row {
            id: Id::Cookie(cookie),
            inode: cookie,
            address: address.parse().unwrap(),
            port,
            depth,
            backlog: Some(64),
            drops: Some(0),
            cgroup: None,
            protocol: Protocol::Tcp,
            abandoned: None,
            oldest_ns: None,
        }
    }

    fn counts(mut rows: Vec<Row>, abandoned: &[(&str, u16)]) -> Vec<Option<u32>> {
        let abandoned: Vec<_> = abandoned.iter().map(|(address, port)| (address.parse().unwrap(), *port)).collect();
        attribute(&mut rows, &abandoned);
        rows.into_iter().map(|row| row.abandoned).collect()
    }

    #[test]
    fn dead_connections_count_against_their_listener() {
        let rows = vec![row(1, "127.0.0.1", 80, 5), row(2, "127.0.0.1", 81, 5)];
        assert_eq!(counts(rows, &[("127.0.0.1", 80); 5]), [Some(5), Some(0)]);
    }

    #[test]
    fn the_exact_address_wins_over_a_wildcard_and_a_dual_stack_listener_takes_the_rest() {
        let rows = vec![row(1, "::", 80, 9), row(2, "127.0.0.1", 80, 9), row(3, "::ffff:127.0.0.2", 80, 9)];
        let abandoned = [("127.0.0.1", 80), ("127.0.0.2", 80), ("10.0.0.1", 80), ("::1", 80)];
        assert_eq!(counts(rows, &abandoned), [Some(2), Some(1), Some(1)]);
    }

    #[test]
    fn members_of_a_group_cannot_be_told_apart_unless_there_is_nothing_to_tell() {
        let rows = || vec![row(1, "0.0.0.0", 80, 3), row(2, "0.0.0.0", 80, 3)];
        assert_eq!(counts(rows(), &[]), [Some(0), Some(0)]);
        assert_eq!(counts(rows(), &[("127.0.0.1", 80)]), [None, None]);
    }

    #[test]
    fn no_more_are_dead_than_are_queued_and_what_has_no_listener_is_nobodys() {
        assert_eq!(counts(vec![row(1, "0.0.0.0", 80, 1)], &[("127.0.0.1", 80); 4]), [Some(1)]);
        assert_eq!(counts(vec![row(1, "0.0.0.0", 80, 1)], &[("127.0.0.1", 81), ("::1", 80)]), [Some(0)]);
    }
}
