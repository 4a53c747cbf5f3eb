//! Counters that the kernel keeps once for a whole network namespace, from `/proc/<task>/net/{netstat,snmp}`, and the
//! two limits of a namespace that explain them. Reading and bookkeeping only; what the figures mean is in `findings`.
//!
//! The counters start anew with their namespace, and a namespace's inode number is reused after its end. One that fell
//! therefore belongs to another namespace: it adds what it shows, and the generation rises. Totals only rise.

use governor_observation::{Conntrack, NamespaceCounters};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

/// Namespaces are read at most this often: a file of 200 lines is summed over all CPUs for each reading.
const PAUSE: Duration = Duration::from_millis(250);
/// What findings look back on.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Samples kept in the window.
const SAMPLES: usize = 20;
/// Walks a namespace may be missing from before it has ended: a walk over `/proc` can end at its bound.
const MISSES: u32 = 2;
/// Ended namespaces whose totals are kept. The kernel gives the lowest free number first, so few are needed.
const MOST_ENDED: usize = 1_024;

/// Counters as read, in the order of [`FIELDS`]; `None` where this kernel has no such counter.
pub(crate) type Values = [Option<u64>; FIELDS.len()];

/// Group and name of each counter.
const FIELDS: [(&str, &str); 9] = [
    ("TcpExt", "ListenOverflows"),
    ("TcpExt", "ListenDrops"),
    ("TcpExt", "TCPReqQFullDrop"),
    ("TcpExt", "TCPReqQFullDoCookies"),
    ("TcpExt", "SyncookiesSent"),
    ("TcpExt", "SyncookiesRecv"),
    ("TcpExt", "SyncookiesFailed"),
    ("TcpExt", "TCPFastOpenListenOverflow"),
    ("Tcp", "PassiveOpens"),
];

/// One namespace as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) values: Values,
    pub(crate) conntrack: Conntrack,
    /// `net.core.somaxconn` of the namespace.
    pub(crate) somaxconn: Option<u32>,
}

/// Reads the namespace that the calling thread is in.
///
/// # Errors
/// When the tables are unreadable or not of the documented form.
pub(crate) fn read_here() -> io::Result<Sample> {
    let sys = Path::new("/proc/sys/net");
    Ok(Sample {
        values: read_tables(Path::new("/proc/thread-self"))?,
        conntrack: conntrack(
            fs::read_to_string(sys.join("netfilter/nf_conntrack_count")),
            fs::read_to_string(sys.join("netfilter/nf_conntrack_max")),
        ),
        somaxconn: fs::read_to_string(sys.join("core/somaxconn")).ok().and_then(|text| text.trim().parse().ok()),
    })
}

/// Reads the namespace that the task with this folder below `/proc` lives in, without entering it. The limits cannot be
/// read this way: `/proc/sys` shows the reader's own.
///
/// # Errors
/// As for [`read_here`].
pub(crate) fn read_of(task: &Path) -> io::Result<Sample> {
    Ok(Sample { values: read_tables(task)?, conntrack: Conntrack::Unknown, somaxconn: None })
}

fn read_tables(task: &Path) -> io::Result<Values> {
    let mut text = fs::read_to_string(task.join("net/netstat"))?;
    text.push_str(&fs::read_to_string(task.join("net/snmp"))?);
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the counters have an unknown form"))
}

/// Pairs of lines, names above numbers: `TcpExt: SyncookiesSent …` and `TcpExt: 0 …`. `None` when a pair does not
/// match, so that no number is taken for another's.
fn parse(text: &str) -> Option<Values> {
    let mut values = Values::default();
    let mut lines = text.lines();
    while let Some(names) = lines.next() {
        let numbers = lines.next()?;
        let (group, names) = names.split_once(": ")?;
        let numbers = numbers.strip_prefix(group)?.strip_prefix(": ")?;
        let (mut names, mut numbers) = (names.split_whitespace(), numbers.split_whitespace());
        loop {
            let (name, number) = match (names.next(), numbers.next()) {
                (Some(name), Some(number)) => (name, number),
                (None, None) => break,
                (Some(_), None) | (None, Some(_)) => return None,
            };
            if let Some(index) = FIELDS.iter().position(|field| *field == (group, name)) {
                values[index] = Some(number.parse().ok()?);
            }
        }
    }
    Some(values)
}

fn conntrack(count: io::Result<String>, max: io::Result<String>) -> Conntrack {
    let number = |text: io::Result<String>| text.map(|text| text.trim().parse::<u64>().ok());
    match (number(count), number(max)) {
        (Ok(Some(count)), Ok(Some(max))) => Conntrack::Table { count, max },
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Conntrack::Absent,
        _ => Conntrack::Unknown,
    }
}

