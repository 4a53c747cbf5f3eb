//! From facts to jobs: what came, of whom, and how long it ran. Pairs the ends of each request and decides what to
//! believe where one end is missing.

use crate::daemon::demand::Fact;
use std::collections::BTreeMap;

/// One request as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Nanoseconds from the start of the window.
    pub at: u64,
    /// Pool name.
    pub pool: String,
    /// Key, in hexadecimal digits.
    pub key: Option<String>,
    /// Org, in hexadecimal digits.
    pub org: Option<String>,
    /// Its own longest wait in milliseconds.
    pub max_wait_ms: Option<u32>,
    /// How long it ran, in nanoseconds; the largest number for what runs still. Where that was never seen (refused, or the client left), the median of its pool.
    pub runs: u64,
}

/// The jobs of the last `seconds` up to `wall`, in order, and the length of the window in nanoseconds. Segments are laid
/// end to end by their wall time; of more than 100,000 jobs the oldest are left out and the window is shorter.
#[must_use]
pub fn jobs(segments: &[Vec<Fact>], wall: u64, seconds: u64) -> (Vec<Job>, u64) {
    let mut open = Vec::new();
    let from = wall.saturating_sub(seconds).saturating_mul(NANOS);
    for facts in segments {
        segment(facts, &mut open);
    }
    let end = wall.saturating_mul(NANOS).max(open.iter().map(|job| job.at).max().unwrap_or(0));
    let start = open.iter().map(|job| job.at).min().unwrap_or(end).max(from);
    let mut known: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for job in &open {
        known.entry(&job.pool).or_default().extend(job.ran);
    }
    let medians: BTreeMap<String, u64> = known
        .into_iter()
        .map(|(pool, mut runs)| {
            runs.sort_unstable();
            (pool.to_owned(), runs.get(runs.len() / 2).copied().unwrap_or(NANOS))
        })
        .collect();
    let within = |job: &Unpaired| job.at >= start || job.granted.zip(job.ran).is_some_and(|(at, ran)| at + ran > start);
    let mut jobs: Vec<Job> = open
        .into_iter()
        .filter(within)
        .map(|job| {
            let before = start.saturating_sub(job.at);
            Job {
                at: job.at.saturating_sub(start),
                max_wait_ms: job.max_wait_ms,
                runs: match (job.granted, job.ran) {
                    (_, Some(ran)) => ran.saturating_sub(before),
                    // It runs still: beyond the window, whose end is only known to the second.
                    (Some(_), None) if job.runs_on => u64::MAX,
                    (Some(_) | None, None) => medians.get(&job.pool).copied().unwrap_or(NANOS),
                },
                pool: job.pool,
                key: job.key,
                org: job.org,
            }
        })
        .collect();
    jobs.sort_by_key(|job| job.at);
    let mut window = end.saturating_sub(start);
    if let Some(surplus) = jobs.len().checked_sub(MOST).filter(|surplus| *surplus > 0) {
        jobs.drain(..surplus);
        let first = jobs.first().map_or(0, |job| job.at);
        window -= first;
        for job in &mut jobs {
            job.at -= first;
        }
    }
    (jobs, window)
}

const NANOS: u64 = 1_000_000_000;

/// The newest jobs that are kept: nine replays of so many take a few seconds.
const MOST: usize = 100_000;

/// A job with what was seen of it; times are wall time in nanoseconds.
struct Unpaired {
    at: u64,
    pool: String,
    key: Option<String>,
    org: Option<String>,
    max_wait_ms: Option<u32>,
    session: u64,
    granted: Option<u64>,
    ran: Option<u64>,
    runs_on: bool,
}

