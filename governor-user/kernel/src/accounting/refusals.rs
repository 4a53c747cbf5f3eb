//! What is known of one listener's overflows, and since when. The programs count refused packets only while they look
//! at both stages; what was refused before that is unknown and never 0. Every refused packet is also one that the
//! socket dropped, so while the drops are unchanged nothing was refused, whether or not a hook watched; nor was
//! anything while the namespace's own count of refused packets is unchanged, whatever else was dropped.
//!
//! Pure bookkeeping: reads no clock and no kernel. Times are nanoseconds of `CLOCK_MONOTONIC`.

/// What the programs say at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// SYNs refused, and since when each of them is counted without a gap; `None` while no hook watches.
    pub(crate) syn: u64,
    pub(crate) syn_since: Option<u64>,
    /// The same for the last packets of handshakes.
    pub(crate) ack: u64,
    pub(crate) ack_since: Option<u64>,
}

/// One listener's refused packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    exact: Exact,
    /// When it was last looked at, or began to listen under our eyes.
    known_at: Option<u64>,
    now: Watched,
    /// What the namespace had refused when it was last read …
    namespace: Option<u64>,
    /// … and when it was last read before a look at which nothing was missing.
    quiet: Option<u64>,
    doubt: Option<Doubt>,
}

/// From when on nothing is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Exact {
    /// Since the listener was first seen.
    #[default]
    FromTheFirst,
    /// Since this time.
    Since(u64),
    /// Something was dropped unseen, and no hook watches now.
    Not,
}

/// Something was dropped unseen. If the whole namespace refused nothing meanwhile, it was no refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doubt {
    before: Exact,
    /// The namespace has to be read after this time.
    until: u64,
}

impl Refusals {
    /// Of a listener that began to listen at `opened_ns`, if that was seen, in a namespace that had refused `quiet`
    /// packets before, if that was read.
    pub(crate) fn new(opened_ns: Option<u64>, quiet: Option<u64>) -> Self {
        Self { known_at: opened_ns, quiet, ..Self::default() }
    }

    /// Takes in one look at the listener: the time, how far its drops rose since the look before (at the first look,
    /// since it began to listen or was first seen; `None` where drops are not known), and what the programs say, `None`
    /// where there are none.
    pub(crate) fn update(&mut self, now_ns: u64, dropped: Option<u64>, watched: Option<Watched>) {
        let watched = watched.unwrap_or_default();
        let since = watched.syn_since.zip(watched.ack_since).map(|(syn, ack)| syn.max(ack));
        let all_seen = since.zip(self.known_at).is_some_and(|(since, before)| since <= before);
        if dropped == Some(0) || all_seen {
            if self.exact != Exact::Not && self.doubt.is_none() {
                self.quiet = self.namespace.or(self.quiet);
            }
        } else {
            let before = self.doubt.map_or(self.exact, |doubt| doubt.before);
            let can_be_settled = dropped.is_some() && self.quiet.is_some() && before != Exact::Not;
            self.doubt = can_be_settled.then_some(Doubt { before, until: now_ns });
            self.exact = Exact::Not;
        }
        if let (Exact::Not, Some(since)) = (self.exact, since) {
            self.exact = Exact::Since(since);
        }
        self.known_at = Some(now_ns);
        self.now = watched;
    }

    /// Takes in what the listener's namespace has refused altogether, as read at `read_ns`.
    pub(crate) fn namespace(&mut self, overflows: u64, read_ns: u64) {
        self.namespace = Some(overflows);
        if let Some(doubt) = self.doubt.filter(|doubt| read_ns >= doubt.until) {
            self.doubt = None;
            if self.quiet == Some(overflows) {
                self.exact = doubt.before;
            }
        }
    }

    /// SYNs refused; `None` while that is not known.
    pub(crate) fn syn(&self) -> Option<u64> {
        self.stage(self.now.syn, self.now.syn_since)
    }

    /// Last packets of handshakes refused; `None` while that is not known.
    pub(crate) fn ack(&self) -> Option<u64> {
        self.stage(self.now.ack, self.now.ack_since)
    }

    /// Packets refused at either stage; `None` while that is not known.
    pub(crate) fn total(&self) -> Option<u64> {
        match self.exact {
            Exact::FromTheFirst | Exact::Since(_) => Some(self.now.syn.saturating_add(self.now.ack)),
            Exact::Not => None,
        }
    }

    /// Since when nothing is missing from the total, if not since the listener was first seen; `None` too while the
    /// total is unknown.
    pub(crate) fn exact_since(&self) -> Option<u64> {
        match self.exact {
            Exact::Since(since) => Some(since),
            Exact::FromTheFirst | Exact::Not => None,
        }
    }