/// What one namespace came to since it was first seen.
#[derive(Debug, Default)]
struct Track {
    raw: Values,
    totals: Values,
    /// The totals that it began with: those of a namespace before it with the same inode number.
    origin: Values,
    generation: u32,
    conntrack: Conntrack,
    somaxconn: Option<u32>,
    read_at: Option<Instant>,
    tried_at: Option<Instant>,
    /// It could be read and cannot any more.
    unknown: bool,
    /// Totals of the last seconds, oldest first.
    window: VecDeque<(Instant, Values)>,
    /// It appeared under our eyes, so everything it ever counted is ours.
    newborn: bool,
    /// Walks in a row that did not find it.
    missing: u32,
}

/// What is shown of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) generation: u32,
    /// Since first seen.
    pub(crate) all: Values,
    /// In the last [`WINDOW`].
    pub(crate) recent: Values,
    pub(crate) conntrack: Conntrack,
    pub(crate) somaxconn: Option<u32>,
}

/// All namespaces.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    tracks: BTreeMap<u64, Track>,
    begun: bool,
}

impl Counters {
    /// Takes over which namespaces a walk found. What the first walk finds is older than we are.
    pub(crate) fn update(&mut self, found: &BTreeSet<u64>) {
        let newborn = self.begun;
        self.begun = true;
        for (netns, track) in &mut self.tracks {
            if !found.contains(netns) {
                track.missing = track.missing.saturating_add(1);
            } else if track.has_ended() {
                track.begin_anew();
            } else {
                track.missing = 0;
            }
        }
        for netns in found {
            self.tracks.entry(*netns).or_insert_with(|| Track { newborn, ..Track::default() });
        }
        self.forget();
    }

    /// Keeps the totals of namespaces that ended, because their inode numbers come again soon, but not of all of them.
    fn forget(&mut self) {
        let mut ended: Vec<(u32, u64)> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.has_ended())
            .map(|(netns, track)| (track.missing, *netns))
            .collect();
        let excess = ended.len().saturating_sub(MOST_ENDED);
        ended.sort_unstable_by_key(|(missing, _)| std::cmp::Reverse(*missing));
        for (_, netns) in ended.into_iter().take(excess) {
            self.tracks.remove(&netns);
        }
    }

    /// Whether it is time to read a namespace again.
    pub(crate) fn due(&self, netns: u64, now: Instant) -> bool {
        let track = self.tracks.get(&netns);
        track.is_some_and(|track| track.tried_at.is_none_or(|then| now.saturating_duration_since(then) >= PAUSE))
    }

    /// Notes an attempt to read a namespace, successful or not.
    pub(crate) fn tried(&mut self, netns: u64, now: Instant) {
        if let Some(track) = self.tracks.get_mut(&netns) {
            track.tried_at = Some(now);
        }
    }

    /// A namespace cannot be read any more: what it counts is unknown until it can. Its totals go on then, and what was
    /// counted meanwhile is not of the last seconds.
    pub(crate) fn lose(&mut self, netns: u64) {
        if let Some(track) = self.tracks.get_mut(&netns).filter(|track| track.read_at.is_some()) {
            track.unknown = true;
            track.newborn = false;
            track.window.clear();
        }
    }

    /// Takes in what a namespace shows.
    pub(crate) fn absorb(&mut self, netns: u64, sample: Sample, now: Instant) {
        let Some(track) = self.tracks.get_mut(&netns) else { return };
        let fell = track.raw.iter().zip(&sample.values).any(|(before, now)| now < before);
        let first = track.read_at.is_none();
        track.generation += u32::from(fell && !first);
        for (index, value) in sample.values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let before = track.raw[index].unwrap_or(0);
            let rise = match (first, track.newborn) {
                (true, true) => value,
                (true, false) => 0,
                (false, _) if fell => value,
                (false, _) => value - before,
            };
            let total = track.totals[index].get_or_insert(0);
            *total = total.saturating_add(rise);
        }
        track.raw = sample.values;
        track.conntrack = sample.conntrack;
        track.somaxconn = sample.somaxconn;
        track.read_at = Some(now);
        track.tried_at = Some(now);
        track.unknown = false;
        track.remember(now);
    }

    /// Packets that a namespace refused for a full accept queue since it was first seen.
    pub(crate) fn overflows(&self, netns: u64) -> Option<u64> {
        self.tracks.get(&netns).and_then(|track| named(track.totals).listen_overflows)
    }

    /// What is known of each namespace that could be read, by inode number.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (u64, Totals)> {
        let known = |track: &Track| track.read_at.is_some() && track.missing == 0 && !track.unknown;
        let read = self.tracks.iter().filter(move |(_, track)| known(track));
        read.map(|(netns, track)| (*netns, track.shown()))
    }
}

