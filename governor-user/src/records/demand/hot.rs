//! What is recorded of every request, in as few bytes as can be: at a million requests a second, the log costs more than the
//! decisions if it is not. A request that is granted at once is one record, and so are the ends of one moment.
//!
//! A record begins with its type; integers are little-endian, and no record depends on another:
//!
//! | type | then |
//! |---|---|
//! | 1 asked | t u64, session u64, request u32, what follows u8, key 16 bytes (bit 0), org 16 bytes (bit 1), longest wait in ms u32 (bit 2), the pool's name |
//! | 2 granted | t u64, session u64, request u32, lease u64 |
//! | 3 ended | t u64, leases u64 each |
//! | 4 asked and granted | lease u64, then as asked |
//! | 5 running | lease u64, then as asked, with request 0: a lease that ran when its segment began |

use crate::naming;
use crate::records::demand::Fact;
use crate::records::ring::Ring;
use governor_common::wire::KeyHash;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::Acquire;
use governor_engine::snapshot::LeaseView;
use governor_engine::time::Instant;

const ASKED: u8 = 1;
const GRANTED: u8 = 2;
const ENDED: u8 = 3;
const RAN: u8 = 4;
const RUNNING: u8 = 5;

const HAS_KEY: u8 = 1;
const HAS_ORG: u8 = 2;
const HAS_WAIT: u8 = 4;

/// Ends in one record at most.
const MOST_ENDS: usize = 128;

/// Longest of these records in bytes: one of ends.
const LONGEST: usize = 16 + 8 * MOST_ENDS;

/// What is not yet written.
#[derive(Debug, Default)]
pub(super) struct Hot {
    /// Everything below happened then.
    at: Instant,
    asked: Option<Asked>,
    /// Where that asked; its room is kept.
    pool: String,
    ended: Vec<LeaseId>,
}

#[derive(Debug)]
struct Asked {
    session: SessionId,
    request: RequestId,
    key: Option<KeyHash>,
    org: Option<KeyHash>,
    wait: Option<u32>,
}

impl Asked {
    fn write(&self, out: &mut Vec<u8>, at: Instant, pool: &str) {
        out.extend_from_slice(&at.0.to_le_bytes());
        out.extend_from_slice(&self.session.0.to_le_bytes());
        out.extend_from_slice(&self.request.0.to_le_bytes());
        let has = |there: bool, bit: u8| if there { bit } else { 0 };
        let (key, org, wait) = (self.key, self.org, self.wait);
        out.push(has(key.is_some(), HAS_KEY) | has(org.is_some(), HAS_ORG) | has(wait.is_some(), HAS_WAIT));
        for hash in [key, org].into_iter().flatten() {
            out.extend_from_slice(&hash.0);
        }
        if let Some(wait) = wait {
            out.extend_from_slice(&wait.to_le_bytes());
        }
        out.extend_from_slice(pool.as_bytes());
    }
}

