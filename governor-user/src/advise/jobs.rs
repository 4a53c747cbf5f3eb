//! From facts to jobs: what came, of whom, and how long it ran. Pairs the ends of each request and decides what to
//! believe where one end is missing. Takes the facts one by one and keeps the newest jobs only, so that its memory does not
//! grow with the record.

use crate::config::value::identity;
use crate::records::demand::{Fact, FactReader};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// One request as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Nanoseconds from the start of the window.
    pub at: u64,
    /// Key as a number.
    pub key: Option<u128>,
    /// Org as a number.
    pub org: Option<u128>,
    /// Its own longest wait in milliseconds.
    pub max_wait_ms: Option<u32>,
    /// How long it ran, in nanoseconds; the largest number for what runs still. Where that was never seen (refused, or the client left), the median of its pool.
    pub runs: u64,
}

/// The jobs of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// In order of time, by pool name.
    pub pools: BTreeMap<String, Vec<Job>>,
    /// Length of the window in nanoseconds.
    pub window: u64,
}

const NANOS: u64 = 1_000_000_000;

/// The newest jobs that are kept: nine replays of so many take a few seconds, and one takes some 150 bytes.
const MOST: usize = 100_000;

/// Pools that are reported separately; requests of further pools are left out.
const MOST_POOLS: usize = 4096;

/// A job with what was seen of it; times are wall time in nanoseconds.
#[derive(Debug)]
struct Unpaired {
    at: u64,
    pool: u16,
    key: Option<u128>,
    org: Option<u128>,
    max_wait_ms: Option<u32>,
    session: u64,
    granted: Option<u64>,
    ran: Option<u64>,
    runs_on: bool,
}

/// Pairs facts into jobs as they are read.
#[derive(Debug, Default)]
pub struct Collector {
    /// Names by number.
    pools: Vec<String>,
    numbers: HashMap<String, u16>,
    /// The newest jobs; the first is job number `first`.
    jobs: VecDeque<Unpaired>,
    first: u64,
    /// No earlier job is known completely.
    from: u64,
    /// Of the segment that is being read: its begin by the monotonic clock and by the wall clock in seconds.
    zero: Option<(u64, u64)>,
    /// Unanswered requests by session and request, as job numbers.
    asked: HashMap<(u64, u32), u64>,
    /// Running leases as job numbers.
    leases: HashMap<u64, u64>,
    by_session: HashMap<u64, BTreeSet<u64>>,
}

impl FactReader for Collector {
    /// The next fact is the first of another segment.
    fn end_segment(&mut self) {
        self.zero = None;
        self.asked.clear();
        self.leases.clear();
        self.by_session.clear();
    }

    /// Takes the next fact. A segment that does not say first when it began is left out.
    fn fact(&mut self, fact: Fact) {
        if let Fact::Opened { t, wall, held, orgs } = fact {
            if self.zero.is_none() {
                self.open(t, wall, held, orgs);
            }
            return;
        }
        let Some((zero, wall)) = self.zero else { return };
        let at = |t: u64| wall.saturating_mul(NANOS).saturating_add(t.saturating_sub(zero));
        match fact {
            Fact::Opened { .. } => {}
            Fact::Running { t, s, l, p, k, g } => {
                if !self.leases.contains_key(&l) {
                    self.running(at(t), s, l, &p, (k.as_deref(), g.as_deref()));
                }
            }
            Fact::Asked { t, s, r, p, k, g, w } => {
                let Some(pool) = self.pool(&p) else { return };
                let (key, org) = (k.as_deref().and_then(identity), g.as_deref().and_then(identity));
                let number = self.push(Unpaired {
                    at: at(t),
                    pool,
                    key,
                    org,
                    max_wait_ms: w,
                    session: s,
                    granted: None,
                    ran: None,
                    runs_on: false,
                });
                self.asked.insert((s, r), number);
                if self.asked.len() > 2 * MOST {
                    let first = self.first;
                    self.asked.retain(|_, number| *number >= first);
                }
            }
            Fact::Granted { t, s, r, l } => {
                if let Some(number) = self.asked.remove(&(s, r)) {
                    self.hold(s, l, number);
                    if let Some(job) = self.job(number) {
                        job.granted = Some(at(t));
                        job.runs_on = true;
                    }
                }
            }
            Fact::Held { t, s, o, l, p, k, g } => match self.drop_lease(o) {
                Some(number) => {
                    self.hold(s, l, number);
                    if let Some(job) = self.job(number) {
                        job.session = s;
                    }
                }
                None => self.running(at(t), s, l, &p, (k.as_deref(), g.as_deref())),
            },
            Fact::Ended { t, l } => {
                if let Some(job) = self.drop_lease(l).and_then(|number| self.job(number)) {
                    job.end(at(t));
                }
            }
            Fact::Gone { t, s } => {
                for lease in self.by_session.remove(&s).unwrap_or_default() {
                    if let Some(job) = self.leases.remove(&lease).and_then(|number| self.job(number)) {
                        job.end(at(t));
                    }
                }
            }
        }
    }
}

