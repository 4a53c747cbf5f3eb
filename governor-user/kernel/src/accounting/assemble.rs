//! Turns what the sources say about one listener into its [`ListenerView`]: depth and backlog as the kernel holds them
//! now, totals and peaks since the listener was first seen. Pure bookkeeping; reads no kernel and no clock.
//!
//! Everything that leaves the queue of an open listener leaves it by accept, so `accepted = enqueued − lost − depth` is
//! exact as long as the count of what came in is (`lost`: what was queued when an earlier generation stopped
//! listening). The count must be read *before* the depth: then accepts may be reported a tick late under load, but
//! never too many, and the total never runs backwards. A queue that holds more than was counted by then has its count
//! read again *after* the table ([`Ledger::outgrown`]): what arrived lies between the two readings, and what another
//! listener handed on is distinguished, which the depth alone could not do. A listener older than the programs counts
//! from first sight, with what was in its queue then; a [`Note`] of that outlives the daemon if the counts do.
//!
//! A cookie names a socket, not one generation of a listener: `shutdown()` and `listen()` end a generation and begin
//! the next. Totals go on over generations. The programs keep their counters while the entry lives; where the entry was
//! replaced, what it had counted is carried ([`Carried`]), and a listener that is not there for a while is set aside
//! and not forgotten.

use crate::accounting::refusals::{Refusals, Watched};
use crate::proc::pids::Listener;
use crate::rows::{Id, Note, Row};
use governor_observation::{Family, ListenerView, Tier};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// Complete tables a listener may be missing from before its totals are forgotten: a table longer than one answer can
/// skip a socket while its bucket changes.
const MISSES: u8 = 2;

/// Paused listeners that are remembered; beyond that the one that stopped first is dropped.
const MOST_PAUSED: usize = 1000;

/// What BPF counted for one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Counting began when it began to listen, not with connections already in its queue.
    pub(crate) from_the_first: bool,
    /// What entered the queue since counting began, read before the table.
    pub(crate) entered: Entered,
    /// The same read after the table, where it was.
    pub(crate) entered_later: Option<Entered>,
    /// Deepest seen at an enqueue.
    pub(crate) depth_peak: u32,
    /// `CLOCK_MONOTONIC` nanoseconds of `listen()`, if that was seen.
    pub(crate) opened_ns: Option<u64>,
    /// Packets refused because the queue was full.
    pub(crate) refused: Watched,
    /// What an earlier run of the daemon noted, while the programs went on counting.
    pub(crate) note: Option<Note>,
    /// Connections that an accept took out of the queue since counting began; `None` where accepts are not seen.
    pub(crate) accepted: Option<u64>,
    /// Of those, connections whose client had gone by then; `None` as above.
    pub(crate) abandoned: Option<u64>,
    /// Connections that left the queue with an earlier generation and without an accept: reset or handed on.
    pub(crate) left_unaccepted: u64,
}

/// Connections that entered an accept queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entered {
    /// Connections that arrived.
    pub(crate) enqueued: u64,
    /// Connections that came from another listener's queue: no arrivals, but they leave by accept too.
    pub(crate) moved: u64,
}

impl Entered {
    /// Both, as far as a signed number goes.
    fn all(self) -> i64 {
        i64::try_from(self.enqueued.saturating_add(self.moved)).unwrap_or(i64::MAX)
    }

    fn plus(self, other: Self) -> Self {
        Self { enqueued: self.enqueued.saturating_add(other.enqueued), moved: self.moved.saturating_add(other.moved) }
    }
}

/// What entries of the same listener counted that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Carried {
    entered: Entered,
    accepted: u64,
    abandoned: u64,
    left_unaccepted: u64,
    syn: u64,
    ack: u64,
}

impl Carried {
    /// Adds the last figures of an entry.
    fn add(&mut self, last: &Counted) {
        self.entered = self.entered.plus(last.entered);
        self.accepted += last.accepted.unwrap_or(0);
        self.abandoned += last.abandoned.unwrap_or(0);
        self.left_unaccepted += last.left_unaccepted;
        self.syn += last.refused.syn;
        self.ack += last.refused.ack;
    }