/// Reads one segment. Leases held at its opening that an earlier segment knows are the same jobs.
fn segment(facts: &[Fact], jobs: &mut Vec<Unpaired>) {
    let Some(Fact::Opened { t: zero, wall, held, orgs }) = facts.first() else { return };
    let at = |t: u64| (wall.saturating_mul(NANOS)).saturating_add(t.saturating_sub(*zero));
    let mut asked: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    let mut leases: BTreeMap<u64, usize> = BTreeMap::new();
    for job in jobs.iter_mut() {
        job.runs_on = false;
    }
    let mut orgs = orgs.iter();
    for (lease, session, pool, key) in held {
        leases.insert(*lease, jobs.len());
        let whose = (key.clone(), orgs.next().cloned().flatten());
        jobs.push(Unpaired::running(at(*zero), pool.clone(), whose, *session));
    }
    // What an earlier segment left running goes on as one of these: it ran there until here.
    let earlier = jobs.len() - held.len();
    for job in &mut jobs[..earlier] {
        if let (Some(granted), None) = (job.granted, job.ran) {
            job.ran = Some(at(*zero).saturating_sub(granted).max(1));
        }
    }
    for fact in facts.iter().skip(1) {
        match fact {
            Fact::Opened { .. } => {}
            Fact::Asked { t, s, r, p, k, g, w } => {
                asked.insert((*s, *r), jobs.len());
                jobs.push(Unpaired {
                    at: at(*t),
                    pool: p.clone(),
                    key: k.clone(),
                    org: g.clone(),
                    max_wait_ms: *w,
                    session: *s,
                    granted: None,
                    ran: None,
                    runs_on: false,
                });
            }
            Fact::Granted { t, s, r, l } => {
                if let Some(index) = asked.remove(&(*s, *r)) {
                    leases.insert(*l, index);
                    jobs[index].granted = Some(at(*t));
                    jobs[index].runs_on = true;
                }
            }
            Fact::Held { t, s, o, l, p, k, g } => {
                let index = leases.remove(o).unwrap_or(jobs.len());
                if index == jobs.len() {
                    jobs.push(Unpaired::running(at(*t), p.clone(), (k.clone(), g.clone()), *s));
                }
                jobs[index].session = *s;
                leases.insert(*l, index);
            }
            Fact::Ended { t, l } => {
                if let Some(index) = leases.remove(l) {
                    jobs[index].end(at(*t));
                }
            }
            Fact::Gone { t, s } => {
                leases.retain(|_, index| {
                    let theirs = jobs[*index].session == *s;
                    if theirs {
                        jobs[*index].end(at(*t));
                    }
                    !theirs
                });
            }
        }
    }
}

impl Unpaired {
    /// Seen when it ran already.
    fn running(at: u64, pool: String, (key, org): (Option<String>, Option<String>), session: u64) -> Self {
        Self { at, pool, key, org, max_wait_ms: None, session, granted: Some(at), ran: None, runs_on: true }
    }

    fn end(&mut self, at: u64) {
        self.ran = self.granted.map(|granted| at.saturating_sub(granted).max(1));
        self.runs_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(t: u64, r: u32) -> Fact {
        Fact::Asked { t: t * NANOS, s: 1, r, p: "chat".to_owned(), k: Some("aa".to_owned()), g: None, w: None }
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
        let (jobs, window) = jobs(&[facts], 1010, 3600);
        let seen: Vec<(u64, u64)> = jobs.iter().map(|job| (job.at / NANOS, job.runs / NANOS)).collect();
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
        let held = vec![(7, 1, "chat".to_owned(), Some("aa".to_owned()))];
        let second =
            vec![Fact::Opened { t: 5 * NANOS, wall: 1005, held, orgs: vec![] }, Fact::Ended { t: 9 * NANOS, l: 7 }];
        let (jobs, _) = jobs(&[first, second], 1020, 3600);
        let seen: Vec<(u64, u64)> = jobs.iter().map(|job| (job.at / NANOS, job.runs / NANOS)).collect();
        assert_eq!(seen, [(0, 5), (5, 4)]);
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
        let (jobs, window) = jobs(&[facts], 1070, 30);
        let seen: Vec<(u64, u64)> = jobs.iter().map(|job| (job.at / NANOS, job.runs / NANOS)).collect();
        assert_eq!(seen, [(0, 10), (20, 50)]);
        assert_eq!(window, 30 * NANOS);
    }
}