impl Collector {
    /// The jobs of the last `seconds` up to `wall`. Segments are laid end to end by their wall time; of more than 100,000
    /// jobs the oldest are left out and the window is shorter.
    #[must_use]
    pub fn finish(self, wall: u64, seconds: u64) -> Jobs {
        let from = wall.saturating_sub(seconds).saturating_mul(NANOS).max(self.from);
        let end = wall.saturating_mul(NANOS).max(self.jobs.iter().map(|job| job.at).max().unwrap_or(0));
        let start = self.jobs.iter().map(|job| job.at).min().unwrap_or(end).max(from);
        let mut known: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for job in &self.jobs {
            known.entry(job.pool).or_default().extend(job.ran);
        }
        let median = |runs: &mut Vec<u64>| {
            runs.sort_unstable();
            runs.get(runs.len() / 2).copied().unwrap_or(NANOS)
        };
        let medians: BTreeMap<u16, u64> = known.iter_mut().map(|(pool, runs)| (*pool, median(runs))).collect();
        drop(known);
        let mut pools: BTreeMap<String, Vec<Job>> = BTreeMap::new();
        for job in self.jobs {
            let runs_into = job.granted.zip(job.ran).is_some_and(|(at, ran)| at + ran > start);
            let Some(name) = self.pools.get(usize::from(job.pool)).filter(|_| job.at >= start || runs_into) else {
                continue;
            };
            let before = start.saturating_sub(job.at);
            let kept = Job {
                at: job.at.saturating_sub(start),
                max_wait_ms: job.max_wait_ms,
                runs: match (job.granted, job.ran) {
                    (_, Some(ran)) => ran.saturating_sub(before),
                    // It runs still: beyond the window, whose end is only known to the second.
                    (Some(_), None) if job.runs_on => u64::MAX,
                    (Some(_) | None, None) => medians.get(&job.pool).copied().unwrap_or(NANOS),
                },
                key: job.key,
                org: job.org,
            };
            match pools.get_mut(name) {
                Some(jobs) => jobs.push(kept),
                None => drop(pools.insert(name.clone(), vec![kept])),
            }
        }
        for jobs in pools.values_mut() {
            jobs.sort_by_key(|job| job.at);
        }
        Jobs { pools, window: end.saturating_sub(start) }
    }

    fn open(&mut self, zero: u64, wall: u64, held: Vec<(u64, u64, String, Option<String>)>, orgs: Vec<Option<String>>) {
        self.zero = Some((zero, wall));
        let now = wall.saturating_mul(NANOS);
        // What an earlier segment left running goes on as a lease of this one: it ran there until here.
        for job in &mut self.jobs {
            job.runs_on = false;
            if let (Some(granted), None) = (job.granted, job.ran) {
                job.ran = Some(now.saturating_sub(granted).max(1));
            }
        }
        let mut orgs = orgs.into_iter();
        for (lease, session, pool, key) in held {
            let org = orgs.next().flatten();
            self.running(now, session, lease, &pool, (key.as_deref(), org.as_deref()));
        }
    }

    /// A lease that is seen when it runs already.
    fn running(&mut self, at: u64, session: u64, lease: u64, pool: &str, (key, org): (Option<&str>, Option<&str>)) {
        let Some(pool) = self.pool(pool) else { return };
        let number = self.push(Unpaired {
            at,
            pool,
            key: key.and_then(identity),
            org: org.and_then(identity),
            max_wait_ms: None,
            session,
            granted: Some(at),
            ran: None,
            runs_on: true,
        });
        self.hold(session, lease, number);
    }

    fn push(&mut self, job: Unpaired) -> u64 {
        if self.jobs.len() == MOST
            && let Some(oldest) = self.jobs.pop_front()
        {
            self.first += 1;
            self.from = self.from.max(oldest.at);
        }
        self.jobs.push_back(job);
        self.first + u64::try_from(self.jobs.len() - 1).unwrap_or(u64::MAX)
    }