impl Hot {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_none() && self.ended.is_empty()
    }

    /// A request came.
    pub(super) fn asked(&mut self, ring: &mut Ring, ask: &Acquire, pool: &str, now: Instant) {
        self.go_on(ring, now);
        self.write_asked(ring, None);
        self.asked = Some(Asked {
            session: ask.session,
            request: ask.request,
            key: ask.key.map(naming::hash),
            org: ask.org.map(naming::org_hash),
            wait: ask.max_wait.map(naming::millis),
        });
        self.pool.clear();
        self.pool.push_str(pool);
    }

    /// A request was granted.
    pub(super) fn granted(
        &mut self,
        ring: &mut Ring,
        session: SessionId,
        request: RequestId,
        lease: LeaseId,
        now: Instant,
    ) {
        self.go_on(ring, now);
        if self.asked.as_ref().is_some_and(|asked| (asked.session, asked.request) == (session, request)) {
            return self.write_asked(ring, Some(lease));
        }
        self.write_asked(ring, None);
        ring.append_with(LONGEST, |out| {
            out.push(GRANTED);
            out.extend_from_slice(&now.0.to_le_bytes());
            out.extend_from_slice(&session.0.to_le_bytes());
            out.extend_from_slice(&request.0.to_le_bytes());
            out.extend_from_slice(&lease.0.to_le_bytes());
        });
    }

    /// A lease ended.
    pub(super) fn ended(&mut self, ring: &mut Ring, lease: LeaseId, now: Instant) {
        self.go_on(ring, now);
        if self.ended.len() == MOST_ENDS {
            self.write_ended(ring);
        }
        self.ended.push(lease);
    }

    /// A lease of this pool ran when the segment began, at `opened`.
    pub(super) fn running(&mut self, ring: &mut Ring, lease: &LeaseView, pool: &str, opened: Instant) {
        self.settle(ring);
        let asked = Asked {
            session: lease.session,
            request: RequestId(0),
            key: lease.key.map(naming::hash),
            org: lease.org.map(naming::org_hash),
            wait: None,
        };
        ring.append_with(LONGEST, |out| {
            out.push(RUNNING);
            out.extend_from_slice(&lease.lease.0.to_le_bytes());
            asked.write(out, opened, pool);
        });
    }

    /// Writes what waits: something else is to be written after it, or nothing.
    pub(super) fn settle(&mut self, ring: &mut Ring) {
        self.write_ended(ring);
        self.write_asked(ring, None);
    }

    /// Time goes on: what waits is not of this moment.
    fn go_on(&mut self, ring: &mut Ring, now: Instant) {
        if self.at != now {
            self.settle(ring);
            self.at = now;
        }
    }

    fn write_asked(&mut self, ring: &mut Ring, lease: Option<LeaseId>) {
        let Some(asked) = self.asked.take() else { return };
        ring.append_with(LONGEST, |out| {
            out.push(if lease.is_some() { RAN } else { ASKED });
            if let Some(lease) = lease {
                out.extend_from_slice(&lease.0.to_le_bytes());
            }
            asked.write(out, self.at, &self.pool);
        });
    }

    fn write_ended(&mut self, ring: &mut Ring) {
        if self.ended.is_empty() {
            return;
        }
        ring.append_with(LONGEST, |out| {
            out.push(ENDED);
            out.extend_from_slice(&self.at.0.to_le_bytes());
            for lease in &self.ended {
                out.extend_from_slice(&lease.0.to_le_bytes());
            }
        });
        self.ended.clear();
    }
}

/// The facts of a record; `None` if it is none of these.
pub(super) fn facts(record: &[u8]) -> Option<Vec<Fact>> {
    let (kind, mut rest) = record.split_first()?;
    let rest = &mut rest;
    match *kind {
        ASKED => Some(vec![asked(rest)?.0]),
        GRANTED => {
            let (t, s, r, l) = (long(rest)?, long(rest)?, short(rest)?, long(rest)?);
            rest.is_empty().then(|| vec![Fact::Granted { t, s, r, l }])
        }
        ENDED => {
            let t = long(rest)?;
            let (leases, left) = rest.as_chunks::<8>();
            let ended = |lease: &[u8; 8]| Fact::Ended { t, l: u64::from_le_bytes(*lease) };
            left.is_empty().then(|| leases.iter().map(ended).collect())
        }
        RAN => {
            let l = long(rest)?;
            let (fact, t, s, r) = asked(rest)?;
            Some(vec![fact, Fact::Granted { t, s, r, l }])
        }
        RUNNING => {
            let l = long(rest)?;
            let (fact, ..) = asked(rest)?;
            let Fact::Asked { t, s, p, k, g, .. } = fact else { return None };
            Some(vec![Fact::Running { t, s, l, p, k, g }])
        }
        _ => None,
    }
}

