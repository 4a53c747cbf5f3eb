//! What became of listeners that closed, by place: rows of listeners vanish with them, but what their queues lost must
//! not. A listener that stopped and began again under the same cookie closed too. Pure bookkeeping within a bound.

use crate::programs::tracepoint::{ListenerReading, Reading};
use governor_observation::ClosedListeners;
use std::{collections::BTreeMap, net::IpAddr};

/// Places remembered; of more, the one whose listener closed longest ago is forgotten.
const MOST_PLACES: usize = 1000;

/// Totals since the daemon's start.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    places: BTreeMap<(u64, u16, IpAddr), Place>,
    closings: u64,
    /// The part of each present entry that is counted already, by cookie.
    counted: BTreeMap<u64, Ended>,
    /// The first reading was taken. Its entries are adopted: their ended generations belong to the previous run.
    begun: bool,
}

/// Ended generations of one entry.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    times: u64,
    lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    listeners: u64,
    lost: Option<u64>,
    /// Number of the last closing.
    last: u64,
}

impl Closed {
    /// Takes in one reading: listeners that closed for good, and those that closed and listen again.
    pub(crate) fn take(&mut self, reading: &Reading) {
        let before = std::mem::take(&mut self.counted);
        for listener in &reading.closed {
            let counted = before.get(&listener.cookie).copied().unwrap_or_default();
            self.note(listener, u64::from(listener.reopened) + 1, counted);
        }
        for listener in &reading.listeners {
            let now = Ended { times: listener.reopened.into(), lost: listener.lost.unwrap_or(0) };
            if now.times == 0 {
                continue;
            }
            let first = if self.begun { Ended::default() } else { now };
            let counted = before.get(&listener.cookie).copied().unwrap_or(first);
            if now.times > counted.times {
                self.note(listener, now.times, counted);
            }
            self.counted.insert(listener.cookie, now);
        }
        self.begun = true;
    }

    /// Counts that a listener closed, so many `times` in all, beyond what is counted of its entry.
    fn note(&mut self, listener: &ListenerReading, times: u64, counted: Ended) {
        self.closings += 1;
        let place = self.places.entry((listener.netns, listener.port, listener.address.to_canonical())).or_default();
        place.listeners += times.saturating_sub(counted.times);
        let lost = listener.lost.map(|lost| lost.saturating_sub(counted.lost));
        place.lost = place.lost.map_or(lost, |before| Some(before + lost.unwrap_or(0)));
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
    use governor_observation::Family;

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
            handed_on: 0,
            reopened: 0,
            oldest_queued_ns: None,
            sojourn: None,
            owner_cgroup: None,
            opened_ns: None,
        }
    }

    fn close(closed: &mut Closed, listener: ListenerReading) {
        closed.take(&Reading { closed: vec![listener], ..Reading::default() });
    }

    fn reopened(reopened: u32, lost: u64) -> ListenerReading {
        ListenerReading { reopened, ..listener(443, Some(lost)) }
    }

    #[test]
    fn a_listener_that_listens_again_closed_too() {
        let mut closed = Closed::default();
        for (times, lost) in [(0, 0), (1, 19), (1, 19), (3, 21)] {
            closed.take(&Reading { listeners: vec![reopened(times, lost)], ..Reading::default() });
        }
        assert_eq!((closed.views()[0].listeners, closed.views()[0].lost), (3, Some(21)));
        close(&mut closed, reopened(3, 26));
        assert_eq!((closed.views()[0].listeners, closed.views()[0].lost), (4, Some(26)));
        // A new entry of the same socket begins at zero.
        close(&mut closed, reopened(0, 2));
        assert_eq!((closed.views()[0].listeners, closed.views()[0].lost), (5, Some(28)));
    }

    #[test]
    fn what_an_adopted_entry_lost_before_this_run_is_not_counted() {
        let mut closed = Closed::default();
        closed.take(&Reading { listeners: vec![reopened(2, 30)], ..Reading::default() });
        assert_eq!(closed.views(), []);
        close(&mut closed, reopened(2, 31));
        assert_eq!((closed.views()[0].listeners, closed.views()[0].lost), (1, Some(1)));
    }

    #[test]
    fn what_several_listeners_lost_on_one_place_adds_up() {
        let mut closed = Closed::default();
        for lost in [19, 0, 2] {
            close(&mut closed, listener(443, Some(lost)));
        }
        let [place] = closed.views().try_into().unwrap();
        assert_eq!((place.listeners, place.lost, place.address.to_string().as_str()), (3, Some(21), "127.0.0.1"));
        closed.retain(|netns| netns != 7);
        assert_eq!(closed.views(), []);
    }

    #[test]
    fn what_nobody_saw_is_unknown() {
        let mut closed = Closed::default();
        close(&mut closed, listener(443, None));
        assert_eq!(closed.views()[0].lost, None);
    }

    #[test]
    fn a_place_that_closed_longest_ago_makes_room() {
        let mut closed = Closed::default();
        for port in 1..=1000 {
            close(&mut closed, listener(port, Some(0)));
        }
        close(&mut closed, listener(1, Some(0)));
        close(&mut closed, listener(2000, Some(0)));
        let ports: Vec<u16> = closed.views().iter().map(|place| place.port).collect();
        assert_eq!((ports.len(), ports[0], ports[1]), (1000, 1, 3));
    }
}