    /// What was counted in all generations.
    fn before(&self, now: Counted) -> Counted {
        Counted {
            entered: now.entered.plus(self.entered),
            entered_later: now.entered_later.map(|later| later.plus(self.entered)),
            accepted: now.accepted.map(|accepted| accepted + self.accepted),
            abandoned: now.abandoned.map(|abandoned| abandoned + self.abandoned),
            left_unaccepted: now.left_unaccepted + self.left_unaccepted,
            refused: Watched { syn: now.refused.syn + self.syn, ack: now.refused.ack + self.ack, ..now.refused },
            ..now
        }
    }
}

/// Whether a listener already existed when its namespace was first looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// What it discarded before is not known to us.
    Older,
    /// It appeared under our eyes: everything it ever discarded counts.
    Newborn,
}

/// Totals of one listener since it was first seen.
#[derive(Debug)]
struct Track {
    row: Row,
    /// When the table with the row was read.
    seen_ns: u64,
    drops_first: Option<u32>,
    drops_seen: Option<u32>,
    drops_total: Option<u64>,
    /// What to add to BPF's count, so that what was in the queue at first sight has entered it: set once.
    base: Option<i64>,
    /// Whether BPF counts it now.
    counted: bool,
    /// The last values of its entry, if they are not in `carried` yet.
    entry: Option<Counted>,
    carried: Carried,
    enqueued: u64,
    peak: u32,
    accepted: u64,
    abandoned: Option<u64>,
    refusals: Refusals,
    missing: u8,
}

/// All listeners of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    namespaces: BTreeMap<u64, BTreeMap<Id, Track>>,
    overflows: BTreeMap<u64, Overflows>,
    /// Listeners that do not listen now, by namespace and cookie, with the number of their end.
    paused: BTreeMap<(u64, u64), (u64, Track)>,
    ends: u64,
}

/// What a namespace has refused altogether.
#[derive(Debug, Default)]
struct Overflows {
    now: Option<u64>,
    /// As it was read before its listeners were last looked at, and so before any that came since.
    at_last_look: Option<u64>,
}

impl Ledger {
    /// Takes in one namespace's complete table, read at `now_ns`. `counted` answers what BPF counted for a cookie, read
    /// before the table. Returns what is to be noted, by cookie.
    pub(crate) fn absorb(
        &mut self,
        netns: u64,
        rows: Vec<Row>,
        now_ns: u64,
        counted: impl Fn(u64) -> Option<Counted>,
    ) -> Vec<(u64, Note)> {
        let sight = if self.namespaces.contains_key(&netns) { Sight::Newborn } else { Sight::Older };
        let tracks = self.namespaces.entry(netns).or_default();
        for track in tracks.values_mut() {
            track.missing = track.missing.saturating_add(1);
        }
        let overflows = self.overflows.entry(netns).or_default();
        let quiet = overflows.at_last_look;
        overflows.at_last_look = overflows.now;
        let mut notes = Vec::new();
        let paused = &mut self.paused;
        for row in rows {
            let Id::Cookie(cookie) = row.id else {
                tracks.entry(row.id).or_insert_with(|| Track::new(&row, sight, None, quiet)).update(row, now_ns, None);
                continue;
            };
            let now = counted(cookie);
            let track = tracks.entry(row.id).or_insert_with(|| match paused.remove(&(netns, cookie)) {
                Some((_, track)) => track,
                None => Track::new(&row, sight, now, quiet),
            });
            let known = track.base.is_some();
            track.update(row, now_ns, now);
            if let (false, Some(base), Some(Counted { from_the_first: false, note: None, .. })) =
                (known, track.base, now)
            {
                notes.push((cookie, Note { base, drops: track.drops_first }));
            }
        }
        let gone: Vec<Id> = tracks.iter().filter(|(_, track)| track.missing >= MISSES).map(|(id, _)| *id).collect();
        for id in gone {
            // A cookie is never given out twice in one boot; an inode number is.
            if let (Some(track), Id::Cookie(cookie)) = (tracks.remove(&id), id) {
                self.ends += 1;
                self.paused.insert((netns, cookie), (self.ends, track));
            }
        }
        while self.paused.len() > MOST_PAUSED
            && let Some(oldest) = self.paused.iter().min_by_key(|(_, (end, _))| *end).map(|(id, _)| *id)
        {
            self.paused.remove(&oldest);
        }
        notes
    }

    /// Takes in the last figures of an entry that the programs have no more: its listener stopped listening.
    pub(crate) fn ended(&mut self, netns: u64, cookie: u64, last: &Counted) {
        let present = self.namespaces.get_mut(&netns).and_then(|tracks| tracks.get_mut(&Id::Cookie(cookie)));
        let track = present.or_else(|| self.paused.get_mut(&(netns, cookie)).map(|(_, track)| track));
        if let Some(track) = track {
            track.entry = None;
            track.carried.add(last);
        }
    }

