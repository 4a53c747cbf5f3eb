//! What became of listeners that closed, by place: rows of listeners vanish with them, but what their queues lost must
//! not. Pure bookkeeping within a bound.

use super::{tracepoint::ListenerReading, view::ClosedListeners};
use std::{collections::BTreeMap, net::IpAddr};

/// Places remembered; of more, the one whose listener closed longest ago is forgotten.
const MOST_PLACES: usize = 1000;

/// Totals since the daemon's start.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    places: BTreeMap<(u64, u16, IpAddr), Place>,
    closings: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    listeners: u64,
    lost: Option<u64>,
    /// Number of the last closing.
    last: u64,
}

impl Closed {
    /// Takes in the last figures of a listener that closed; once a listener.
    pub(crate) fn note(&mut self, listener: &ListenerReading) {
        self.closings += 1;
        let place = self.places.entry((listener.netns, listener.port, listener.address.to_canonical())).or_default();
        place.listeners += 1;
        place.lost = place.lost.map_or(listener.lost, |lost| Some(lost + listener.lost.unwrap_or(0)));
        place.last = self.closings;
        if self.places.len() > MOST_PLACES
            && let Some(oldest) = self.places.iter().min_by_key(|(_, place)| place.last).map(|(key, _)| *key)
        {
            self.places.remove(&oldest);
        }
    }

    /// Forgets namespaces that `keep` does not want.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.places.retain(|(netns, ..), _| keep(*netns));
    }

    /// By (netns, port, address).
    pub(crate) fn views(&self) -> Vec<ClosedListeners> {
        let view = |((netns, port, address), place): (&(u64, u16, IpAddr), &Place)| ClosedListeners {
            netns: *netns,
            address: *address,
            port: *port,
            listeners: place.listeners,
            lost: place.lost,
        };
        self.places.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::view::Family;

    fn listener(port: u16, lost: Option<u64>) -> ListenerReading {
        ListenerReading {
            cookie: 1,
            netns: 7,
            family: Family::Ipv6,
            address: "::ffff:127.0.0.1".parse().unwrap(),
            port,
            backlog: 4,
            depth: 0,
            depth_peak: None,
            enqueued: None,
            moved: None,
            accepted: None,
            abandoned: None,
            overflow_syn: None,
            overflow_ack: None,
            lost,
            oldest_queued_ns: None,
            sojourn: None,
            owner_cgroup: None,
            opened_ns: None,
        }
    }

    #[test]
    fn what_several_listeners_lost_on_one_place_adds_up() {
        let mut closed = Closed::default();
        for lost in [19, 0, 2] {
            closed.note(&listener(443, Some(lost)));
        }
        let [place] = closed.views().try_into().unwrap();
        assert_eq!((place.listeners, place.lost, place.address.to_string().as_str()), (3, Some(21), "127.0.0.1"));
        closed.retain(|netns| netns != 7);
        assert_eq!(closed.views(), []);
    }

    #[test]
    fn what_nobody_saw_is_unknown() {
        let mut closed = Closed::default();
        closed.note(&listener(443, None));
        assert_eq!(closed.views()[0].lost, None);
    }

    #[test]
    fn a_place_that_closed_longest_ago_makes_room() {
        let mut closed = Closed::default();
        for port in 1..=1000 {
            closed.note(&listener(port, Some(0)));
        }
        closed.note(&listener(1, Some(0)));
        closed.note(&listener(2000, Some(0)));
        let ports: Vec<u16> = closed.views().iter().map(|place| place.port).collect();
        assert_eq!((ports.len(), ports[0], ports[1]), (1000, 1, 3));
    }
}