/// What asked; time, session and request once more.
fn asked(rest: &mut &[u8]) -> Option<(Fact, u64, u64, u32)> {
    let (t, s, r, [has]) = (long(rest)?, long(rest)?, short(rest)?, take::<1>(rest)?);
    let mut hash = |bit: u8| (has & bit != 0).then(|| take(rest).map(|hash| KeyHash(hash).to_string()));
    let (k, g) = (hash(HAS_KEY), hash(HAS_ORG));
    let w = (has & HAS_WAIT != 0).then(|| short(rest));
    let whole = k != Some(None) && g != Some(None) && w != Some(None);
    let p = std::str::from_utf8(rest).ok().filter(|_| whole)?.to_owned();
    Some((Fact::Asked { t, s, r, p, k: k.flatten(), g: g.flatten(), w: w.flatten() }, t, s, r))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn short(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::ring::read;
    use governor_engine::id::{KeyId, OrgId};
    use governor_engine::time::Duration;
    use proptest::prelude::*;

    /// What is done to a log, and the facts that say so, with the moment each happened at.
    #[derive(Clone, Debug)]
    enum Step {
        Asks(u64, u32, String, (Option<u128>, Option<u128>), Option<u32>),
        Gets(u64, u32, u64),
        Ends(u64),
        Later,
        Settles,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (session, request, lease) = (0..3_u64, 0..3_u32, any::<u64>());
        prop_oneof![
            (session.clone(), request.clone(), ".{0,12}", any::<(Option<u128>, Option<u128>)>(), any::<Option<u32>>())
                .prop_map(|(s, r, p, who, w)| Step::Asks(s, r, p, who, w)),
            (session, request, lease).prop_map(|(s, r, l)| Step::Gets(s, r, l)),
            lease.prop_map(Step::Ends),
            Just(Step::Later),
            Just(Step::Settles),
        ]
    }

    fn sorted(facts: Vec<Fact>) -> Vec<(u64, String)> {
        let at = |fact: &Fact| match fact {
            Fact::Asked { t, .. } | Fact::Granted { t, .. } | Fact::Ended { t, .. } => *t,
            Fact::Opened { .. } | Fact::Running { .. } | Fact::Held { .. } | Fact::Gone { .. } => {
                unreachable!("not written here")
            }
        };
        let mut all: Vec<_> = facts.iter().map(|fact| (at(fact), format!("{fact:?}"))).collect();
        assert!(all.is_sorted_by_key(|(at, _)| *at), "time does not go back: {all:?}");
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn every_fact_is_read_as_it_was_told_and_in_order_of_time(steps in prop::collection::vec(step(), 0..60)) {
            let folder = tempfile::tempdir().unwrap();
            let (mut hot, mut told, mut t) = (Hot::default(), Vec::new(), 0);
            let mut ring = Ring::open(folder.path().to_owned(), 1 << 20);
            for step in steps {
                let now = Instant(t);
                match step {
                    Step::Asks(s, r, p, (k, g), w) => {
                        let ask = Acquire {
                            session: SessionId(s),
                            request: RequestId(r),
                            key: k.map(KeyId),
                            org: g.map(OrgId),
                            max_wait: w.map(|ms| Duration::from_millis(ms.into())),
                            ..Acquire::default()
                        };
                        hot.asked(&mut ring, &ask, &p, now);
                        let (k, g) = (k.map(|key| format!("{key:032x}")), g.map(|org| format!("{org:032x}")));
                        told.push(Fact::Asked { t, s, r, p, k, g, w });
                    }
                    Step::Gets(s, r, l) => {
                        hot.granted(&mut ring, SessionId(s), RequestId(r), LeaseId(l), now);
                        told.push(Fact::Granted { t, s, r, l });
                    }
                    Step::Ends(l) => {
                        hot.ended(&mut ring, LeaseId(l), now);
                        told.push(Fact::Ended { t, l });
                    }
                    Step::Later => t += 7,
                    Step::Settles => hot.settle(&mut ring),
                }
            }
            hot.settle(&mut ring);
            prop_assert!(hot.is_empty());
            drop(ring);
            let records = read(folder.path()).unwrap().concat();
            let read: Vec<Fact> = records.iter().flat_map(|record| facts(record).expect("a record of ours")).collect();
            prop_assert_eq!(sorted(read), sorted(told));
        }

        #[test]
        fn no_bytes_are_taken_for_more_than_they_are(record in prop::collection::vec(any::<u8>(), 0..80), kind in 0..7_u8) {
            drop(facts(&record));
            drop(facts(&[&[kind], &record[..]].concat()));
        }
    }

    #[test]
    fn a_request_that_is_granted_at_once_and_its_end_take_few_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(folder.path().to_owned(), 1 << 20);
        let mut hot = Hot::default();
        let ask = |request| Acquire { request: RequestId(request), key: Some(KeyId(1)), ..Acquire::default() };
        for request in 0..16 {
            hot.asked(&mut ring, &ask(request), "chat", Instant(1));
            hot.granted(&mut ring, SessionId(0), RequestId(request), LeaseId(request.into()), Instant(1));
        }
        (0..16).for_each(|lease| hot.ended(&mut ring, LeaseId(lease), Instant(2)));
        hot.settle(&mut ring);
        drop(ring);
        let records = read(folder.path()).unwrap().concat();
        assert_eq!(records.iter().map(Vec::len).sum::<usize>(), 16 * 50 + 9 + 16 * 8);
    }
}