impl Track {
    fn has_ended(&self) -> bool {
        self.missing >= MISSES
    }

    /// Another namespace has got the inode number: it counts on from the totals.
    fn begin_anew(&mut self) {
        let (totals, generation) = (self.totals, self.generation + u32::from(self.read_at.is_some()));
        *self = Self { totals, origin: totals, generation, newborn: true, ..Self::default() };
    }

    /// Keeps one sample a half second, and the youngest one that is older than the window as the window's start.
    fn remember(&mut self, now: Instant) {
        let spacing = WINDOW / u32::try_from(SAMPLES).expect("a small number");
        if self.window.back().is_none_or(|(then, _)| now.saturating_duration_since(*then) >= spacing) {
            // A newborn namespace began at 0, whatever it shows at first sight.
            let start = if self.window.is_empty() && self.newborn { self.origin } else { self.totals };
            self.window.push_back((now, start));
        }
        while self.window.get(1).is_some_and(|(then, _)| now.saturating_duration_since(*then) >= WINDOW) {
            self.window.pop_front();
        }
    }

    fn shown(&self) -> Totals {
        let mut recent = self.totals;
        if let Some((_, start)) = self.window.front() {
            for (value, start) in recent.iter_mut().zip(start) {
                *value = value.map(|value| value.saturating_sub(start.unwrap_or(0)));
            }
        }
        Totals {
            generation: self.generation,
            all: self.totals,
            recent,
            conntrack: self.conntrack,
            somaxconn: self.somaxconn,
        }
    }
}