    /// Whether anything is known of the listener with this cookie, which may not listen now.
    pub(crate) fn remembers(&self, netns: u64, cookie: u64) -> bool {
        let present = self.namespaces.get(&netns).is_some_and(|tracks| tracks.contains_key(&Id::Cookie(cookie)));
        present || self.paused.contains_key(&(netns, cookie))
    }

    /// Cookies of the listeners whose queue holds more than was counted before their table was read, or of which
    /// nothing was counted.
    pub(crate) fn outgrown(&self, netns: u64, rows: &[Row], counted: impl Fn(u64) -> Option<Counted>) -> Vec<u64> {
        let tracks = self.namespaces.get(&netns);
        let outgrown = |row: &Row| {
            let Id::Cookie(cookie) = row.id else { return None };
            let Some(now) = counted(cookie) else { return Some(cookie) };
            let track = tracks.and_then(|tracks| tracks.get(&row.id));
            let now = track.map_or(now, |track| track.carried.before(now));
            // Counting begins with what is there.
            let base = track.and_then(|track| track.base).or_else(|| now.base())?;
            let left = now.accepted.or_else(|| track.map(|track| track.accepted)).unwrap_or(0);
            let left = left.saturating_add(now.left_unaccepted);
            let held = i64::try_from(left).unwrap_or(i64::MAX).saturating_add(i64::from(row.depth));
            (held > now.entered.all().saturating_add(base)).then_some(cookie)
        };
        rows.iter().filter_map(outgrown).collect()
    }

    /// Takes in how many packets a namespace has refused altogether, as read at `read_ns`.
    pub(crate) fn note_overflows(&mut self, netns: u64, overflows: u64, read_ns: u64) {
        self.overflows.entry(netns).or_default().now = Some(overflows);
        for track in self.namespaces.get_mut(&netns).into_iter().flat_map(BTreeMap::values_mut) {
            track.refusals.namespace(overflows, read_ns);
        }
    }

    /// Shows nothing of a namespace that cannot be reached, but keeps its totals until a walk says that it is gone.
    pub(crate) fn hide(&mut self, netns: u64) {
        for track in self.namespaces.get_mut(&netns).into_iter().flat_map(BTreeMap::values_mut) {
            track.missing = track.missing.max(1);
        }
    }

    /// Forgets every namespace that `keep` does not want.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.namespaces.retain(|netns, _| keep(*netns));
        self.overflows.retain(|netns, _| keep(*netns));
        self.paused.retain(|(netns, _), _| keep(*netns));
    }

    /// Depth and backlog of every queue whose backlog is known.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (u32, u32)> {
        self.present().filter_map(|(_, track)| Some((track.row.depth, track.row.backlog?)))
    }

    /// The listeners as their holders are sought.
    pub(crate) fn held(&self) -> impl Iterator<Item = Listener> {
        self.present().map(|(netns, track)| track.listener(netns)).filter(|listener| listener.inode != 0)
    }

    /// cgroup ids of the listeners' creators.
    pub(crate) fn owners(&self) -> impl Iterator<Item = u64> {
        self.present().filter_map(|(_, track)| track.row.cgroup)
    }

    /// The rows, by (netns, port, address, cookie). `owner` names a cgroup, `pids` the holders of a listener.
    pub(crate) fn views(
        &self,
        tier: Tier,
        now_ns: u64,
        owner: impl Fn(u64) -> Option<String>,
        pids: impl Fn(Listener) -> Vec<u32>,
    ) -> Vec<ListenerView> {
        let view = |(netns, track): (u64, &Track)| track.view(netns, tier, now_ns, &owner, &pids);
        let mut views: Vec<_> = self.present().map(view).collect();
        views.sort_by_key(|view| (view.netns, view.port, view.address, view.cookie));
        views
    }

    fn present(&self) -> impl Iterator<Item = (u64, &Track)> {
        self.namespaces
            .iter()
            .flat_map(|(netns, tracks)| tracks.values().map(|track| (*netns, track)))
            .filter(|(_, track)| track.missing == 0)
    }
}

impl Counted {
    /// What to add to the programs' count, unless that depends on what is in the queue at first sight.
    fn base(&self) -> Option<i64> {
        // A listener that is older than the programs keeps its note over generations, with its counters.
        self.note.map(|note| note.base).or_else(|| self.from_the_first.then_some(0))
    }
}