    /// A job that is still kept.
    fn job(&mut self, number: u64) -> Option<&mut Unpaired> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.jobs.get_mut(index)
    }

    fn hold(&mut self, session: u64, lease: u64, number: u64) {
        self.leases.insert(lease, number);
        self.by_session.entry(session).or_default().insert(lease);
    }

    fn drop_lease(&mut self, lease: u64) -> Option<u64> {
        let number = self.leases.remove(&lease)?;
        if let Some(session) = self.job(number).map(|job| job.session)
            && let Some(leases) = self.by_session.get_mut(&session)
        {
            leases.remove(&lease);
        }
        Some(number)
    }

    fn pool(&mut self, name: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(self.pools.len()).ok().filter(|_| self.pools.len() < MOST_POOLS)?;
        self.pools.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }
}

impl Unpaired {
    fn end(&mut self, at: u64) {
        self.ran = self.granted.map(|granted| at.saturating_sub(granted).max(1));
        self.runs_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(t: u64, r: u32) -> Fact {
        Fact::Asked { t: t * NANOS, s: 1, r, p: "chat".to_owned(), k: Some("aa".repeat(16)), g: None, w: None }
    }

    /// The jobs of the pool, as begin and duration in seconds, and the window in nanoseconds.
    fn seen(segments: Vec<Vec<Fact>>, wall: u64, seconds: u64) -> (Vec<(u64, u64)>, u64) {
        let mut collector = Collector::default();
        for segment in segments {
            segment.into_iter().for_each(|fact| collector.fact(fact));
            collector.end_segment();
        }
        let jobs = collector.finish(wall, seconds);
        let seen = jobs.pools["chat"].iter().map(|job| (job.at / NANOS, job.runs / NANOS)).collect();
        (seen, jobs.window)
    }

    #[test]
    fn a_request_runs_from_its_grant_to_its_end_and_a_refused_one_as_long_as_others() {
        let facts = vec![
            Fact::Opened { t: 0, wall: 1000, held: vec![], orgs: vec![] },
            asked(0, 1),
            Fact::Granted { t: 2 * NANOS, s: 1, r: 1, l: 7 },
            asked(3, 2),
            Fact::Ended { t: 6 * NANOS, l: 7 },
            asked(8, 3),
            Fact::Granted { t: 8 * NANOS, s: 1, r: 3, l: 8 },
            Fact::Gone { t: 9 * NANOS, s: 1 },
        ];
        let (seen, window) = seen(vec![facts], 1010, 3600);
        assert_eq!(seen, [(0, 4), (3, 4), (8, 1)], "the refused one gets the median of 1 and 4");
        assert_eq!(window, 10 * NANOS);
    }

    #[test]
    fn what_ran_over_the_end_of_a_segment_is_not_lost_and_not_counted_twice_at_once() {
        let first = vec![
            Fact::Opened { t: 0, wall: 1000, held: vec![], orgs: vec![] },
            asked(0, 1),
            Fact::Granted { t: 0, s: 1, r: 1, l: 7 },
        ];
        let opened = |held| Fact::Opened { t: 5 * NANOS, wall: 1005, held, orgs: vec![] };
        let ended = Fact::Ended { t: 9 * NANOS, l: 7 };
        let earlier = opened(vec![(7, 1, "chat".to_owned(), Some("aa".repeat(16)))]);
        let running = Fact::Running { t: 5 * NANOS, s: 1, l: 7, p: "chat".to_owned(), k: None, g: None };
        for second in [vec![earlier, ended.clone()], vec![opened(vec![]), running.clone(), running, ended]] {
            let (seen, _) = seen(vec![first.clone(), second], 1020, 3600);
            assert_eq!(seen, [(0, 5), (5, 4)]);
        }
    }

    #[test]
    fn only_the_window_counts_and_what_runs_into_it_is_cut() {
        let facts = vec![
            Fact::Opened { t: 0, wall: 1000, held: vec![], orgs: vec![] },
            asked(0, 1),
            Fact::Granted { t: 0, s: 1, r: 1, l: 7 },
            asked(1, 2),
            Fact::Ended { t: 50 * NANOS, l: 7 },
            asked(60, 3),
        ];
        let (seen, window) = seen(vec![facts], 1070, 30);
        assert_eq!(seen, [(0, 10), (20, 50)]);
        assert_eq!(window, 30 * NANOS);
    }

    #[test]
    fn of_very_many_jobs_the_newest_are_kept() {
        let mut collector = Collector::default();
        collector.fact(Fact::Opened { t: 0, wall: 1000, held: vec![], orgs: vec![] });
        let more = 50;
        for n in 0..u32::try_from(MOST).unwrap() + more {
            collector.fact(asked(n.into(), n));
        }
        assert!(collector.asked.len() <= 2 * MOST);
        let jobs = collector.finish(1000, 3600);
        let kept = &jobs.pools["chat"];
        assert_eq!((kept.len(), kept[0].at / NANOS), (MOST, 0), "the window begins with the oldest that is kept");
        assert_eq!(jobs.window / NANOS, MOST as u64 - 1);
    }
}