/// Names the values.
pub(crate) fn named(values: Values) -> NamespaceCounters {
    let [
        listen_overflows,
        listen_drops,
        request_queue_full_drops,
        request_queue_full_cookies,
        syncookies_sent,
        syncookies_received,
        syncookies_failed,
        fast_open_overflows,
        passive_opens,
    ] = values;
    NamespaceCounters {
        listen_overflows,
        listen_drops,
        request_queue_full_drops,
        request_queue_full_cookies,
        syncookies_sent,
        syncookies_received,
        syncookies_failed,
        fast_open_overflows,
        passive_opens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POD: u64 = 4_026_532_501;

    fn overflows(count: u64) -> Sample {
        let mut values = Values::default();
        values[0] = Some(count);
        values[1] = Some(count);
        Sample { values, conntrack: Conntrack::Absent, somaxconn: Some(4096) }
    }

    fn total(counters: &Counters, netns: u64) -> Option<u64> {
        counters.totals().find(|(inode, _)| *inode == netns).and_then(|(_, totals)| totals.all[0])
    }

    #[test]
    fn names_and_numbers_are_paired_by_position() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 11 3 6\nIpExt: InOctets\nIpExt: 7\n\
                    Tcp: ActiveOpens PassiveOpens\nTcp: 1 900\n";
        let values = parse(text).unwrap();
        let named = named(values);
        assert_eq!((named.syncookies_sent, named.listen_overflows, named.listen_drops), (Some(11), Some(3), Some(6)));
        assert_eq!(named.passive_opens, Some(900));
        assert_eq!(named.syncookies_failed, None, "a counter that is not there is unknown, not 0");
    }

    #[test]
    fn lines_that_do_not_belong_together_are_an_error() {
        assert_eq!(parse("TcpExt: ListenDrops\nIpExt: 7\n"), None);
        assert_eq!(parse("TcpExt: ListenDrops ListenOverflows\nTcpExt: 7\n"), None);
        assert_eq!(parse("TcpExt: ListenDrops\n"), None);
        assert_eq!(parse("TcpExt: ListenDrops\nTcpExt: -7\n"), None);
    }

    #[test]
    fn a_pod_that_is_made_again_counts_on_and_never_backwards() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut counters = Counters::default();
        counters.update(&BTreeSet::from([1, POD]));
        counters.absorb(1, overflows(0), start);
        counters.absorb(POD, overflows(120), start);
        assert_eq!(total(&counters, POD), Some(0), "what was before is not ours");
        counters.absorb(POD, overflows(200), at(10));
        assert_eq!(total(&counters, POD), Some(80));
        // A container of the pod restarts: same namespace.
        counters.absorb(POD, overflows(200), at(20));
        assert_eq!(total(&counters, POD), Some(80));
        // The pod is made again and gets the same inode number.
        counters.absorb(POD, overflows(5), at(30));
        assert_eq!(total(&counters, POD), Some(85));
        let (_, shown) = counters.totals().find(|(inode, _)| *inode == POD).unwrap();
        assert_eq!((shown.generation, total(&counters, 1)), (1, Some(0)));
    }

    #[test]
    fn a_namespace_born_under_our_eyes_counts_from_its_first_packet() {
        let start = Instant::now();
        let mut counters = Counters::default();
        counters.update(&BTreeSet::from([1]));
        counters.update(&BTreeSet::from([1, POD]));
        counters.absorb(POD, overflows(5), start);
        let (_, shown) = counters.totals().next().unwrap();
        assert_eq!((shown.all[0], shown.recent[0]), (Some(5), Some(5)));
    }

    #[test]
    fn a_namespace_that_one_walk_missed_keeps_its_totals() {
        let start = Instant::now();
        let mut counters = Counters::default();
        counters.update(&BTreeSet::from([POD]));
        counters.absorb(POD, overflows(100), start);
        counters.update(&BTreeSet::new());
        assert_eq!(total(&counters, POD), None, "not shown while it is not found");
        counters.update(&BTreeSet::from([POD]));
        counters.absorb(POD, overflows(101), start);
        assert_eq!(total(&counters, POD), Some(1));
    }

    #[test]
    fn a_namespace_that_gets_the_number_of_one_that_ended_counts_on() {
        let start = Instant::now();
        let mut counters = Counters::default();
        counters.update(&BTreeSet::new());
        counters.update(&BTreeSet::from([POD]));
        counters.absorb(POD, overflows(5), start);
        for _ in 0..MISSES {
            counters.update(&BTreeSet::new());
        }
        assert_eq!(total(&counters, POD), None);
        counters.update(&BTreeSet::from([POD]));
        assert_eq!(total(&counters, POD), None, "not read yet");
        // More than the one before showed: without the gap this would pass for the same.
        counters.absorb(POD, overflows(7), start);
        let (_, shown) = counters.totals().next().unwrap();
        assert_eq!((shown.all[0], shown.recent[0], shown.generation), (Some(12), Some(7), 1));
    }

    #[test]
    fn totals_of_ended_namespaces_are_kept_up_to_a_bound() {
        let many = u64::try_from(MOST_ENDED).unwrap() + 10;
        let mut counters = Counters::default();
        counters.update(&(0..many).collect());
        counters.update(&BTreeSet::new());
        counters.update(&BTreeSet::from([3]));
        counters.update(&BTreeSet::from([3]));
        assert_eq!(counters.tracks.len(), MOST_ENDED + 1);
        assert!(counters.tracks.contains_key(&3));
    }

    #[test]
    fn the_window_forgets_what_is_older_than_it() {
        let start = Instant::now();
        let mut counters = Counters::default();
        counters.update(&BTreeSet::from([POD]));
        for second in 0..30 {
            counters.absorb(POD, overflows(second.min(5)), start + Duration::from_secs(second));
        }
        let (_, shown) = counters.totals().next().unwrap();
        assert_eq!((shown.all[0], shown.recent[0]), (Some(5), Some(0)));
        assert!(counters.tracks[&POD].window.len() <= SAMPLES + 1);
    }

    #[test]
    fn reading_is_not_due_again_at_once() {
        let start = Instant::now();
        let mut counters = Counters::default();
        counters.update(&BTreeSet::from([POD]));
        assert!(counters.due(POD, start));
        counters.absorb(POD, overflows(0), start);
        assert!(!counters.due(POD, start + PAUSE / 2) && counters.due(POD, start + PAUSE));
        assert!(!counters.due(POD + 1, start), "a namespace that no walk found is not read");
    }

    #[test]
    fn connection_tracking_is_absent_full_or_unknown() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(conntrack(ok("9\n"), ok("10\n")), Conntrack::Table { count: 9, max: 10 });
        assert_eq!(conntrack(Err(io::ErrorKind::NotFound.into()), ok("10\n")), Conntrack::Absent);
        assert_eq!(conntrack(Err(io::ErrorKind::PermissionDenied.into()), ok("10\n")), Conntrack::Unknown);
        assert_eq!(conntrack(ok("nine\n"), ok("10\n")), Conntrack::Unknown);
    }

    #[test]
    fn this_kernel_has_every_counter() {
        let here = read_here().unwrap();
        assert!(here.values.iter().all(Option::is_some), "{:?}", here.values);
        assert_eq!(read_of(Path::new("/proc/thread-self")).unwrap().conntrack, Conntrack::Unknown);
        assert!(here.somaxconn.is_some());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            let _unspecified = parse(&text);
        }

        #[test]
        fn totals_never_fall(samples in proptest::collection::vec(0u64..1000, 1..50)) {
            let start = Instant::now();
            let mut counters = Counters::default();
            counters.update(&BTreeSet::from([POD]));
            let mut last = 0;
            for (second, count) in (0..).zip(samples) {
                counters.absorb(POD, overflows(count), start + Duration::from_secs(second));
                let now = total(&counters, POD).unwrap();
                prop_assert!(now >= last && now <= last + 1000);
                last = now;
            }
        }
    }
}
