//! When it is worth to look at SYNs. The program that does runs for every packet that a socket of the host receives, so it
//! is attached only while an accept queue is nearly full or a namespace refuses handshakes, and for a quiet time after
//! that. Pure: decides, attaches nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long after the last sign it is still looked: longer than the pauses between a client's first retries.
const QUIET: Duration = Duration::from_secs(30);

/// What gives rise to it.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    until: Option<Instant>,
    /// `ListenOverflows` of each namespace when it was last read.
    overflows: BTreeMap<u64, u64>,
}

impl Suspicion {
    /// A queue as it is now.
    pub(crate) fn queue(&mut self, depth: u32, backlog: u32, now: Instant) {
        if is_nearly_full(depth, backlog) {
            self.until = Some(now + QUIET);
        }
    }

    /// The namespaces' overflows as they are now; all of them, so that those gone are forgotten.
    pub(crate) fn namespaces(&mut self, overflows: impl Iterator<Item = (u64, u64)>, now: Instant) {
        let read: BTreeMap<u64, u64> = overflows.collect();
        // What a namespace refused before it was first read says nothing about now.
        if read.iter().any(|(netns, now)| self.overflows.get(netns).is_some_and(|before| now > before)) {
            self.until = Some(now + QUIET);
        }
        self.overflows = read;
    }

    /// Whether SYNs are to be looked at now.
    pub(crate) fn is_awake(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// Three quarters of the backlog: a queue that fills faster than one observation to the next is found by its overflows.
fn is_nearly_full(depth: u32, backlog: u32) -> bool {
    u64::from(depth) * 4 > u64::from(backlog) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_wakes_it_before_it_is_full() {
        for (depth, backlog, expected) in
            [(0, 0, false), (1, 0, true), (0, 1, false), (3, 4, false), (4, 4, true), (96, 128, false), (97, 128, true)]
        {
            let mut suspicion = Suspicion::default();
            let now = Instant::now();
            suspicion.queue(depth, backlog, now);
            assert_eq!(suspicion.is_awake(now), expected, "{depth}/{backlog}");
        }
    }

    #[test]
    fn it_sleeps_again_after_the_quiet_time() {
        let mut suspicion = Suspicion::default();
        let start = Instant::now();
        suspicion.queue(5, 4, start);
        suspicion.queue(0, 4, start + Duration::from_secs(1));
        assert!(suspicion.is_awake(start + QUIET - Duration::from_millis(1)));
        assert!(!suspicion.is_awake(start + QUIET));
    }

    #[test]
    fn overflows_that_move_wake_it_and_old_ones_do_not() {
        let mut suspicion = Suspicion::default();
        let now = Instant::now();
        suspicion.namespaces([(1, 70), (2, 0)].into_iter(), now);
        assert!(!suspicion.is_awake(now), "they may be years old");
        suspicion.namespaces([(1, 70), (2, 0)].into_iter(), now);
        assert!(!suspicion.is_awake(now));
        suspicion.namespaces([(1, 70), (2, 1)].into_iter(), now);
        assert!(suspicion.is_awake(now));
    }

    #[test]
    fn a_namespace_seen_for_the_first_time_and_one_that_began_anew_wake_nothing() {
        let mut suspicion = Suspicion::default();
        let now = Instant::now();
        suspicion.namespaces([(1, 70)].into_iter(), now);
        suspicion.namespaces([(1, 3), (2, 9)].into_iter(), now);
        assert!(!suspicion.is_awake(now));
    }
}