impl Counted {
    fn fell_since(&self, last: &Self) -> bool {
        self.entered.enqueued < last.entered.enqueued || self.entered.moved < last.entered.moved
    }
}

impl Track {
    fn new(row: &Row, sight: Sight, counted: Option<Counted>, quiet: Option<u64>) -> Self {
        let drops_first = match (counted, sight) {
            (Some(Counted { note: Some(note), .. }), _) => row.drops.and(note.drops),
            (Some(Counted { from_the_first: true, .. }), _) | (_, Sight::Newborn) => row.drops.map(|_| 0),
            (_, Sight::Older) => row.drops,
        };
        let drops_total = row.drops.map(|_| 0);
        Self {
            row: row.clone(),
            seen_ns: 0,
            drops_first,
            drops_seen: drops_first,
            drops_total,
            base: None,
            counted: false,
            entry: None,
            carried: Carried::default(),
            enqueued: 0,
            peak: 0,
            accepted: 0,
            abandoned: None,
            refusals: Refusals::new(counted.and_then(|counted| counted.opened_ns), quiet),
            missing: 0,
        }
    }

    fn update(&mut self, row: Row, now_ns: u64, counted: Option<Counted>) {
        let mut dropped = None;
        if let (Some(now), Some(before), Some(total)) = (row.drops, self.drops_seen, self.drops_total) {
            let rise = rise(before, now);
            self.drops_total = Some(total + rise);
            self.drops_seen = Some(now);
            dropped = Some(rise);
        }
        let counted = counted.map(|now| self.over_generations(now));
        self.refusals.update(now_ns, dropped, counted.map(|counted| counted.refused));
        self.counted = counted.is_some();
        if let Some(now) = counted {
            let depth = i64::from(row.depth);
            let base = *self.base.get_or_insert_with(|| now.base().unwrap_or_else(|| depth - now.entered.all()));
            let entered = now.entered.all().saturating_add(base);
            let unaccepted = i64::try_from(now.left_unaccepted).unwrap_or(i64::MAX);
            let taken = || entered.saturating_sub(unaccepted).saturating_sub(depth).try_into().unwrap_or(0);
            self.accepted = self.accepted.max(now.accepted.unwrap_or_else(taken));
            let left = self.accepted.saturating_add(now.left_unaccepted);
            let arrived = arrived(now, base, left.saturating_add(row.depth.into()));
            self.enqueued = self.enqueued.max(arrived);
            self.peak = self.peak.max(now.depth_peak);
            self.abandoned = now.abandoned;
        }
        self.peak = self.peak.max(row.depth);
        self.row = row;
        self.seen_ns = now_ns;
        self.missing = 0;
    }

    fn listener(&self, netns: u64) -> Listener {
        let cookie = match self.row.id {
            Id::Cookie(cookie) => Some(cookie),
            Id::Inode(_) => None,
        };
        Listener { inode: self.row.inode, netns, cookie }
    }

    /// Adds the counts of earlier generations to the current values of the entry. Counts that fell mean a new entry.
    fn over_generations(&mut self, now: Counted) -> Counted {
        if let Some(last) = self.entry.filter(|last| now.fell_since(last)) {
            self.carried.add(&last);
        }
        self.entry = Some(now);
        self.carried.before(now)
    }

    fn view(
        &self,
        netns: u64,
        tier: Tier,
        now_ns: u64,
        owner: impl Fn(u64) -> Option<String>,
        pids: impl Fn(Listener) -> Vec<u32>,
    ) -> ListenerView {
        let (family, address) = shown_address(self.row.address);
        ListenerView {
            cookie: self.listener(netns).cookie,
            netns,
            protocol: self.row.protocol,
            family,
            address,
            port: self.row.port,
            backlog: self.row.backlog,
            depth: self.row.depth,
            abandoned: self.row.abandoned,
            depth_peak: self.counted.then_some(self.peak),
            enqueued_total: self.counted.then_some(self.enqueued),
            accepted_total: self.counted.then_some(self.accepted),
            abandoned_total: self.abandoned.filter(|_| self.counted),
            overflows_total: self.refusals.total(),
            overflows_since_seconds: self.refusals.exact_since().map(|since| seconds_between(since, now_ns)),
            overflow_syn_total: self.refusals.syn(),
            overflow_ack_total: self.refusals.ack(),
            oldest_queued_seconds: self.row.oldest_ns.map(|oldest| seconds_between(oldest, now_ns)),
            sojourn: None,
            drops_total: self.drops_total,
            inode: Some(self.row.inode).filter(|inode| *inode != 0),
            owner_cgroup: self.row.cgroup.and_then(owner),
            pids: pids(self.listener(netns)),
            // On better tiers than procfs only a namespace whose table cannot be read has rows without a cookie.
            tier: if matches!(self.row.id, Id::Inode(_)) { Tier::Procfs } else { tier },
            age_seconds: seconds_between(self.seen_ns, now_ns),
        }
    }
}