    fn stage(&self, counted: u64, since: Option<u64>) -> Option<u64> {
        (self.exact != Exact::Not || since.is_some()).then_some(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(syn: u64, syn_since: u64, ack: u64) -> Option<Watched> {
        Some(Watched { syn, syn_since: Some(syn_since), ack, ack_since: Some(1) })
    }

    /// No hook watches SYNs.
    fn half(syn: u64, ack: u64) -> Option<Watched> {
        Some(Watched { syn, syn_since: None, ack, ack_since: Some(1) })
    }

    fn known(refusals: &Refusals) -> (Option<u64>, Option<u64>) {
        (refusals.total(), refusals.exact_since())
    }

    #[test]
    fn without_drops_there_are_no_overflows_whoever_looks() {
        let mut refusals = Refusals::new(None, None);
        refusals.update(10, Some(0), None);
        assert_eq!(known(&refusals), (Some(0), None));
        refusals.update(20, Some(0), half(0, 0));
        assert_eq!((known(&refusals), refusals.syn(), refusals.ack()), ((Some(0), None), Some(0), Some(0)));
    }

    #[test]
    fn what_was_dropped_before_anybody_looked_is_unknown_and_never_nought() {
        let mut refusals = Refusals::new(None, None);
        refusals.update(10, Some(0), half(0, 0));
        refusals.update(20, Some(3), half(0, 0));
        assert_eq!((known(&refusals), refusals.syn(), refusals.ack()), ((None, None), None, Some(0)));
        refusals.update(30, Some(0), watched(0, 25, 0));
        assert_eq!(known(&refusals), (Some(0), Some(25)), "and says since when it is exact");
        refusals.update(40, Some(4), watched(3, 25, 1));
        assert_eq!((known(&refusals), refusals.syn(), refusals.ack()), ((Some(4), Some(25)), Some(3), Some(1)));
    }

    #[test]
    fn looking_before_the_first_drop_misses_nothing() {
        let mut refusals = Refusals::new(None, None);
        refusals.update(10, Some(0), half(0, 0));
        refusals.update(20, Some(0), watched(0, 15, 0));
        refusals.update(30, Some(5), watched(5, 15, 0));
        assert_eq!(known(&refusals), (Some(5), None));
    }

    #[test]
    fn a_listener_that_opens_under_a_watch_is_exact_from_its_first_packet() {
        let mut refusals = Refusals::new(Some(20), None);
        refusals.update(30, Some(5), watched(5, 15, 0));
        assert_eq!(known(&refusals), (Some(5), None));
        let mut earlier = Refusals::new(Some(10), None);
        earlier.update(30, Some(5), watched(5, 15, 0));
        assert_eq!(known(&earlier), (Some(5), Some(15)));
    }

    #[test]
    fn a_watch_that_ends_in_quiet_and_begins_again_in_time_loses_nothing() {
        let mut refusals = Refusals::new(None, None);
        refusals.update(10, Some(0), watched(0, 5, 0));
        refusals.update(20, Some(2), watched(2, 5, 0));
        refusals.update(30, Some(0), half(2, 0));
        refusals.update(40, Some(0), watched(2, 35, 0));
        refusals.update(50, Some(1), watched(3, 35, 0));
        assert_eq!(known(&refusals), (Some(3), None));
        // And one that begins too late starts a new count of what is exact.
        refusals.update(60, Some(1), half(3, 0));
        assert_eq!(known(&refusals), (None, None));
        refusals.update(70, Some(1), watched(3, 65, 0));
        assert_eq!(known(&refusals), (Some(3), Some(65)));
    }

    #[test]
    fn drops_while_the_namespace_refuses_nothing_are_no_refusals() {
        let mut refusals = Refusals::new(None, None);
        refusals.namespace(70, 5);
        refusals.update(10, Some(0), half(0, 0));
        refusals.update(20, Some(3), half(0, 0));
        assert_eq!(known(&refusals), (None, None), "not known before the namespace is read again");
        refusals.namespace(70, 15);
        assert_eq!(known(&refusals), (None, None), "that was read before the look");
        refusals.update(30, Some(1), half(0, 0));
        refusals.namespace(70, 31);
        assert_eq!(known(&refusals), (Some(0), None));
        refusals.update(40, Some(2), half(0, 0));
        refusals.namespace(71, 41);
        assert_eq!(known(&refusals), (None, None));
        refusals.namespace(71, 51);
        refusals.update(60, Some(1), half(0, 0));
        refusals.namespace(71, 61);
        assert_eq!(known(&refusals), (None, None), "what was missed stays missed");
    }

    #[test]
    fn a_doubt_that_is_settled_gives_back_what_was_exact_before() {
        let mut refusals = Refusals::new(None, None);
        refusals.update(10, Some(2), half(0, 0));
        refusals.update(20, Some(0), watched(0, 15, 0));
        refusals.namespace(9, 22);
        refusals.update(25, Some(4), watched(4, 15, 0));
        refusals.update(30, Some(1), half(4, 0));
        refusals.namespace(9, 35);
        assert_eq!(known(&refusals), (Some(4), Some(15)));
    }

    #[test]
    fn drops_that_are_not_told_prove_nothing() {
        let mut refusals = Refusals::new(None, None);
        refusals.namespace(0, 5);
        refusals.update(10, None, None);
        refusals.namespace(0, 15);
        assert_eq!(known(&refusals), (None, None));
    }
}