/// Connections that had arrived when the table was read: what left and what is there, without what was handed on, as
/// far as the counts before and after the table allow it. What is there and was never counted is no arrival.
fn arrived(counted: Counted, base: i64, left_and_there: u64) -> u64 {
    let later = counted.entered_later.unwrap_or(counted.entered);
    let total = |entered: Entered| entered.enqueued.saturating_add_signed(base);
    let least = total(counted.entered);
    left_and_there.saturating_sub(later.moved).clamp(least, total(later).max(least))
}

/// The increase of a 32-bit counter that wraps. An increase of more than half of its range means that it was reset to
/// 0.
fn rise(before: u32, now: u32) -> u64 {
    let rise = now.wrapping_sub(before);
    u64::from(if rise > u32::MAX / 2 { now } else { rise })
}

/// 0 where the later time is the earlier one: the two were read on different processors.
fn seconds_between(earlier_ns: u64, later_ns: u64) -> f64 {
    Duration::from_nanos(later_ns.saturating_sub(earlier_ns)).as_secs_f64()
}

/// An IPv4-mapped listener accepts IPv4 only and is shown as what it is.
fn shown_address(address: IpAddr) -> (Family, IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (Family::Ipv4, v4.into()),
        IpAddr::V6(v6) => (Family::Ipv6, Ipv6Addr::into(v6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_observation::Protocol;

    const NETNS: u64 = 4_026_531_840;
    const NOW: u64 = 5_000_000_000;

    fn row(cookie: u64, depth: u32) -> Row {
        Row {
            id: Id::Cookie(cookie),
            inode: cookie + 1000,
            address: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            depth,
            backlog: Some(4),
            drops: Some(0),
            cgroup: Some(25),
            protocol: Protocol::Tcp,
            abandoned: None,
            oldest_ns: None,
        }
    }

    fn enqueued(enqueued: u64, depth_peak: u32) -> impl Fn(u64) -> Option<Counted> {
        move |_| Some(Counted { from_the_first: true, entered: came(enqueued, 0), depth_peak, ..Counted::default() })
    }

    fn enqueued_late(enqueued: u64, depth_peak: u32) -> impl Fn(u64) -> Option<Counted> {
        move |_| Some(Counted { entered: came(enqueued, 0), depth_peak, ..Counted::default() })
    }

    fn came(enqueued: u64, moved: u64) -> Entered {
        Entered { enqueued, moved }
    }

    fn only(ledger: &Ledger) -> ListenerView {
        let mut views = ledger.views(Tier::Tracepoint, NOW, |_| Some("/g".into()), |_| vec![7]);
        assert_eq!(views.len(), 1);
        views.remove(0)
    }

    #[test]
    fn what_left_an_open_queue_was_accepted() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 0)], NOW, enqueued(0, 0));
        ledger.absorb(NETNS, vec![row(1, 5)], NOW, enqueued(8, 5));
        let view = only(&ledger);
        assert_eq!((view.enqueued_total, view.accepted_total), (Some(8), Some(3)));
        assert_eq!((view.depth, view.backlog, view.depth_peak), (5, Some(4), Some(5)));
        assert_eq!((view.owner_cgroup.as_deref(), view.pids), (Some("/g"), vec![7]));
    }

    #[test]
    fn connections_queued_before_counting_began_count_when_they_are_accepted() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 3)], NOW, enqueued_late(2, 3));
        assert_eq!(only(&ledger).accepted_total, Some(0));
        ledger.absorb(NETNS, vec![row(1, 1)], NOW, enqueued_late(4, 4));
        let view = only(&ledger);
        assert_eq!((view.enqueued_total, view.accepted_total, view.depth_peak), (Some(5), Some(4), Some(4)));
    }

    #[test]
    fn a_note_carries_the_totals_of_an_old_listener_into_the_next_life() {
        let mut first = Ledger::default();
        let at_first = Row { drops: Some(15), ..row(1, 3) };
        let notes = first.absorb(NETNS, vec![at_first.clone()], NOW, enqueued_late(2, 3));
        assert_eq!(notes, [(1, Note { base: 1, drops: Some(15) })]);
        assert_eq!(first.absorb(NETNS, vec![at_first], NOW, enqueued_late(2, 3)), [], "once is enough");

        let mut second = Ledger::default();
        let note = Some(notes[0].1);
        let noted = |_| Some(Counted { entered: came(9, 0), depth_peak: 5, note, ..Counted::default() });
        assert_eq!(second.absorb(NETNS, vec![Row { drops: Some(20), ..row(1, 4) }], NOW, noted), []);
        let view = only(&second);
        assert_eq!((view.enqueued_total, view.accepted_total, view.drops_total), (Some(10), Some(6), Some(5)));
    }

    #[test]
    fn a_listener_that_opened_under_the_programs_needs_no_note() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.absorb(NETNS, vec![Row { drops: Some(3), ..row(1, 0) }], NOW, enqueued(7, 2)), []);
        assert_eq!((only(&ledger).accepted_total, only(&ledger).drops_total), (Some(7), Some(3)));
    }

    #[test]
    fn totals_never_run_backwards_while_connections_arrive_between_the_two_reads() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 0)], NOW, enqueued(100, 1));
        // Ten more came in after the count was read and before the table was, and three after that.
        let grown = [row(1, 10)];
        assert_eq!(ledger.outgrown(NETNS, &grown, enqueued(100, 1)), [1]);
        let again = |_| enqueued(100, 1)(1).map(|now| Counted { entered_later: Some(came(113, 0)), ..now });
        ledger.absorb(NETNS, grown.to_vec(), NOW, again);
        let view = only(&ledger);
        assert_eq!((view.accepted_total, view.enqueued_total, view.depth_peak), (Some(100), Some(110), Some(10)));
        assert_eq!(ledger.outgrown(NETNS, &grown, enqueued(113, 1)), [0; 0], "then nothing is to be read again");
    }

    #[test]
    fn what_arrived_shows_with_the_queue_that_it_is_in_where_accepts_are_seen_too() {
        let now = Counted { from_the_first: true, entered: came(1, 0), accepted: Some(0), ..Counted::default() };
        let again = Counted { entered_later: Some(came(19, 0)), ..now };
        let mut ledger = Ledger::default();
        assert_eq!(
            ledger.outgrown(NETNS, &[row(1, 19)], |_| Some(now)),
            [1],
            "also a listener seen for the first time"
        );
        ledger.absorb(NETNS, vec![row(1, 19)], NOW, |_| Some(again));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).depth), (Some(19), 19));
    }

    #[test]
    fn what_is_handed_on_while_the_table_is_read_did_not_arrive() {
        for accepted in [None, Some(0)] {
            let of = |entered, entered_later| {
                move |_| Some(Counted { from_the_first: true, entered, entered_later, accepted, ..Counted::default() })
            };
            let mut ledger = Ledger::default();
            ledger.absorb(NETNS, vec![row(1, 22)], NOW, of(came(22, 0), None));
            assert_eq!(ledger.outgrown(NETNS, &[row(1, 40)], of(came(22, 0), None)), [1]);
            ledger.absorb(NETNS, vec![row(1, 40)], NOW, of(came(22, 0), Some(came(22, 18))));
            assert_eq!((only(&ledger).enqueued_total, only(&ledger).accepted_total), (Some(22), Some(0)));
            ledger.absorb(NETNS, vec![row(1, 40)], NOW, of(came(22, 18), None));
            assert_eq!(only(&ledger).enqueued_total, Some(22));
        }
    }

    #[test]
    fn connections_handed_on_by_another_listener_are_accepted_but_did_not_arrive() {
        let counted = |entered| move |_| Some(Counted { from_the_first: true, entered, ..Counted::default() });
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 21)], NOW, counted(came(21, 0)));
        ledger.absorb(NETNS, vec![row(1, 40)], NOW, counted(came(21, 19)));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).accepted_total), (Some(21), Some(0)));
        ledger.absorb(NETNS, vec![row(1, 0)], NOW, counted(came(21, 19)));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).accepted_total), (Some(21), Some(40)));
    }

    #[test]
    fn polling_knows_neither_peak_nor_totals() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 3)], NOW, |_| None);
        let view = only(&ledger);
        assert_eq!((view.depth_peak, view.enqueued_total, view.accepted_total), (None, None, None));
    }

    #[test]
    fn a_drop_is_not_an_overflow_but_no_drop_is_no_overflow() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![Row { drops: Some(15), ..row(1, 0) }], NOW, |_| None);
        assert_eq!((only(&ledger).drops_total, only(&ledger).overflows_total), (Some(0), Some(0)));
        ledger.absorb(NETNS, vec![Row { drops: Some(35), ..row(1, 0) }], NOW, |_| None);
        assert_eq!((only(&ledger).drops_total, only(&ledger).overflows_total), (Some(20), None));
    }

    #[test]
    fn refused_packets_that_were_watched_are_overflows_and_say_since_when() {
        let refused = |syn, since| Watched { syn, syn_since: Some(since), ack: 1, ack_since: Some(7) };
        let counted = |refused| move |_| Some(Counted { refused, ..Counted::default() });
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 0)], 1_000_000_000, counted(Watched::default()));
        let dropped = Row { drops: Some(6), ..row(1, 5) };
        ledger.absorb(NETNS, vec![dropped], NOW, counted(refused(2, 3_000_000_000)));
        let view = only(&ledger);
        assert_eq!((view.overflow_syn_total, view.overflow_ack_total), (Some(2), Some(1)));
        assert_eq!((view.overflows_total, view.overflows_since_seconds), (Some(3), Some(2.0)));
    }

    #[test]
    fn drops_of_a_newborn_are_no_overflows_while_its_namespace_refuses_nothing() {
        let mut ledger = Ledger::default();
        ledger.note_overflows(NETNS, 70, 1);
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        ledger.absorb(NETNS, vec![Row { drops: Some(3), ..row(1, 0) }], NOW, |_| None);
        assert_eq!(only(&ledger).overflows_total, None);
        ledger.note_overflows(NETNS, 70, NOW + 1);
        assert_eq!((only(&ledger).drops_total, only(&ledger).overflows_total), (Some(3), Some(0)));
    }

    #[test]
    fn the_oldest_of_a_queue_has_an_age() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![Row { oldest_ns: Some(4_750_000_000), ..row(1, 1) }], NOW, |_| None);
        assert_eq!(only(&ledger).oldest_queued_seconds, Some(0.25));
        ledger.absorb(NETNS, vec![row(1, 0)], NOW, |_| None);
        assert_eq!(only(&ledger).oldest_queued_seconds, None);
    }

    #[test]
    fn a_listener_born_under_our_eyes_counts_its_drops_from_the_first() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        ledger.absorb(NETNS, vec![Row { drops: Some(2), ..row(1, 0) }], NOW, |_| None);
        assert_eq!(only(&ledger).drops_total, Some(2));
    }

    #[test]
    fn the_drop_counter_may_wrap() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![Row { drops: Some(u32::MAX), ..row(1, 0) }], NOW, |_| None);
        ledger.absorb(NETNS, vec![Row { drops: Some(1), ..row(1, 0) }], NOW, |_| None);
        assert_eq!(only(&ledger).drops_total, Some(2));
    }

    #[test]
    fn a_table_without_drops_and_backlog_leaves_them_unknown() {
        let mut ledger = Ledger::default();
        let bare = Row { id: Id::Inode(9), drops: None, backlog: None, cgroup: None, ..row(1, 10) };
        ledger.absorb(NETNS, vec![bare], NOW, |_| None);
        let view = only(&ledger);
        assert_eq!((view.cookie, view.backlog, view.drops_total, view.overflows_total), (None, None, None, None));
        assert_eq!((view.depth, view.owner_cgroup), (10, None));
    }

    #[test]
    fn members_of_a_reuse_port_group_are_rows_of_their_own() {
        let mut ledger = Ledger::default();
        let depths = [129, 0, 0, 2];
        let rows = depths.iter().zip(11..).map(|(depth, cookie)| row(cookie, *depth)).collect();
        ledger.absorb(NETNS, rows, NOW, |_| None);
        let views = ledger.views(Tier::Netlink, NOW, |_| None, |_| Vec::new());
        assert_eq!(views.iter().map(|view| view.depth).collect::<Vec<_>>(), depths);
    }

    #[test]
    fn a_listener_missing_once_keeps_its_totals_and_missing_twice_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 0)], NOW, |_| None);
        ledger.absorb(NETNS, vec![Row { drops: Some(4), ..row(1, 0) }], NOW, |_| None);
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        assert_eq!(ledger.views(Tier::Netlink, NOW, |_| None, |_| Vec::new()), []);
        ledger.absorb(NETNS, vec![Row { drops: Some(4), ..row(1, 0) }], NOW, |_| None);
        assert_eq!(only(&ledger).drops_total, Some(4));
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        assert!(ledger.namespaces[&NETNS].is_empty());
    }

    #[test]
    fn totals_go_on_over_a_shutdown_and_listen_within_a_tick() {
        let counted = |enqueued, left_unaccepted| {
            move |_| {
                Some(Counted {
                    from_the_first: true,
                    entered: came(enqueued, 0),
                    left_unaccepted,
                    ..Counted::default()
                })
            }
        };
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![row(1, 10)], NOW, counted(3010, 0));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).accepted_total), (Some(3010), Some(3000)));
        // Ten were reset; two came to the next generation and one of them was accepted.
        ledger.absorb(NETNS, vec![row(1, 1)], NOW, counted(3012, 10));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).accepted_total), (Some(3012), Some(3001)));
    }

    #[test]
    fn totals_go_on_where_the_entry_was_replaced() {
        for (last_is_told, accepted) in [(true, None), (false, None), (true, Some(3000)), (false, Some(3000))] {
            let of = |enqueued, accepted, left_unaccepted| Counted {
                from_the_first: true,
                entered: came(enqueued, 0),
                accepted,
                left_unaccepted,
                ..Counted::default()
            };
            let mut ledger = Ledger::default();
            ledger.absorb(NETNS, vec![row(1, 0)], NOW, |_| Some(of(3000, accepted, 0)));
            if last_is_told {
                ledger.ended(NETNS, 1, &of(3005, accepted, 5));
            }
            let (total, now) = (if last_is_told { 3007 } else { 3002 }, accepted.map(|_| 2));
            ledger.absorb(NETNS, vec![row(1, 0)], NOW, |_| Some(of(2, now, 0)));
            let view = only(&ledger);
            assert_eq!((view.enqueued_total, view.accepted_total), (Some(total), Some(3002)), "{last_is_told}");
        }
    }

    #[test]
    fn a_socket_that_listens_again_later_has_its_totals_still() {
        let of = |enqueued| Counted { from_the_first: true, entered: came(enqueued, 0), ..Counted::default() };
        let mut ledger = Ledger::default();
        ledger.absorb(NETNS, vec![Row { drops: Some(4), ..row(1, 0) }], NOW, |_| Some(of(3000)));
        ledger.ended(NETNS, 1, &of(3000));
        for _ in 0..MISSES {
            ledger.absorb(NETNS, vec![], NOW, |_| None);
        }
        assert!(ledger.namespaces[&NETNS].is_empty() && ledger.remembers(NETNS, 1));
        ledger.absorb(NETNS, vec![Row { drops: Some(4), ..row(1, 0) }], NOW, |_| Some(of(1)));
        assert_eq!((only(&ledger).enqueued_total, only(&ledger).drops_total), (Some(3001), Some(4)));
        ledger.retain(|_| false);
        assert!(!ledger.remembers(NETNS, 1));
    }

    #[test]
    fn listeners_set_aside_are_bounded() {
        let mut ledger = Ledger::default();
        for cookie in 0..=MOST_PAUSED as u64 {
            ledger.absorb(NETNS, vec![row(cookie, 0)], NOW, |_| None);
            ledger.absorb(NETNS, vec![], NOW, |_| None);
        }
        ledger.absorb(NETNS, vec![], NOW, |_| None);
        assert_eq!((ledger.paused.len(), ledger.remembers(NETNS, 0)), (MOST_PAUSED, false));
        assert!(ledger.remembers(NETNS, 1));
    }

    #[test]
    fn a_drop_counter_that_was_set_back_counts_what_it_shows() {
        assert_eq!((rise(7, 9), rise(u32::MAX, 1), rise(900, 3)), (2, 2, 3));
    }

    #[test]
    fn a_mapped_address_is_shown_as_ipv4() {
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        assert_eq!(shown_address(mapped), (Family::Ipv4, IpAddr::from([127, 0, 0, 1])));
        assert_eq!(shown_address("::".parse().unwrap()).0, Family::Ipv6);
    }
}
